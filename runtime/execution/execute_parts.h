/* execute_parts.h - for the execute*.c files only: the state of an execution. */
#ifndef SHARDPLAN_EXECUTE_PARTS_H
#define SHARDPLAN_EXECUTE_PARTS_H

#include "runtime/execution/execute.h"
#include "runtime/execution/status.h"

struct put_off {                    /* kernels of a chain that have been passed */
    const struct fuse_chain *chain; /* NULL: none */
    uint32_t count;
    struct work_operand
        *operands[FUSE_MEMBERS]; /* where they were then, which may be freed by now */
    uint32_t room[FUSE_MEMBERS];
    struct err err; /* of a launch that nobody could be told of; code ERR_OK: none */
};

struct poisoned { /* a block that is to be */
    uint64_t address, bytes;
    uint8_t pool;
};

struct execution {
    const struct plan *plan;
    struct device *device;
    struct comm *comm;
    struct data *data;
    struct run_settings settings;
    struct allocator *allocator;
    struct deferred *deferred;
    bool *moved; /* (instructions) of a rehearsal whose kernels are waits: what is done all the
                    same (plan_list_moved); NULL: everything is */
    struct fusion *fusion; /* NULL: every kernel by itself */
    struct put_off put_off;
    bool *shared; /* for tests: (buffers) other lanes than the pool's reach it; NULL: no poison */
    struct poisoned *freed; /* since the last allocation of their pool */
    uint32_t freed_count, freed_cap;
    struct allocator_block **block;       /* (buffers) */
    void **host;                          /* (buffers) of the host's pool */
    struct allocator_block *workspace[2]; /* of matrix products: forward's thread, backward's */
    uint32_t scratch; /* the buffer that is a kernel's own workspace now; PLACE_NONE: none */
    struct work_operand *operands; /* scratch: as many as the widest kernel has */
    struct step_record *record;    /* (instructions) */
    double *param_norm;            /* (params) */
    char **batches;                /* (inputs) host memory of each, for all micro-batches */
    uint64_t scalars;              /* device address of our own fp32 scalars: losses, then norms */
    uint32_t micro_batches, micro_batch, step;
    uint32_t optimizer; /* the optimizer instruction */
    uint32_t *normed; /* (normed_count) parameters of which this rank has a part of the gradient */
    uint32_t normed_count;
    uint32_t *norm_at; /* (normed_count) the first instruction that scales or uses it */
    volatile struct rank_status *status;
    struct rank_status own_status;
    double start_s; /* of the step, on clock.h's clock */
    bool first_step;
    bool recorded; /* the next steps */
};

enum { SEGMENT_BYTES = 1 << 21 }; /* what segments of the device are multiples of */

/* ---- memory: execute_memory.c ---- */

/* Where a buffer is now; NULL: not allocated. */
void *execution_address(const struct execution *e, uint32_t buffer);
/* Allocates a buffer for `instruction`; ERR_NOMEM names what holds most. */
enum err_code execution_alloc(struct execution *e, uint32_t buffer, uint32_t instruction,
                              struct err *err);

/* ---- launching: execute_launch.c ---- */

/* The memory that a kernel may work in: the plan's own buffer for it, or for a matrix product its
 * thread's workspace, made at the first one as PyTorch's cuBLAS handles do (memory/replay.c). */
enum err_code execution_give_workspace(struct execution *e,
                                       const struct plan_instruction *instruction,
                                       struct work *work, struct err *err);

struct work_operand execution_operand(const struct execution *e,
                                      const struct plan_instruction *instruction,
                                      const struct operand *operand);
/* Launches kernel `id` on operands that lie where `operands` says (its ins and outs); NULL: where
 * the plan's buffers are now. */
enum err_code execution_launch(struct execution *e, uint32_t id,
                               const struct work_operand *operands, struct err *err);

/* ---- kernels that are waits: execute_rehearsal.c ---- */

/* Kernel `id`: is done if it only moves bytes, else takes its time. */
enum err_code execution_rehearse(struct execution *e, uint32_t id, struct err *err);
/* Writes zeros into all of a new segment and waits until they are there: it is memory by then,
 * whoever gives pages only to who writes to them. A failure is the next call's that can fail. */
void execution_touch(struct execution *e, uint64_t address, uint64_t bytes);

/* ---- chains of kernels as one: execute_fused.c ---- */

/* Kernel `id` belongs to a chain: puts it off, or launches all of it. */
enum err_code execution_put_off(struct execution *e, uint32_t id, struct err *err);
/* Launches what was put off one by one: its memory is about to go. A failure is the next
 * execution_put_off's. */
void execution_catch_up(struct execution *e);
void execution_close_put_off(struct execution *e);

/* ---- for tests: execute_poison.c ---- */

/* (buffers) Whether another lane than its pool's reaches it. The caller frees it. */
bool *execution_list_shared(const struct plan *plan);
/* At free `id`, before it; at allocation `id`, before it and behind it; at the end of a segment. */
void execution_poison_later(struct execution *e, uint32_t id);
enum err_code execution_poison_freed(struct execution *e, uint32_t id, struct err *err);
enum err_code execution_poison_new(struct execution *e, uint32_t id, struct err *err);
void execution_poison_forget(struct execution *e, uint64_t address, uint64_t bytes);

/* ---- which kernel of a library each product runs: execute_products.c ---- */

enum err_code execution_prepare_products(struct execution *e, struct err *err);

/* ---- what memory holds at first: execute_values.c ---- */

/* Checks that batches can be made of a data file's tokens, and makes room for them. */
enum err_code execution_open_batches(struct execution *e, struct err *err);
void execution_close_batches(struct execution *e);
/* Queues copies of the next sequences into the inputs, for the micro-batch that begins at
 * `instruction`. */
enum err_code execution_write_batch(struct execution *e, uint32_t instruction, struct err *err);

/* Queues zeros into a buffer of the device. */
enum err_code execution_zero(struct execution *e, uint32_t buffer, uint32_t instruction,
                             struct err *err);
/* Fills parameters and modules' buffers with what the plan says of them. */
enum err_code execution_fill(struct execution *e, struct err *err);

#endif
