/* kept_sets.h - which units stay unsharded between forward and backward: the fastest choice that
 * fits.
 *
 *     units --kept_bounds--> what none, each and all take
 *         few units:  branch and bound over all choices; leaves are simulated
 *         many:       the last, the first, spread, the most valuable for their bytes, then one
 *                     more or one for another as long as that helps; a bound says what any other
 *                     choice could be faster by at most
 *
 * What is proven is proven of the simulator and the allocator that everything is predicted with. */
#ifndef SHARDPLAN_KEPT_SETS_H
#define SHARDPLAN_KEPT_SETS_H

#include "search/kept_bounds.h"

enum { KEPT_UNITS_MOST = 512 };

struct kept_problem {
    const struct stream_class *stream_class; /* lent, as all that follows */
    struct strategy strategy;                /* of FSDP2; what it says of kept units is no matter */
    bool expandable_segments;
    uint64_t limit_bytes;                /* what it may take of a device */
    struct evaluator *const *evaluators; /* one for each thread of the pool */
    struct pool *pool;
    uint32_t most_simulated;  /* sets; so many at least where all are tried, for a proof */
    const volatile int *stop; /* not 0: give up early; NULL: never */
};

struct kept_set {
    uint64_t units[KEPT_UNITS_MOST / 64]; /* bits: of the units that can be kept */
    const char *text;                     /* as --keep-units has it; "": none is kept */
    const char *number;                   /* of them */
    uint32_t count, last; /* kept; as many are the last of blocks, and nothing else: else 0 */
    double step_s;
    uint64_t device_floor, device_bytes; /* bytes 0: not worked out; UINT64_MAX: too many */
};

struct kept_answer {
    struct kept_set none, all;  /* simulated, whether they fit or not */
    struct kept_set best, last; /* the fastest that fits; of the last k alone: step_s INFINITY:
                                   there is none */
    uint32_t units;             /* that keeping makes a difference of; 0: there are none */
    bool closed;                /* all others were simulated, or excluded by bounds */
    double bound_s; /* no set within the limit is faster; best.step_s where it is closed */
    uint32_t simulated;
    struct arena arena; /* of the texts */
};

/* Same result whatever the number of threads. Errors are lower_plan's, and ERR_UNSUPPORTED: there
 * are more units than KEPT_UNITS_MOST. The caller owns *out: kept_answer_free. */
enum err_code kept_sets_search(const struct kept_problem *problem, struct kept_answer *out,
                               struct err *err);
void kept_answer_free(struct kept_answer *answer);

#endif
