/* cost.h - how long each kernel of a plan takes alone, and how much of the machine it takes.
 *
 *     plan.kernels + profile --> struct costs: one struct cost a kernel, host seconds beside it
 *
 * A kernel's own time is launch + the larger of its arithmetic and its traffic; a collective's is
 * NCCL's (collective.h). What runs beside what, and how they slow each other, is the simulator's
 * business (simulate/): for that each kernel says which share of each resource it would use if it
 * ran alone. Sources of the rules are beside them in kernel_cost.c, of the numbers in the profile.
 */
#ifndef SHARDPLAN_COST_H
#define SHARDPLAN_COST_H

#include "machine/profile.h"
#include "plan/plan.h"

enum resource {
    RESOURCE_COMPUTE,   /* multiprocessors */
    RESOURCE_MEMORY,    /* bandwidth of device memory */
    RESOURCE_LINK,      /* to the other GPUs of the node */
    RESOURCE_NIC,       /* to other nodes */
    RESOURCE_FROM_HOST, /* the slot, towards the device */
    RESOURCE_TO_HOST,   /* and away from it */
    RESOURCE_COUNT
};

/* What kind of error a predicted time has: kernels of a class are off together. */
enum cost_class {
    COST_GEMM,
    COST_ATTENTION,
    COST_MEMORY,
    COST_COLLECTIVE,
    COST_COPY,
    COST_HOST,
    COST_CLASSES
};

struct cost {
    double device_s;           /* alone, launch gap included */
    double host_s;             /* until the host has issued it */
    float use[RESOURCE_COUNT]; /* 0 ... 1 of each, while it runs alone */
    float slowdown;            /* of a collective while others compute, beyond sharing; else 0 */
    float spread;              /* of device_s: relative standard deviation */
    uint8_t class;             /* enum cost_class */
    bool first; /* is served before others: NCCL's blocks hold their multiprocessors, and their
                   streams have priority */
};

struct sequence; /* simulate/sequence.h */

struct costs {
    struct cost *kernels;        /* (plan.kernel_count - first) */
    uint32_t first, cap;         /* the kernel that kernels[0] is of; room for so many */
    double event_s;              /* host: one event recorded or waited for */
    double spread[COST_CLASSES]; /* relative standard deviation of a class's times: the mean of its
                                    kernels', by seconds; of the host's, by what it issues */
    double model_flops;          /* of a step: forward and backward of the model once */
    double hardware_flops;       /* the same with what is computed again */
    double peak_flops;           /* of the plan's matmuls, by their dtype */
    struct sequence *sequence;   /* of an outline: what its spans are made of, lent; else NULL */
};

/* Costs of every kernel of a plan; of an outline, spans aside. `gpus_per_node` places the ranks:
 * neighbours share a node. The caller owns *out: costs_free. ERR_INVALID: the ranks do not fill
 * nodes, or the profile's links do not join a group of them. */
enum err_code costs_of_plan(const struct plan *plan, const struct profile *profile,
                            uint32_t gpus_per_node, struct costs *out, struct err *err);
void costs_free(struct costs *costs);

/* What is known of the collectives of one machine: grows with what is asked. For one thread. */
struct collective_models;
struct collective_models *collective_models_new(void);
void collective_models_free(struct collective_models *models); /* NULL is allowed */

/* The same of an outline: of the kernels of its own. *out is reused from call to call; `models` are
 * of this profile and gpus_per_node. */
enum err_code costs_of_outline(const struct plan *plan, const struct profile *profile,
                               uint32_t gpus_per_node, struct collective_models *models,
                               struct costs *out, struct err *err);

/* One kernel on the device, collectives aside: launch + work, in seconds, and what it uses. */
void kernel_cost(const struct kernel *kernel, const struct profile *profile, struct cost *out);

/* One kernel of a stream, where the model's own code issues it: the host's time, too. */
void stream_kernel_cost(const struct kernel *kernel, bool backward, const struct profile *profile,
                        struct cost *out);

/* What a measured kernel is told apart by, beside its work (struct profile_kernel): whether it is
 * of the backward pass, recomputed forward kernels aside; the dtypes of its first operand and of
 * its first result. And whether its operations count, or its traffic alone: GEMM, ATTENTION or
 * MEMORY. */
bool kernel_is_backward(const struct kernel *kernel);
enum cost_class kernel_class(const struct kernel *kernel);
enum dtype kernel_dtype(const struct kernel *kernel);
enum dtype kernel_result_dtype(const struct kernel *kernel);

/* Bytes that a kernel moves between its processor and that one's memory, every pass counted. */
double kernel_traffic(const struct kernel *kernel);

/* FLOP/s of the profile's matrix products of a dtype: what is neither bf16 nor fp16 runs as fp32.
 */
double peak_flops(const struct profile *profile, enum dtype dtype);

/* Seconds of `batch` matrix products (m, k) x (k, n) at `peak` FLOP/s, without launch. */
double gemm_seconds(const struct profile *profile, double peak, double m, double n, double k,
                    double batch);

#endif
