/* fsdp2.h - for the fsdp2_*.c files only: the state of FSDP2 while a program is made. */
#ifndef SHARDPLAN_FSDP2_H
#define SHARDPLAN_FSDP2_H

#include "lower/units.h"

enum unit_state { SHARDED, UNSHARDED, SECONDARY };
enum { PREFETCH_MOST = 16, USES_MOST = 4 };

struct mesh { /* what fully_shard is called with: replicas × shard_ranks */
    uint32_t shard_ranks, replicas;
    uint8_t shard_group, replicate_group;
};

/* What units alike (their parameters have the same shapes) issue on buffers of their own: an
 * outline has one kernel of each (emit_again). NONE: not yet. */
struct gather_kernels {
    uint32_t cast, copy_in, all_gather;
    uint64_t cast_elements; /* 0: nothing is cast */
};

struct unit_kernels {
    struct gather_kernels gather[2]; /* [1]: of secondary shards */
    uint32_t copy_out, reduce_scatter, all_reduce, cast;
    uint32_t chunk_cat; /* of all gradients, each of this dtype */
    enum dtype gradients;
};

/* What units of one root share (FSDPCommContext). */
struct comm {
    uint8_t copy_in, all_gather;              /* lanes */
    uint32_t previous_gather, previous_event; /* forward: its AllGatherState; NONE: there is none */
};

struct unit { /* an FSDPParamGroup */
    uint32_t index;
    const struct mesh *mesh;
    struct comm *comm;
    const uint32_t *params; /* (count) in the order of the flat buffers */
    uint32_t count;
    uint32_t post_ranks;          /* after forward: 0 keep, N reshard, k secondary shards */
    uint64_t shard_elements;      /* Σ padded elements of a shard */
    uint64_t trained_elements;    /* the same of trainable parameters */
    uint32_t last_trainable;      /* parameter; NONE: all frozen */
    bool in_backward;             /* backward comes to it: its outputs need a gradient */
    struct unit_kernels *kernels; /* of all units like it */
    const struct unit *like;      /* the first of those; NULL: it is the first */
    struct bundle unsharded;      /* gathered parameters, in that order */

    enum unit_state state;
    bool pending;    /* a gather was issued and not waited for */
    uint32_t gather; /* its output, NONE when N is 1 */
    uint32_t gather_event;
    uint32_t reshard_event; /* SECONDARY: its shards are made */
    uint32_t scales_event;  /* gathered in float8: nobody reads its scales any more; or NONE */
    uint8_t gather_group;   /* ranks it gathers from */
    bool post_backward_ran;
    bool open;             /* forward has come to its first module, and not behind its last */
    bool at_root;          /* ... nor did it before the root returned */
    bool in_pre_backward;  /* backward has come to it: a checkpoint that runs it again finds its
                              parameters there, and its hooks of forward do nothing */
    bool accumulated;      /* unsharded gradients are held in the reduce dtype */
    uint32_t sharded_grad; /* buffer that the parameters' .grad view */
    uint32_t all_reduce_held, all_reduce_event; /* HSDP: reduce output kept until finalize */
    uint32_t partial;                           /* HSDP: reduced, not yet over the replicas */
    uint32_t reduce_event;                      /* its last reduction is done, not yet waited for */
    bool not_in_backward;                       /* backward does not gather it */
    uint32_t indices[USES_MOST], index_count;   /* into the post-forward order */
    uint32_t forward_list[PREFETCH_MOST], forward_list_count; /* explicit prefetch */
    uint32_t backward_list[PREFETCH_MOST], backward_list_count;
};

struct retained {
    uint32_t buffer, event; /* it is reduced */
};

struct fsdp2 {
    struct wrapping wrapping;
    struct unit *units;            /* [0] is the root */
    uint32_t *blocks, block_count; /* units of blocks, in order */
    struct mesh mesh, experts;     /* of all units but experts', and of those */
    uint8_t post_group;
    struct comm comm, beside;           /* of the model; of another, which is a root itself */
    uint8_t reduce_scatter, all_reduce; /* lanes */
    uint64_t *padded;                   /* (params) elements of a shard */
    uint32_t *unsharded;                /* (params) buffer of the gathered piece */
    uint32_t *store;                    /* (params) buffer of the shard */
    uint32_t *secondary;                /* (params) secondary shard buffer */
    uint32_t *offload_event;            /* (params) its gradient is on the host; or NONE */
    uint32_t *host_grad;                /* (params) offloaded: its .grad; or NONE */
    uint32_t *accumulated;              /* (params) held gradient in the reduce dtype */
    struct operand *reduced;            /* (params) room: gradients that are reduced now, and ... */
    uint32_t *reduced_params, *reduced_buffers; /* ... whose they are, which die */
    bool in_blocks; /* backward has come to the first unit besides the root and the tail; one whose
                       parameters are all ignored has no hooks */
    uint32_t *order, order_count; /* post_forward_order */
    struct retained *retained;    /* inputs of reduce-scatters, oldest first */
    uint32_t retained_count, retained_most;
    uint32_t last_reduced[2]; /* comm_ctx._last_post_reduce_events: of the reduce-scatter's lane and
                                 of the all-reduce's; NONE: waited for */
};

