/* plan.h - a plan is a program: what the host of one rank issues in one training step.
 *
 * Instructions are in host order; each names its stream. Memory is decided when the host issues
 * (alloc and free), time by streams and events, so one form serves the memory replay, the
 * simulator and the runtime. An instruction's id is its index and stays the same in plan.json, in
 * the predicted trace and in the recorded one.
 *
 *     mark "start"
 *     alloc b17 ; copy_in b17 <- shards ; record e1 ; wait e1 ; all_gather b17 ; free b16 ; ...
 *     compute mm(b30 <- b21, wq) ; ...
 *     optimizer ; free ... ; mark "end"
 *
 * The program is one step that can be repeated. `resident` buffers (sharded parameters, optimizer
 * states, inputs) are allocated once: before the first step, or by instructions flagged
 * PLAN_FIRST_STEP in it, as PyTorch's optimizers do. Everything else is freed by the step's end.
 *
 * This folder includes nothing of the others but base/. */
#ifndef SHARDPLAN_PLAN_H
#define SHARDPLAN_PLAN_H

#include "base/arena.h"
#include "base/err.h"
#include "base/kernel.h"
#include "base/values.h"

#include <stdbool.h>
#include <stdint.h>

#define PLAN_OP_MAP(X)                                                                             \
    X(ALLOC, "alloc")                                                                              \
    X(FREE, "free")                                                                                \
    X(COMPUTE, "compute")                                                                          \
    X(COPY_IN, "copy_in")                                                                          \
    X(ALL_GATHER, "all_gather")                                                                    \
    X(COPY_OUT, "copy_out")                                                                        \
    X(REDUCE_SCATTER, "reduce_scatter")                                                            \
    X(ALL_REDUCE, "all_reduce")                                                                    \
    X(BROADCAST, "broadcast")                                                                      \
    X(HOST_TO_DEVICE, "host_to_device")                                                            \
    X(DEVICE_TO_HOST, "device_to_host")                                                            \
    X(RECORD, "record")                                                                            \
    X(WAIT, "wait")                                                                                \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(MARK, "mark")

enum plan_op {
#define X(name, text) PLAN_##name,
    PLAN_OP_MAP(X)
#undef X
        PLAN_OP_COUNT
};

/* Marks: places in a step where live bytes are reported, and the borders of segments. */
#define PLAN_MARK_MAP(X)                                                                           \
    X(START, "start")                                                                              \
    X(MICRO_BATCH, "micro_batch")                                                                  \
    X(AFTER_LOGITS, "after_logits")                                                                \
    X(AFTER_FORWARD, "after_forward")                                                              \
    X(BACKWARD_BLOCKS, "backward_blocks")                                                          \
    X(AFTER_BACKWARD, "after_backward")                                                            \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(AFTER_STEP, "after_step")                                                                    \
    X(END, "end")

enum plan_mark {
#define X(name, text) PLAN_MARK_##name,
    PLAN_MARK_MAP(X)
#undef X
        PLAN_MARK_COUNT
};

enum plan_phase { PLAN_FORWARD, PLAN_BACKWARD, PLAN_STEP };

/* The call of the sharding runtime that the host is inside of, for event lists and messages. */
enum plan_site { SITE_NONE, SITE_UNSHARD, SITE_WAIT_FOR_UNSHARD, SITE_RESHARD, SITE_REDUCE };
enum plan_outer { OUTER_NONE, OUTER_PRE_BACKWARD, OUTER_POST_BACKWARD };

enum { PLAN_FIRST_STEP = 1 }; /* flag: done in the first step only */

#define PLAN_NO_UNIT UINT16_MAX
#define PLAN_NO_GROUP UINT8_MAX

struct plan_instruction {
    uint8_t op;     /* enum plan_op */
    uint8_t stream; /* enum stream_id */
    uint8_t phase;  /* enum plan_phase */
    uint8_t site;   /* enum plan_site, of `unit` */
    uint8_t outer;  /* enum plan_outer, of `outer_unit` */
    uint8_t flags;
    uint8_t group; /* of collectives and the copies around them: index into groups */
    uint16_t unit, outer_unit;
    uint32_t
        arg; /* alloc, free: buffer; record, wait: event; mark: enum plan_mark; others: kernel */
    uint32_t base; /* of kernels: added to the operands' relative buffers */
};

struct plan_param { /* in the order of model.parameters() */
    const char *name;
    struct shape shape; /* (d, ...) unsharded */
    bool trainable;
    uint32_t unit;
    uint32_t shard_buffer;     /* resident, padded: ceil(d/N)·w elements of the store dtype */
    uint32_t unsharded_buffer; /* padded, compute dtype */
    struct shape local;        /* rows of this rank, without padding */
    uint32_t state_buffer[2];  /* exp_avg, exp_avg_sq; PLACE_NONE: no such state */
    uint32_t step_buffer;      /* the step counter; PLACE_NONE likewise */
    struct param_init init;
};

struct plan_input { /* int64 token ids: (b, s), or as one row */
    uint32_t buffer;
    struct input_values values;
};

