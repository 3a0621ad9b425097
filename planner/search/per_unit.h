/* per_unit.h - a search's best configurations once more, with what its grid has no axis for: which
 * units stay unsharded between forward and backward.
 *
 * Asked of the configurations that were found, and of those that would be faster than these if all
 * units could be kept, which they cannot: there the memory of the device is what binds. */
#ifndef SHARDPLAN_PER_UNIT_H
#define SHARDPLAN_PER_UNIT_H

#include "search/kept_sets.h"
#include "search/search.h"

enum per_unit_state {
    PER_UNIT_NOT_ASKED, /* what was found gathers nothing twice, or what is kept was given */
    PER_UNIT_ALL_FIT,   /* there is no need to choose: what was found fits with all kept */
    PER_UNIT_HIDDEN,    /* gathers of backward cost no time worth a choice */
    PER_UNIT_NO_GAIN,   /* all kept would be no faster than what was found */
    PER_UNIT_SEARCHED,
};

/* Less of a step is no reason to choose. */
#define PER_UNIT_WORTH 5e-4

struct per_unit {
    enum per_unit_state state;
    double cost_s; /* of what was found: what keeping all would save; 0: it is of another system, or
                      what it keeps was given */
    struct found base;     /* PER_UNIT_SEARCHED: the configuration, keeping none */
    struct kept_answer of; /* ... and what is kept of it */
    bool last;             /* the last k are as fast, as far as is known: those are taken */
    bool taken;            /* it is what was chosen: faster in every draw than all of the grid */
    uint32_t configurations, simulated; /* that were looked at; sets of them */
};

/* The set that is taken, or would be. */
const struct kept_set *per_unit_set(const struct per_unit *per_unit);

/* Puts it into settings of its base, which lend its text. */
void per_unit_put(const struct per_unit *per_unit, struct settings *settings);

struct per_unit_options {
    uint64_t limit_bytes;      /* what a job may take of a device */
    const struct found *found; /* (found_count) to be asked of, the first the one to be beaten */
    uint32_t found_count;
    bool (*can_say)(void *context, const struct settings *settings); /* NULL: all can be said */
    void *context;
    const volatile int *stop; /* not 0: give up early; NULL: never */
};

/* Same result whatever the number of threads. The caller owns *out: per_unit_free. */
void per_unit_search(const struct candidates *candidates, const struct per_unit_options *options,
                     struct pool *pool, struct per_unit *out);
void per_unit_free(struct per_unit *per_unit);

#endif