static inline struct fsdp2 *fsdp2_of(const struct lowering *low)
{
    return low->state;
}

/* Whether this micro-batch is the last of a step. */
static inline bool is_last_micro_batch(const struct lowering *low)
{
    return low->micro_batch + 1 == low->strategy->accumulate;
}

/* The mesh of a parameter's unit. */
static inline const struct mesh *mesh_of(const struct lowering *low, uint32_t param)
{
    return fsdp2_of(low)->units[low->plan->params[param].unit].mesh;
}

/* Elements of a parameter's shard, padding included. */
static inline uint64_t padded_shard(const struct lowering *low, uint32_t param)
{
    return fsdp2_of(low)->padded[param];
}

/* ---- units, parameters: fsdp2_units.c ---- */

/* Gives borders to modules within blocks that are to be units. */
void fsdp2_prepare(const struct strategy *s, struct graph *graph);
enum err_code fsdp2_check(const struct strategy *strategy, const struct graph *graph,
                          const struct stream *stream, struct err *err);
void fsdp2_set_up(struct lowering *low);

/* How a parameter is spread over the shard group. */
static inline struct placement fsdp2_placement(const struct lowering *low, uint32_t param)
{
    const bool columns = low->strategy->columns && low->plan->params[param].shape.rank > 1;
    return (struct placement){.kind = columns ? PLACEMENT_COLUMNS : PLACEMENT_ROWS};
}

/* ---- shards by columns: fsdp2_columns.c ---- */

/* Whether there is anything to join and cut. */
bool is_by_columns(const struct lowering *low, uint32_t param);
/* `gathered` (unit->count): what was copied out of the gather for each parameter; where that is not
 * the unsharded parameter, it becomes that and dies. */
void join_columns(struct lowering *low, const struct unit *unit, const uint32_t *gathered);
/* Replaces gradients (count) by ones whose rows are chunks. Returns the buffer of the last that was
 * replaced, which is still alive; NONE: there is none. */
uint32_t cut_columns(struct lowering *low, const uint32_t *params, struct operand *grads,
                     uint32_t count);

/* ---- all-gather and reshard: fsdp2_gather.c ---- */

void unshard(struct lowering *low, struct unit *unit);
void wait_for_unshard(struct lowering *low, struct unit *unit, bool forward);
void reshard_after_forward(struct lowering *low, struct unit *unit);
void reshard_after_backward(struct lowering *low, struct unit *unit);
/* The copy-in and all-gather streams wait for an event that gates reuse of a gather output. */
void release_gather(struct lowering *low, const struct comm *comm, uint32_t event);

/* ---- weights in float8: fsdp2_float8.c ---- */

enum err_code fsdp2_check_float8(const struct strategy *s, const struct graph *graph,
                                 struct err *err);
bool is_in_float8(const struct lowering *low, uint32_t param);
bool has_float8(const struct lowering *low, const struct unit *unit);
/* What of a parameter's shard is gathered: a new buffer. */
uint32_t cast_to_float8(struct lowering *low, const struct unit *unit, uint32_t param);
void precompute_scales(struct lowering *low);

/* ---- gradients: fsdp2_reduce.c ---- */

void post_backward(struct lowering *low, struct unit *unit);
bool fsdp2_casts_gradient(const struct lowering *low, uint32_t param, enum dtype from,
                          enum dtype *to);
/* The host waits until the unit's gradients are there. */
void wait_for_offload(struct lowering *low, const struct unit *unit);
/* The compute stream waits for the reductions of all retained inputs, which then die. */
void release_retained(struct lowering *low);
/* zero_grad(set_to_none=True). */
void fsdp2_zero_grad(struct lowering *low);

#endif
