/* start_up_parts.h - for the start_up*.c files only: how a way's program is written, and the table
 * of ways that each system has.
 *
 *     start_up_fsdp2.c    fully_shard, torch.distributed.checkpoint
 *     start_up_fsdp1.c    FullyShardedDataParallel and its state_dict types
 *     start_up_ddp.c      DistributedDataParallel, torch.save and torch.load
 *     start_up_zero.c     DeepSpeed's engine and its checkpoints */
#ifndef SHARDPLAN_START_UP_PARTS_H
#define SHARDPLAN_START_UP_PARTS_H

#include "job/start_up_program.h"

enum { NONE = UINT32_MAX };

struct program {
    const struct start_up_job *job;
    const struct plan *of; /* the step's plan */
    struct plan *plan;     /* what is written */
    bool tied, first, has_states;
    uint8_t world;       /* group of all ranks */
    uint32_t *full;      /* (params) the whole parameter, while it is there */
    uint32_t *shard;     /* (params) the rank's part */
    uint32_t *secondary; /* (params) hpZ's; NONE */
    uint32_t *kept;      /* (the step's buffers) the same buffer here, of a checkpoint; NONE */
    bool *gone;          /* (the step's buffers) let go for good: they come back behind the end */
    uint32_t *buffers;   /* (module buffers) on the host, until they are moved */
    uint32_t *alive;     /* of buffers, in the order of birth; NONE: dead */
    uint32_t alive_count, alive_cap;
};

/* A way as one system goes it. */
struct start_up_method {
    enum start_up_way way;
    const char *title;
    void (*write)(struct program *p, enum start_up_way way);
    /* Bytes that a rank reads or writes; NULL: nobody does. */
    uint64_t (*files)(const struct start_up_job *job, enum start_up_way way, uint32_t rank);
    bool fresh; /* the optimizer has no states yet */
};

/* Those of each system; each ends with a NULL title. */
extern const struct start_up_method start_up_fsdp2_methods[], start_up_fsdp1_methods[],
    start_up_ddp_methods[], start_up_single_methods[], start_up_zero12_methods[],
    start_up_zero3_methods[];

/* ---- births, deaths, moves ---- */

uint32_t start_up_buffer(struct program *p, uint8_t pool, enum category category, enum dtype dtype,
                         uint64_t elements);
void start_up_emit(struct program *p, enum plan_op op, uint32_t arg, uint8_t group);
uint32_t start_up_born(struct program *p, uint8_t pool, enum category category, enum dtype dtype,
                       uint64_t elements);
void start_up_dies(struct program *p, uint32_t buffer);
void start_up_move(struct program *p, enum plan_op op, enum work_kind work, uint32_t from,
                   uint32_t to, uint8_t group);
void start_up_copy(struct program *p, enum plan_op op, uint32_t from, uint32_t to);
/* A buffer of the step's, which a checkpoint finds there, dies: something takes its place. */
void start_up_let_go(struct program *p, uint32_t buffer);
/* A storage on the host for as long as it takes to write it: torch.save's. */
void start_up_stage(struct program *p, enum dtype dtype, uint64_t elements);

/* ---- parameters ---- */

const struct plan_piece *start_up_store(const struct program *p, uint32_t param);
enum dtype start_up_dtype(const struct plan *plan, const struct plan_piece *piece);
uint64_t start_up_elements(const struct plan *plan, uint32_t param);
/* Elements that a rank has of a piece; that every rank sets aside for it. */
uint64_t start_up_own(const struct plan *plan, const struct plan_piece *piece, uint32_t rank);
uint64_t start_up_padded(const struct plan *plan, const struct plan_piece *piece);
/* In the dtype that the model is made in. */
void start_up_whole_param(struct program *p, uint32_t param, uint8_t pool);
/* The parameter that a state dict names twice; NONE. */
uint32_t start_up_tied(const struct plan *plan, bool tied);
/* Buffers of modules: `made`, if not NULL, receives them. */
void start_up_module_buffers(struct program *p, uint8_t pool, uint32_t *made);
void start_up_construct(struct program *p, uint8_t pool, uint32_t *buffers);
/* To the device, each by itself. */
void start_up_move_param(struct program *p, uint32_t param);
void start_up_move_buffers(struct program *p, const uint32_t *from);
/* _broadcast_coalesced of tensors (`elements` of `dtypes`): in buckets, of which two are under way.
 */
void start_up_broadcast(struct program *p, uint8_t group, uint32_t count, const enum dtype *dtypes,
                        const uint64_t *elements);

#endif
