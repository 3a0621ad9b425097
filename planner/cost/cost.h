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

#include "cost/slowest.h"
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
    bool together;               /* kernels on the device are off together, whatever their class:
                                    "step_spread" of the profile, which is their spread then */
    double model_flops;          /* of a step: forward and backward of the model once */
    double hardware_flops;       /* the same with what is computed again */
    double peak_flops;           /* of the plan's matmuls, by their dtype */
    struct slowest slowest;      /* of the plan's ranks; the kernels are those of the mean one */
    struct sequence *sequence;   /* of an outline: what its spans are made of, lent; else NULL */
};

/* Whether a class is of kernels on the device, whose errors training shows together. */
static inline bool cost_class_is_of_kernels(enum cost_class class)
{
    return class == COST_GEMM || class == COST_ATTENTION || class == COST_MEMORY;
}

/* Whether a class takes a slower rank longer: it waits for arithmetic, and so for the clock. */
static inline bool cost_class_is_arithmetic(enum cost_class class)
{
    return class == COST_GEMM || class == COST_ATTENTION;
}

/* Whether the costs of a plan can be known, without asking for them: what costs_of_plan would
 * refuse is refused with the same sentence. */
enum err_code costs_check(const struct plan *plan, const struct profile *profile,
                          uint32_t gpus_per_node, struct err *err);

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

/* Of the kernels of a plan's own alone, at the profile's clock: those of an outline, or of what a
 * strategy puts around a stream. *out is reused from call to call; `models` are of this profile and
 * gpus_per_node. */
enum err_code costs_of_own(const struct plan *plan, const struct profile *profile,
                           uint32_t gpus_per_node, struct collective_models *models,
                           struct costs *out, struct err *err);

/* One kernel on the device, collectives aside: launch + work, in seconds, and what it uses. */
void kernel_cost(const struct kernel *kernel, const struct profile *profile, struct cost *out);

/* What arithmetic asks of the card's power, in seconds of a step at boost clock: of matrix units at
 * their peak, of kernels that wait for arithmetic, of others. */
struct load { /* zero-initialise */
    double matrix_s, compute_s, other_s;
};

/* Adds a kernel that runs `times` times. Does nothing where the profile has no limit of power. */
void load_add(struct load *load, const struct kernel *kernel, const struct profile *profile,
              double times);

/* The same profile, lent, whose kernels run at the clock that the mean power of a load leaves. */
struct profile profile_under(const struct profile *profile, const struct load *load);

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

/* The same without what operands find in a cache that keeps what the last `held` bytes touched
 * (operand.since): one pass over each, where there are several. */
double kernel_traffic_beyond(const struct kernel *kernel, double held);

/* FLOP/s of the profile's matrix products of a dtype, at its clock: what is neither bf16 nor fp16
 * runs as fp32, TF32 off. */
double peak_flops(const struct profile *profile, enum dtype dtype);

/* ---- single kernels, for tables of them ---- */

struct gemm {    /* `batch` products (m, k) x (k, n) */
    double peak; /* FLOP/s of the units they run on, at the profile's clock */
    double m, n, k, batch;
    double element_bytes, result_bytes; /* an element: of what is read, of the result */
    double speed; /* of the instructions it may use, beside the newest: 1, or less where rows do not
                     begin at multiples of 16 bytes */
};

double gemm_flops(const struct gemm *gemm);
/* Seconds without launch and start, at the clock of the profile. */
double gemm_seconds(const struct profile *profile, const struct gemm *gemm);

struct attention {
    enum dtype dtype;
    double batch, queries, keys, heads; /* queries, keys: tokens of a sequence; heads: of queries */
    uint32_t head, head_v;              /* sizes: of queries and keys, of values */
    double window;                      /* keys that a query sees; 0: all */
    bool causal, backward, deterministic;
};

/* Operations that the mask leaves: two products forward, five backward. */
double attention_flops(const struct attention *attention);
/* Seconds without launch, of the kernel that the profile's `attention` asks for. */
double attention_time(const struct attention *attention, const struct profile *profile);

/* The kernel that runs where the profile's `attention` is asked for: PyTorch 2.11 and newer prefer
 * cuDNN's on Hopper and Blackwell, FlashAttention-2 elsewhere; what is not 16 bits wide, and Volta,
 * have the memory-efficient one. */
enum attention_kernel attention_chosen(const struct profile *profile, enum dtype dtype);

/* Whether nothing but bytes holds it up: no places to compute, no casts (walk.h). */
bool kernel_is_vectorised(const struct kernel *kernel);

/* Of a kernel that a profiler shows by itself: kernel_cost's time less the gap to the next. */
double kernel_seconds(const struct kernel *kernel, const struct profile *profile);

#endif
