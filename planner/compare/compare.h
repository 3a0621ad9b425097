/* compare.h - a plan beside a recording of it: memory to the byte, time by statistics.
 *
 *     plan ---memory_replay---> predicted bytes --+
 *                                                 +-- by instruction id --> struct comparison
 *     recorded trace ---------> recorded bytes, --+
 *                               begin and end
 *
 * Memory is a function of the program alone, so the two curves are either equal or something is
 * wrong; they are compared at every alloc, free and mark. Time varies from run to run, so it is
 * summed up: by kind of kernel, and as communication that compute did not hide.
 *
 * Errors are predicted minus recorded throughout: positive means that too much was predicted. */
#ifndef SHARDPLAN_COMPARE_H
#define SHARDPLAN_COMPARE_H

#include "compare/busy.h"
#include "memory/replay.h"
#include "plan/plan.h"
#include "traces/trace.h"

#include <jansson.h>

#define COMPARE_NONE UINT32_MAX

enum compare_quantity { COMPARE_ALLOCATED, COMPARE_RESERVED, COMPARE_QUANTITIES };

struct compare_point { /* after an instruction; all bytes by quantity */
    uint32_t instruction;
    bool sampled; /* the recording has it */
    uint64_t predicted[COMPARE_QUANTITIES], recorded[COMPARE_QUANTITIES];
};

struct compare_difference { /* of one quantity */
    uint32_t points;        /* at which it differs */
    uint32_t first;         /* instruction of the first of them, or COMPARE_NONE */
    uint32_t largest;       /* of the one furthest off */
    int64_t largest_bytes;  /* predicted minus recorded there */
    uint64_t predicted_peak, recorded_peak;
};

struct compare_memory {
    const struct compare_point *points; /* every alloc, free and mark of a step, in order */
    uint32_t point_count;
    uint32_t differing; /* points at which either quantity differs */
    uint32_t missing;   /* points that the recording has no sample of */
    struct compare_difference of[COMPARE_QUANTITIES];
};

struct compare_kind {   /* kernels by label; what the sharding does by op: "all_gather" */
    const char *name;   /* lent by the plan */
    uint32_t count;     /* recorded */
    double predicted_s; /* sum over the recorded ones; NAN: the plan has no times */
    double recorded_s, median_s, p90_s;
};

struct compare_interval {
    double begin_s, end_s; /* from the begin of the step; NAN: not recorded */
};

struct compare_gap { /* the compute lane had nothing to do */
    struct compare_interval when;
    uint32_t next;       /* instruction that ended it */
    uint32_t waited_for; /* instruction on another lane, or COMPARE_NONE: the host's next launch */
};

struct compare_time {
    const struct compare_interval *spans; /* (instruction_count) */
    uint32_t span_count;                  /* recorded */
    uint32_t missing;                     /* kernels of the step that were not */
    const struct compare_kind *kinds;     /* most time first */
    uint32_t kind_count;
    double step_s;          /* from the begin of the first span to the end of the last */
    double compute_s;       /* the compute lane worked, collectives on it aside */
    double communication_s; /* at least one collective ran */
    double exposed_s;       /* one ran and the compute lane did not work */
    const struct compare_interval *exposed;
    uint32_t exposed_count;
    const struct compare_gap *gaps; /* longest first */
    uint32_t gap_count;
    double predicted_step_s, predicted_exposed_s; /* NAN: the plan has no times */
    double predicted_low_s, predicted_high_s;     /* what the prediction leaves open of its step */
    struct run_steps steps;                       /* of the run, if its trace tells */
    enum machine_busy busy;                       /* likewise */
    const char
        *profile; /* what they were predicted for; lent by the plan's "time"; NULL: not told */
};

struct comparison {
    struct arena arena; /* owns the arrays */
    struct compare_memory memory;
    struct compare_time time;
    uint32_t rank;       /* that was recorded */
    const char *step;    /* its number, as recorded; lent by the trace; NULL: not told */
    const char *kernels; /* what they were, where they computed nothing; likewise */
};

/* Joins a plan that plan_verify accepts with a trace that the runtime recorded of it. `time` is the
 * "time" of plan.json or NULL; of it are used "step_s", "exposed_communication_s" and
 * "instruction_s" (an array by id, null where nothing runs), each if there. The three are lent
 * until compare_free; "step_low_s" and "step_high_s" say what the prediction leaves open.
 * ERR_INVALID: the trace is a predicted one, of another plan, or of a first step. On ERR_OK the
 * caller owns what is in *out: compare_free. */
enum err_code compare_run(const struct plan *plan, const json_t *time, const struct trace *trace,
                          struct comparison *out, struct err *err);

/* Sorts intervals and joins those that touch; returns how many are left. */
uint32_t intervals_merge(struct compare_interval *intervals, uint32_t count);

/* What ran beside what: sets compute_s, communication_s, exposed_s, exposed and exposed_count of
 * *out from spans by instruction (NAN: did not run). The array is in the arena. */
void compare_overlap(const struct plan *plan, const struct compare_interval *spans,
                     struct arena *arena, struct compare_time *out);

void compare_free(struct comparison *comparison);

/* Whether both curves are equal at every point. */
bool compare_memory_equal(const struct comparison *comparison);

#endif
