/* fsdp2.h - for the fsdp2_*.c files only: the state of FSDP2 while a program is made. */
#ifndef SHARDPLAN_FSDP2_H
#define SHARDPLAN_FSDP2_H

#include "lower/lowering.h"

#define NONE PLACE_NONE

enum unit_state { SHARDED, UNSHARDED, SECONDARY };

struct unit {
    uint32_t first, params;             /* range of plan->unit_params */
    uint32_t first_module, last_module; /* MODULE_ROOT for the root */
    bool exists;                        /* has parameters */
    uint32_t post_ranks;                /* after forward: 0 keep, N reshard, k secondary shards */
    uint64_t shard_elements;            /* Σ c·w: padded elements of one shard */
    uint64_t trainable_shard_elements;
    uint32_t last_trainable; /* parameter; NONE: all frozen */
#define NONE PLACE_NONE

    enum unit_state state;
    bool pending;    /* a gather was issued and not waited for */
    uint32_t gather; /* its output, NONE when N is 1 */
    uint32_t gather_event;
    uint8_t gather_group; /* ranks it gathers from */
    bool post_backward_ran;
    bool accumulated;                 /* unsharded gradients are held in the reduce dtype */
    uint32_t sharded_grad;            /* buffer that the parameters' .grad view */
    uint32_t all_reduce_held;         /* HSDP: reduce output kept until finalize */
    uint32_t indices[4], index_count; /* into the post-forward order */
    uint32_t forward_list[16], forward_list_count; /* explicit prefetch */
    uint32_t backward_list[16], backward_list_count;
    bool has_backward_list;
};

struct fsdp2 {
    struct lowering low;
    const struct graph *graph;
    const struct stream *stream; /* NULL: only the summary, for a tally */
    const struct stream_summary *summary;
    struct unit *units; /* [0] is the root */
    uint32_t unit_count;
    uint32_t *module_unit; /* (modules) unit that wraps the module, or NONE */
    uint32_t shard_ranks;  /* N */
    uint32_t shard_rank;
    uint32_t replicas; /* R */
    uint8_t shard_group, replicate_group, post_group;
    uint32_t *secondary;   /* (params) secondary shard buffer */
    uint32_t *grad;        /* (params) unsharded gradient of this backward */
    uint32_t *accumulated; /* (params) held gradient: in the reduce dtype, or the plain .grad */
    uint32_t previous_gather, previous_event; /* forward: the comm context's AllGatherState */
    uint32_t *order, order_count;             /* post_forward_order */
    uint32_t retained, retained_event;        /* the last reduce-scatter input */
    uint32_t base;       /* first plan buffer of this micro-batch's stream buffers */
    uint32_t first_grad; /* tally: first of one buffer a parameter, for its gradient */
    bool sync;           /* this micro-batch reduces */
};
/* ---- small things: fsdp2.c ---- */

/* The i-th parameter of a unit, in the order of the flat buffers. */
static inline uint32_t param_index(const struct fsdp2 *f, const struct unit *unit, uint32_t i)
{
    return f->low.plan->unit_params[unit->first + i];
}

static inline struct plan_param *param_of(const struct fsdp2 *f, const struct unit *unit,
                                          uint32_t i)
{
    return &f->low.plan->params[param_index(f, unit, i)];
}

static inline uint32_t unit_index(const struct fsdp2 *f, const struct unit *unit)
{
    return (uint32_t)(unit - f->units);
}

/* Elements of a parameter padded to `ranks` equal chunks of rows. */
uint64_t padded_elements(const struct shape *shape, uint32_t ranks);
/* A one-dimensional shape. */
struct shape flat(uint64_t elements);
/* Names the outer hook that the host is inside of; likewise. */
struct plan_instruction enter_outer(struct fsdp2 *f, enum plan_outer outer,
                                    const struct unit *unit);
/* Names the call that the host is inside of; returns what to hand to leave_site. */
struct plan_instruction enter_site(struct fsdp2 *f, enum plan_site site, const struct unit *unit);
void leave_site(struct fsdp2 *f, struct plan_instruction before);

/* ---- units, parameters, inputs: fsdp2_units.c ---- */

/* Checks what the strategy asks of the mesh. */
enum err_code fsdp2_check(const struct strategy *strategy, struct err *err);
/* Chooses units and declares everything that is there before the first step. */
void fsdp2_set_up(struct fsdp2 *f);

/* ---- all-gather and reshard: fsdp2_gather.c ---- */

void unshard(struct fsdp2 *f, struct unit *unit);
void wait_for_unshard(struct fsdp2 *f, struct unit *unit, bool forward);
void reshard_after_forward(struct fsdp2 *f, struct unit *unit);
void reshard_after_backward(struct fsdp2 *f, struct unit *unit);
/* The copy-in and all-gather streams wait for an event that gates reuse of a gather output. */
void release_gather(struct fsdp2 *f, uint32_t event);

/* ---- gradients: fsdp2_reduce.c ---- */

void post_backward(struct fsdp2 *f, struct unit *unit);
/* The compute stream waits for the reduction of the retained input, which then dies. */
void release_retained(struct fsdp2 *f);
/* zero_grad(set_to_none=True). */
void zero_grad(struct fsdp2 *f);

#endif
