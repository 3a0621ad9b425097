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
 * A free is issued where the host drops the last reference. It names the lane that the buffer was
 * allocated on; or another one, whose work still uses the memory (PyTorch's record_stream): then
 * the buffer is gone, but its block comes back to the pool only when that lane is done with it
 * (memory/deferred.h). A `use` before such a free names one lane more that has to be done.
 *
 * The program is one step that can be repeated. `resident` buffers (sharded parameters, optimizer
 * states, inputs) are allocated once: before the first step, or by instructions flagged
 * PLAN_FIRST_STEP in it, as PyTorch's optimizers do. A step may free one, and allocates it again
 * then before it ends. A `carried` buffer (a gradient that outlives zero_grad) goes
 * from one step into the next, which frees it, PLAN_LATER_STEPS, and allocates it again. Everything
 * else is freed by the step's end.
 *
 * lower/lowering.h writes plans. plan_verify says whether one can be run at all, memory/replay.h
 * what it takes, simulate/simulate.h how long; runtime/execution/execute.h runs it. The file is
 * plan_json.h's.
 *
 * This folder includes nothing of the others but base/. */
#ifndef SHARDPLAN_PLAN_H
#define SHARDPLAN_PLAN_H

#include "base/arena.h"
#include "base/err.h"
#include "base/kernel_table.h"
#include "base/placement.h"
#include "base/values.h"

#include <stdbool.h>
#include <stdint.h>

#define PLAN_OP_MAP(X)                                                                             \
    X(ALLOC, "alloc")                                                                              \
    X(FREE, "free")                                                                                \
    X(USE, "use")                                                                                  \
    X(COMPUTE, "compute")                                                                          \
    X(COPY_IN, "copy_in")                                                                          \
    X(ALL_GATHER, "all_gather")                                                                    \
    X(COPY_OUT, "copy_out")                                                                        \
    X(REDUCE_SCATTER, "reduce_scatter")                                                            \
    X(ALL_REDUCE, "all_reduce")                                                                    \
    X(BROADCAST, "broadcast")                                                                      \
    X(ALL_TO_ALL, "all_to_all")                                                                    \
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

/* Marks: places in a step where live bytes are reported, and the borders of its parts. */
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

enum {                      /* flags */
       PLAN_FIRST_STEP = 1, /* done in the first step only */
       PLAN_SPAN = 2, /* of an outline (lower/outline.h), never of a plan that is written or run:
                         `base` kernels one after the other, from place `arg` in the order of the
                         stream's kernels */
       PLAN_LATER_STEPS = 4 /* done in every step but the first */
};

#define PLAN_NO_UNIT UINT32_MAX
#define PLAN_NO_GROUP UINT8_MAX

struct plan_instruction {
    uint8_t op;    /* enum plan_op */
    uint8_t lane;  /* index into lanes */
    uint8_t phase; /* enum plan_phase */
    uint8_t flags;
    uint8_t group;  /* of collectives and the copies around them: index into groups */
    uint32_t scope; /* where the host is: index into scopes */
    uint32_t arg;   /* alloc, free, use: buffer; record, wait: event; mark: enum plan_mark; others:
                       kernel */
    uint32_t base;  /* of kernels: added to the operands' relative buffers */
};

/* What a run of a parameter's elements is for. A rank has at most one of each role. */
#define PIECE_ROLE_MAP(X)                                                                          \
    X(STORE, "store")         /* the parameter as the system keeps it between steps */             \
    X(GATHERED, "gathered")   /* the copy that kernels compute with, while it is there */          \
    X(SECONDARY, "secondary") /* a shard of fewer ranks, between forward and backward */           \
    X(MASTER, "master")       /* what the optimizer updates, where that is not the store */        \
    X(GRADIENT, "gradient")   /* what the optimizer reads */                                       \
    X(EXP_AVG, "exp_avg")                                                                          \
    X(EXP_AVG_SQ, "exp_avg_sq")

enum piece_role {
#define X(name, text) PIECE_##name,
    PIECE_ROLE_MAP(X)
#undef X
        PIECE_ROLES
};

/* Elements of one parameter in one buffer: which ones, follows from the placement for every rank of
 * the group; they lie one after the other. Shards, flat parameters, partitions and whole copies are
 * all pieces. */
struct plan_piece {
    uint32_t param, buffer;
    uint64_t offset; /* elements of the buffer before it (flat: before the rank's vector) */
    struct placement placement;
    uint8_t role;  /* enum piece_role */
    uint8_t group; /* over which it is spread; PLAN_NO_GROUP: one rank has all */
};

struct plan_param { /* in the order of model.parameters() */
    const char *name;
    struct shape shape; /* (d, ...) whole */
    bool trainable;
    bool beside; /* of another model, which is never trained, and no part of this one's states */
    uint32_t packed; /* numbers of the model in each of its elements, which stand for them in 4
                        bits; 0: they are these */
    uint32_t unit;
    uint32_t piece[PIECE_ROLES]; /* by role: index into pieces, PLACE_NONE: it has none */
    uint32_t step_buffer;        /* the optimizer's step counter; PLACE_NONE likewise */
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

struct plan_unit {                /* parameters gathered and reduced together */
    const char *name;             /* "layers.0"; "" for the root */
    uint32_t first_param, params; /* range of unit_params */
};

/* The name of the last unit where some parameters are in none (strategy.ignore): those. */
#define PLAN_UNIT_IGNORED "ignored"

/* Why ranks talk to each other. */
#define GROUP_ROLE_MAP(X)                                                                          \
    X(DATA, "data")           /* each has a whole copy: gradients are averaged over them */        \
    X(SHARD, "shard")         /* each has a part of every parameter */                             \
    X(REPLICATE, "replicate") /* each has the same part */                                         \
    X(RESHARD, "reshard")     /* of a shard group, those that share secondary shards */

enum group_role {
#define X(name, text) GROUP_##name,
    GROUP_ROLE_MAP(X)
#undef X
        GROUP_ROLES
};

struct plan_group { /* ranks that take part in a collective */
    const char *name;
    uint8_t role;    /* enum group_role */
    uint32_t ranks;  /* in the group */
    uint32_t stride; /* between neighbours: 1 for the shard mesh dim, N for the replicate one */
};

struct plan_scope {   /* a place in the sharding system's code */
    const char *text; /* "pre_backward[layers.2]/unshard[layers.1]"; "" for the model's own code */
    uint32_t unit;    /* that the innermost call is about; PLAN_NO_UNIT: none */
};

struct plan_module_span { /* from `first` on the host is in that module (plan/modules.h) */
    uint32_t first;       /* instruction */
    const char *name;     /* "layers.0"; "" for the root, and outside of it */
};

struct plan_micro_batch { /* what a step's micro-batch begins with: the next of each */
    uint32_t instruction, buffer, event;
};

struct plan {
    struct arena arena; /* owns names, pieces' tables and operands of the plan's own kernels */
    const char *system; /* "fsdp2" */
    struct buffer *buffers;
    struct plan_instruction *instructions;
    struct kernel_table *shared; /* kernels 0 ... of the stream it was lowered from; NULL: none */
    struct kernel *kernels;      /* ... and its own after them: plan_kernel */
    struct plan_param *params;
    struct plan_piece *pieces;
    struct plan_unit *units;
    uint32_t *unit_params;
    struct plan_group *groups;
    struct lane_info lanes[LANES_MOST]; /* the first two: LANE_COMPUTE, LANE_HOST */
    struct plan_scope *scopes;          /* [0]: the model's own code */
    uint32_t buffer_count, instruction_count, kernel_count, piece_count, group_count, lane_count;
    uint32_t buffer_cap, instruction_cap, kernel_cap, piece_cap, group_cap, scope_count, scope_cap;
    uint32_t shared_count; /* kernels that are not its own */
    uint32_t param_count, unit_count, event_count;
    struct plan_input *inputs;                 /* PLACE_INPUT */
    struct plan_module_buffer *module_buffers; /* PLACE_MODULE_BUFFER */
    uint32_t input_count, module_buffer_count;
    const char *const *labels; /* names of kernel.label and buffer.label, by number */
    const char *const *kinds;  /* names of kernel.op; kinds[0] is "" */
    uint32_t label_count, kind_count;
    uint32_t world, rank;
    struct plan_module_span *module_spans;
    uint32_t module_span_count, module_span_cap;
    bool modules_known; /* the spans are each instruction's own module, as a file has them: nothing
                           is left to be found in parameters */
    struct plan_micro_batch *micro_batches; /* none where it was read from a file, unless it repeats
                                             */
    uint32_t micro_batch_count, micro_batch_cap;
    uint32_t repeats; /* so often again does a step issue the micro-batch before the last
                         (plan/repeat.h); 0 in a plan that is run */
    /* Of gathered parameters that were released while nodes held views of them: most bytes at once,
     * and of the largest one. Not in a file. */
    uint64_t saved_views_bytes, saved_view_bytes;
    /* Where the plan is run, managed memory has not room on the device for all its pages: an update
     * takes them from the host, and others go there (predict.h). Not in a file. */
    bool pages_move;
    bool own_programs; /* each rank has a program of its own: others do not follow from this one */
};

/* An empty plan with the two lanes that all have, and the scope of the model's own code. */
struct plan *plan_new(void);
void plan_free(struct plan *plan); /* NULL is allowed */
/* Empties it, as a new one, and keeps its memory for the next program. */
void plan_clear(struct plan *plan);

/* Makes room for more at once; appending does without it, slower. */
void plan_reserve_buffers(struct plan *plan, uint32_t buffers);
void plan_reserve_instructions(struct plan *plan, uint32_t instructions);

/* Appends; each returns the index of what was added. Names are lent for the plan's life. */
uint32_t plan_add_buffer(struct plan *plan, const struct buffer *buffer);
uint32_t plan_add_instruction(struct plan *plan, const struct plan_instruction *instruction);
/* The same, to be filled in where it is: for those who add thousands. */
static inline struct buffer *plan_push_buffer(struct plan *plan)
{
    ARRAY_GROW(plan->buffers, plan->buffer_count, plan->buffer_cap);
    return &plan->buffers[plan->buffer_count++];
}

static inline struct plan_instruction *plan_push_instruction(struct plan *plan)
{
    ARRAY_GROW(plan->instructions, plan->instruction_count, plan->instruction_cap);
    return &plan->instructions[plan->instruction_count++];
}

struct plan_piece *plan_push_piece(struct plan *plan, uint32_t param, enum piece_role role);
/* Room for a kernel's operands, ins then outs, to be filled in whole; and the kernel then. */
struct operand *plan_push_operands(struct plan *plan, uint32_t count);
uint32_t plan_push_kernel(struct plan *plan, enum work_kind work, unsigned label, uint32_t ins,
                          uint32_t outs, struct operand *operands);

uint8_t plan_add_lane(struct plan *plan, const char *name, bool urgent);
uint8_t plan_add_group(struct plan *plan, const char *name, enum group_role role, uint32_t ranks,
                       uint32_t stride);
void plan_add_module_span(struct plan *plan, const char *name);
/* A micro-batch begins with what is added next. */
void plan_note_micro_batch(struct plan *plan);
uint32_t plan_add_scope(struct plan *plan, const char *text, uint32_t unit);
/* A piece of param `piece->param`, which has none of that role yet. */
uint32_t plan_add_piece(struct plan *plan, const struct plan_piece *piece);
/* A kernel with absolute buffers (instructions that use it have base 0); operands are copied. */
uint32_t plan_add_kernel(struct plan *plan, enum work_kind work, unsigned label, uint32_t ins,
                         const struct operand *in, uint32_t outs, const struct operand *out);
/* Makes the kernels of a closed table the plan's first ones: before any of its own. One holder. */
void plan_share_kernels(struct plan *plan, struct kernel_table *table);

static inline const struct kernel *plan_kernel(const struct plan *plan, uint32_t index)
{
    return index < plan->shared_count ? &plan->shared->kernels[index]
                                      : &plan->kernels[index - plan->shared_count];
}

/* A kernel that is the plan's own, to be changed. */
struct kernel *plan_own_kernel(struct plan *plan, uint32_t index);

/* An operand that is all of a buffer, in its shape at birth. */
static inline void plan_set_whole_buffer(const struct plan *plan, uint32_t buffer,
                                         struct operand *out)
{
    const struct buffer *b = &plan->buffers[buffer];
    *out = (struct operand){
        .place = PLACE_BUFFER | buffer, .dtype = b->dtype, .local = b->local, .shape = b->shape};
}
struct operand plan_whole_buffer(const struct plan *plan, uint32_t buffer);

/* ---- where things are ---- */

struct plan_place {
    uint32_t buffer;
    uint64_t offset; /* elements of the operand's dtype */
};

/* What an operand of an instruction means. A parameter is where kernels compute with it: its
 * gathered piece, or the store where it has none. */
struct plan_place plan_operand_place(const struct plan *plan,
                                     const struct plan_instruction *instruction,
                                     const struct operand *operand);

/* A parameter's piece of a role; NULL: it has none. */
static inline const struct plan_piece *plan_piece(const struct plan *plan, uint32_t param,
                                                  enum piece_role role)
{
    const uint32_t index = plan->params[param].piece[role];
    return index == PLACE_NONE ? NULL : &plan->pieces[index];
}

/* Elements that the model has of it. */
static inline uint64_t plan_param_elements(const struct plan *plan, uint32_t param)
{
    const struct plan_param *p = &plan->params[param];
    return shape_elements(&p->shape) * (p->packed ? p->packed : 1);
}

/* What the optimizer updates: the master piece, or the store. Every parameter has one. */
const struct plan_piece *plan_updated_piece(const struct plan *plan, uint32_t param);

/* The elements that a piece has on a rank, by its placement. `rank`: of the world. */
struct part plan_part(const struct plan *plan, const struct plan_piece *piece, uint32_t rank);

/* A piece as an operand on this rank: its part's shape. */
struct operand plan_piece_operand(const struct plan *plan, const struct plan_piece *piece);

/* Of a piece, the elements that this rank updates: all of it where it is placed as what is updated,
 * else (a whole gradient) that part of it. The parameter has such a piece. */
struct operand plan_updated_operand(const struct plan *plan, uint32_t param, enum piece_role role);

/* The shape of a parameter's step counter on this rank: one number, or none where another rank owns
 * the parameter's states, or has all of it of a flat vector. */
struct shape plan_step_shape(const struct plan *plan, uint32_t param);

/* Ranks of a group (1: PLAN_NO_GROUP), and the place of a rank of the world in it. */
uint32_t plan_group_ranks(const struct plan *plan, uint8_t group);
uint32_t plan_group_rank(const struct plan *plan, uint8_t group, uint32_t rank);
/* The first group of a role; PLAN_NO_GROUP: none. */
uint8_t plan_group_of_role(const struct plan *plan, enum group_role role);
/* Parameters of the model that is trained: the first ones (plan_param.beside). */
uint32_t plan_own_params(const struct plan *plan);

/* A lane by name; LANES_MOST: none. */
uint32_t plan_lane_named(const struct plan *plan, const char *name);

/* The first input of that kind; NULL: there is none. */
const struct plan_input *plan_input_of(const struct plan *plan, enum input_kind kind);

/* (buffers) Whether each is there before the first step: resident, and not first allocated. The
 * caller owns it: free. */
bool *plan_initial_buffers(const struct plan *plan);

/* ---- names ---- */

const char *plan_op_name(enum plan_op op);
const char *plan_mark_name(enum plan_mark mark);
const char *plan_phase_name(enum plan_phase phase); /* "fwd", "bwd", "opt" */
const char *plan_role_name(enum piece_role role);
const char *plan_group_role_name(enum group_role role);

/* What `arg` of an instruction is. */
static inline bool plan_op_is_kernel(enum plan_op op)
{
    return op != PLAN_ALLOC && op != PLAN_FREE && op != PLAN_USE && op != PLAN_RECORD &&
           op != PLAN_WAIT && op != PLAN_MARK;
}

/* Whether it is issued in the first step, or in a later one. */
static inline bool plan_is_issued(const struct plan_instruction *instruction, bool first_step)
{
    return !(instruction->flags & (first_step ? PLAN_LATER_STEPS : PLAN_FIRST_STEP));
}

/* Of a free: whether another lane than the pool's still uses the memory. */
static inline bool plan_free_is_deferred(const struct plan *plan,
                                         const struct plan_instruction *instruction)
{
    return instruction->lane != plan->buffers[instruction->arg].pool;
}

/* Whether it needs a group. */
static inline bool plan_op_is_collective(enum plan_op op)
{
    return op == PLAN_ALL_GATHER || op == PLAN_REDUCE_SCATTER || op == PLAN_ALL_REDUCE ||
           op == PLAN_BROADCAST || op == PLAN_ALL_TO_ALL;
}

/* Whether it may name one: the copies around a collective are laid out by its ranks. */
static inline bool plan_op_may_have_group(enum plan_op op)
{
    return plan_op_is_collective(op) || op == PLAN_COPY_IN || op == PLAN_COPY_OUT;
}

/* "fwd", "bwd/pre_backward[layers.2]/unshard[layers.1]": where the host is. Writes into `text`
 * (size bytes, cut if too long) and returns it. */
const char *plan_scope_text(const struct plan *plan, const struct plan_instruction *instruction,
                            char *text, size_t size);
/* The unit that the host is busy with; PLAN_NO_UNIT: none. */
static inline uint32_t plan_scope_unit(const struct plan *plan,
                                       const struct plan_instruction *instruction)
{
    return plan->scopes[instruction->scope].unit;
}

/* "mm [256, 688] bfloat16": what a buffer is. Likewise. */
const char *plan_buffer_text(const struct plan *plan, const struct buffer *buffer, char *text,
                             size_t size);

/* Checks the program, in its first step and in a later one: every index is in range, buffers are
 * allocated when dead and freed when alive, operands are alive and lie within their buffers, waits
 * refer to recorded events, marks come in order, at the end only resident and carried buffers live,
 * and lanes that share memory are kept apart (plan/order.h).
 * ERR_INTERNAL names the first offending instruction. A plan that passes can be replayed, executed
 * and written without further checks. */
enum err_code plan_verify(const struct plan *plan, struct err *err);

#endif
