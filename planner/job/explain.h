/* explain.h - what the predicted step comes from: the kernels it is spent on, the profile's numbers
 * that they rest on, and what each number would change of it. */
#ifndef SHARDPLAN_EXPLAIN_H
#define SHARDPLAN_EXPLAIN_H

#include "job/step_time.h"

enum { EXPLAINED_NUMBERS = 4, EXPLAINED_NAME = 64 };

struct explained_number {
    char name[EXPLAINED_NAME]; /* "gemm_efficiency", "attention.flash-128.forward" */
    double value, spread;
    const char *source; /* lent by the profile; NULL: none given */
    double change;      /* of the number: +0.1, or -0.1 where it may not be larger */
    double step_change; /* of the step, relative, when the number changes so */
    double uncertainty; /* of the step, relative: what the number's own spread makes of it */
};

/* Kernels that are alike: of one name, shape and pass. */
struct explained_kernel {
    enum spent spent;
    char *name;     /* "mm", "all_gather"; NULL: the end of the step, which is no kernel's */
    char *shape;    /* "8192x4096 14336x4096 bf16", "1.63 GiB among 8 ranks" */
    uint32_t count; /* in a step */
    double seconds; /* of the step, which it accounts for (job/blame.h) */
    double alone_s; /* one of them takes alone */
    uint32_t numbers[EXPLAINED_NUMBERS]; /* (number_count) it rests on, indices: what changes its
                                            time most comes first */
    uint32_t number_count;
};

struct explanation {
    struct explained_kernel *kernels; /* (kernel_count) by kind of spent, the most seconds first */
    struct explained_number *numbers; /* (number_count) what changes the step most comes first */
    uint32_t kernel_count, number_count;
    double step_s;
    double spent_s[SPENT_COUNT];
};

/* Explains a step that was timed (step_time). A simulation for each number: a tenth of a second for
 * a model of 8B parameters. Numbers that change the step by less than a millionth are left out. On
 * ERR_OK the caller owns what is in *out: explanation_free. */
enum err_code explain(const struct prediction *prediction, const struct machine *machine,
                      const struct step_time *time, struct explanation *out, struct err *err);
void explanation_free(struct explanation *explanation);

#endif