struct plan_module_buffer {
    uint32_t buffer;
    struct buffer_values values;
};

struct plan_unit {                /* parameters gathered and reduced together: an FSDPParamGroup */
    const char *name;             /* "layers.0"; "" for the root */
    uint32_t first_param, params; /* range of unit_params */
};

struct plan_group {   /* ranks that take part in a collective */
    const char *name; /* "shard", "replicate", "shard/2" */
    uint32_t ranks;   /* in the group */
    uint32_t stride;  /* between neighbours: 1 for the shard mesh dim, N for the replicate one */
};

struct plan {
    struct arena arena; /* owns names */
    struct buffer *buffers;
    struct plan_instruction *instructions;
    struct kernel *kernels;
    struct operand *operands;
    struct plan_param *params;
    struct plan_unit *units;
    uint32_t *unit_params;
    struct plan_group groups[4];
    uint32_t buffer_count, instruction_count, kernel_count, operand_count;
    uint32_t buffer_cap, instruction_cap, kernel_cap, operand_cap;
    uint32_t param_count, unit_count, group_count, event_count;
    struct plan_input *inputs;                 /* PLACE_INPUT */
    struct plan_module_buffer *module_buffers; /* PLACE_MODULE_BUFFER */
    uint32_t input_count, module_buffer_count;
    const char *const *labels; /* names of kernel.label and buffer.label, by number */
    const char *const *kinds;  /* names of kernel.op; kinds[0] is "" */
    uint32_t label_count, kind_count;
    uint32_t world, rank;
    float loss_scale; /* backward starts from it in each micro-batch: losses are averaged */
};

struct plan *plan_new(void);
void plan_free(struct plan *plan); /* NULL is allowed */

/* Makes room for more at once; appending does without it, slower. */
void plan_reserve_buffers(struct plan *plan, uint32_t buffers);
void plan_reserve_instructions(struct plan *plan, uint32_t instructions);

/* Appends; each returns the index of what was added. */
uint32_t plan_add_buffer(struct plan *plan, const struct buffer *buffer);
uint32_t plan_add_instruction(struct plan *plan, const struct plan_instruction *instruction);
/* A kernel with absolute buffers (instructions that use it have base 0); operands are copied. */
uint32_t plan_add_kernel(struct plan *plan, unsigned label, uint32_t ins, const struct operand *in,
                         uint32_t outs, const struct operand *out);
/* An operand that is all of a buffer, in its shape at birth. */
struct operand plan_whole_buffer(const struct plan *plan, uint32_t buffer);

/* The buffer that an operand of an instruction means. */
uint32_t plan_operand_buffer(const struct plan *plan, const struct plan_instruction *instruction,
                             const struct operand *operand);

/* The first input of that kind; NULL: there is none. */
const struct plan_input *plan_input_of(const struct plan *plan, enum input_kind kind);

const char *plan_op_name(enum plan_op op);
const char *plan_mark_name(enum plan_mark mark);
const char *plan_phase_name(enum plan_phase phase); /* "fwd", "bwd", "opt" */
const char *plan_site_name(enum plan_site site);    /* "unshard"; "" for SITE_NONE */
const char *plan_outer_name(enum plan_outer outer); /* "pre_backward"; "" for OUTER_NONE */

/* What `arg` of an instruction is. */
static inline bool plan_op_is_kernel(enum plan_op op)
{
    return op != PLAN_ALLOC && op != PLAN_FREE && op != PLAN_RECORD && op != PLAN_WAIT &&
           op != PLAN_MARK;
}

/* Whether it needs a group. */
static inline bool plan_op_is_collective(enum plan_op op)
{
    return op == PLAN_ALL_GATHER || op == PLAN_REDUCE_SCATTER || op == PLAN_ALL_REDUCE ||
           op == PLAN_BROADCAST;
}

/* Whether it may name one: the copies around a collective are laid out by its ranks. */
static inline bool plan_op_may_have_group(enum plan_op op)
{
    return plan_op_is_collective(op) || op == PLAN_COPY_IN || op == PLAN_COPY_OUT;
}

/* "fwd", "bwd/pre_backward[layers.2]/unshard[layers.1]": where the host is. Writes into `text`
 * (size bytes, cut if too long) and returns it. */
const char *plan_site_text(const struct plan *plan, const struct plan_instruction *instruction,
                           char *text, size_t size);

/* "mm [256, 688] bfloat16": what a buffer is. Likewise. */
const char *plan_buffer_text(const struct plan *plan, const struct buffer *buffer, char *text,
                             size_t size);

/* Checks the program, in its first step and in a later one: every index is in range, buffers are
 * allocated when dead and freed when alive, operands are alive and lie within their buffers, waits
 * refer to recorded events, marks come in order, and at the end only resident buffers live.
 * ERR_INTERNAL names the first offending instruction. A plan that passes can be replayed, executed
 * and written without further checks. */
enum err_code plan_verify(const struct plan *plan, struct err *err);

#endif
