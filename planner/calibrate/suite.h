/* suite.h - what calibration runs: plans, executed as any other plan is.
 *
 * Kernels are measured where they occur, with the operands and the cache they find there: in plans
 * of small models at several widths and lengths, whose micro-batches repeat every kernel. What no
 * model shows alone is put at the start of a small plan, where nothing else runs: collectives by
 * size, collectives beside compute, launches of kernels that do nothing. */
#ifndef SHARDPLAN_SUITE_H
#define SHARDPLAN_SUITE_H

#include "plan/plan.h"

/* A round of SUITE_OVERLAP: kernels alone, a gather and a reduction alone, then all at once. */
enum suite_round {
    ROUND_COMPUTE_ALONE,
    ROUND_GATHER_ALONE,
    ROUND_REDUCE_ALONE,
    ROUND_COMPUTE_BESIDE,
    ROUND_GATHER_BESIDE,
    ROUND_REDUCE_BESIDE,
    ROUND_PARTS
};

enum suite_purpose {
    SUITE_KERNELS,     /* a model's step */
    SUITE_COLLECTIVES, /* each size SUITE_REPEATS times in a row */
    SUITE_OVERLAP,     /* SUITE_REPEATS rounds of compute and collectives, apart and together */
    SUITE_LAUNCHES,    /* three runs of SUITE_LAUNCH_COUNT kernels on one element; see below */
};

enum {
    SUITE_REPEATS = 9,
    SUITE_WARM_UP = 2, /* of them, not counted */
    SUITE_LAUNCH_COUNT = 1000,
    SUITE_PARTS = 64 /* operands of each kernel of the third run */
};

/* The runs of SUITE_LAUNCHES, told apart in a trace by their work. */
#define SUITE_LAUNCH_PLAIN WORK_RELU  /* kernel after kernel */
#define SUITE_LAUNCH_EVENTS WORK_SILU /* each with an event recorded and waited for */
#define SUITE_LAUNCH_PARTS WORK_PACK  /* each with SUITE_PARTS operands */

struct suite_options {
    uint32_t ranks;         /* 1 ... 64 */
    uint64_t largest_bytes; /* of a collective */
    bool quick;             /* one small model of each size only: minutes become seconds */
    bool gpu;               /* models are as large as a GPU's kernels need to be */
};

struct suite_item {
    enum suite_purpose purpose;
    char name[64];               /* for progress and messages */
    struct plan *plan;           /* owned: plan_free */
    uint32_t round[ROUND_PARTS]; /* SUITE_OVERLAP: the kernel of each part of a round */
};

/* How many plans there are, and the i-th of them (i < suite_count). ERR_INTERNAL: a plan of ours
 * that does not verify. */
uint32_t suite_count(const struct suite_options *options);
enum err_code suite_make(const struct suite_options *options, uint32_t i, struct suite_item *out,
                         struct err *err);

#endif
