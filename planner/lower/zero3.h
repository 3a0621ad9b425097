/* zero3.h - the state of ZeRO stage 3: for zero3*.c only.
 *
 *     zero3.c          what there is, hooks, gradients
 *     zero3_fetch.c    the coordinator: gathers and releases by its trace
 *     zero3_trace.c    ... that trace
 *     zero3_quantize.c what is gathered in 8 bits
 *     zero3_qgz.c      what is reduced in 4 bits
 *     zero3_leaf.c     modules that are fetched as one
 *     zero3_whole.c    reductions without reduce_scatter
 *     zero3_step.c     the step */
#ifndef SHARDPLAN_ZERO3_H
#define SHARDPLAN_ZERO3_H

#include "graph/calls.h"
#include "lower/zero.h"

enum zero3_status { ZERO3_PARTITIONED, ZERO3_IN_FLIGHT, ZERO3_AVAILABLE };

/* Parameters of one dtype that are gathered as one (_all_gather_dtype). */
struct zero3_flat {
    enum dtype dtype;
    uint32_t buffer, event;
};

struct zero3_handle { /* of a gather */
    uint32_t *params, count;
    uint32_t event;             /* it is over; NONE: its flats have theirs */
    struct zero3_flat *flats;   /* what came together of several, dtype by dtype (sort_dtypes) */
    uint32_t flat_count;        /* 0: of one, in its place */
    uint32_t quantized, scales; /* int8 and fp32 of all; NONE: gathered as they are */
    uint32_t left;              /* parameters that have not been waited for */
    uint8_t group;              /* that gathered it */
    bool complete;              /* several: all are copied out of it */
};

struct zero3_param {
    uint8_t status;            /* enum zero3_status */
    bool persistent;           /* small: never partitioned within a step */
    uint32_t users;            /* called modules that use it */
    int64_t fetched;           /* the last call of the trace that it was fetched for; -1: none */
    uint32_t buffer;           /* where it is; NONE */
    uint32_t home;             /* of a persistent one */
    struct zero3_saved *saved; /* by nodes, the last one first; NULL: by none */
    uint32_t owner; /* frozen, fetched in a recomputation: the call in whose backward that was, and
                       which releases it. NONE */
    struct zero3_handle *handle; /* in flight */
    uint32_t flight;             /* ... since so many others were */
    uint32_t secondary; /* hpZ: a piece of fewer ranks, from its first release to the step; frozen:
                           always. NONE */
    uint32_t group;     /* of the update; NONE: it is not trained, */
    uint32_t frozen;    /* ... and this is its piece */
    uint64_t at, part;  /* elements before its piece in the group; of the piece, padded */
};

struct zero3_saved { /* a node's: it holds memory that a parameter had, whatever is released */
    uint32_t buffer;
    struct zero3_saved *before;
};

struct zero3_group {       /* sub_group_size: parameters updated at once */
    uint32_t first, count; /* range of `trained` */
    uint64_t elements, at; /* of a rank's piece; before it in the buffer of gradients */
    uint32_t shard, master;
    uint32_t gradient; /* offload_optimizer: in fp32, always there */
};

/* Of another model a second one, whose parameters are nobody's but its coordinator's
 * (DeepSpeedZeRoOffload): it shares what is of parameters and calls, and comes after the first. */
struct zero3 {
    struct zero3 *beside;               /* that one; NULL: there is none */
    const struct zero_options *options; /* as its coordinator has them */
    uint32_t first, end;                /* parameters that are its */
    uint32_t root;                      /* call */
    uint64_t saved_bytes;               /* of parameters that are released, but that nodes hold */
    uint8_t shard_group;                /* PLAN_NO_GROUP: one rank */
    uint8_t secondary_group;            /* hpZ; PLAN_NO_GROUP: none */
    uint8_t node_group, across_group;   /* qgZ: a node's ranks; one of each node */
    uint8_t gather_lane, reduce_lane;   /* what gathers and reductions are issued from */
    uint8_t nccl_lane;                  /* where gathers run */
    struct zero3_events {               /* on lanes, oldest first: the host blocks on it */
        uint32_t *at, first, count;
    } fetches, reductions;
    uint32_t ranks;
    struct graph_calls *calls;
    bool *again; /* (calls) called last without gradients, which set the count of what its hook
                    behind backward waits for to 0 (ds_grads_remaining): that hook never comes */
    struct zero3_times {
        uint32_t all,
            inside;    /* forward calls of it; of the one around it, when it was last called */
        bool second;   /* the one around it has called it more than once ... */
        bool ended;    /* ... and its hook behind backward has come since */
    } * times;         /* (calls) */
    bool *in_use;      /* (calls' params) fetched for that call, and not released */
    uint32_t *leaving; /* (calls' params) each call's in the order in which it lets go of them */
    struct zero3_param *params; /* (params) */
    uint32_t *trained, trained_count;
    struct zero3_group *groups;
    uint32_t group_count;
    uint32_t gradients; /* this rank's pieces, always there */
    uint32_t *norms;    /* (params) offload_optimizer: of this step's gradients; NONE: none yet */
    uint32_t *normed, normed_count; /* parameters, as they came */
    uint32_t bucket;                /* likewise; NONE: gradients stay where they are */
    /* gradients of the bucket */
    uint32_t *in, in_count;
    uint64_t filled;
    bool *copied; /* (params) .grad is a view of the bucket */
    bool *waits;  /* (params) .grad is there, and its leaf module has not returned */
    /* the trace of one micro-batch: zero3_trace.c */
    enum { ZERO3_TRACE_NONE, ZERO3_TRACE_RECORDED, ZERO3_TRACE_COMPLETE } tracing;
    uint32_t *trace, trace_count; /* calls in order */
    struct zero3_use {            /* a parameter of a call */
        uint32_t param, call;     /* index into trace */
    } * uses;
    uint32_t use_count;
    uint64_t *whole;         /* (calls) elements of its parameters and of those of modules in it */
    uint32_t *home_call;     /* (params) the first call that has it */
    uint32_t step, next_use; /* where it is */
    uint32_t flights;        /* parameters that were in flight so far */
    uint64_t available;      /* elements that are gathered, or about to be */
    uint32_t *active, active_count; /* calls that backward is in */
    uint32_t persistent_count;
    uint32_t *owned, owned_count; /* parameters with an owner, as they were fetched */
};

static inline struct zero3 *zero3_of(const struct lowering *low)
{
    return low->state;
}

/* Whether parameters have to be brought: else a rank keeps them whole, where it computes. */
static inline bool zero3_brings(const struct lowering *low)
{
    return zero3_of(low)->ranks > 1 || low->strategy->zero.param.on;
}

/* Whether behind a step what is persistent is gathered into its place: several ranks do, and one
 * does of one alone (_all_gather); of more it copies each as it is. */
static inline bool zero3_gathers_persistent(const struct zero3 *z)
{
    return z->ranks > 1 || z->persistent_count == 1;
}

static inline uint64_t zero3_elements(const struct lowering *low, uint32_t param)
{
    return shape_elements(&low->plan->params[param].shape);
}

/* Where a rank's piece of a parameter is in it. */
static inline struct placement zero3_placement(const struct lowering *low, uint32_t param)
{
    return (struct placement){PLACEMENT_FLAT, 0, zero3_elements(low, param)};
}

/* Of numbers of parameters, for qsort. */
int zero3_by_index(const void *a, const void *b);

/* Elements of a parameter in this rank's piece; the rest of that is padding. */
uint64_t zero3_own_elements(const struct lowering *low, uint32_t param);
/* The piece of a parameter that this rank keeps. */
struct operand zero3_shard(const struct lowering *low, uint32_t param);
/* Its averaged gradient. */
struct operand zero3_gradient(const struct lowering *low, uint32_t param);

/* partition_grads: this rank's averaged pieces of the bucket's gradients are kept: the first
 * micro-batch's are copied, later ones added. Each .grad goes behind its piece, unless the pieces
 * are views of it (`held`). */
void zero3_keep(struct lowering *low, const struct operand *pieces, bool held);

/* reduce_scatter_coalesced of the bucket's gradients: this rank's piece of each, one after the
 * other, padded. *cat: what they are in; NONE: the memory of the one gradient. */
struct operand zero3_scatter(struct lowering *low, uint32_t *cat);

/* ---- reductions in 4 bits: zero3_qgz.c ---- */

/* Whether there are any: not within one node. */
bool zero3_has_qgz(const struct strategy *strategy);
/* Whether DeepSpeed takes the option so, and it is planned. */
enum err_code zero3_check_qgz(const struct strategy *strategy, struct err *err);
void zero3_set_up_qgz(struct lowering *low);
/* The bucket's gradients, and what is kept of them. */
void zero3_reduce_qgz(struct lowering *low);

/* ---- modules that are fetched as one: zero3_leaf.c ---- */

/* Which they are, before the graph is run; and whether that is planned. */
void zero3_prepare(const struct strategy *strategy, struct graph *graph);
enum err_code zero3_check_leaves(const struct strategy *strategy, const struct graph *graph,
                                 const struct stream *stream, struct err *err);
/* Those of its gradients that have waited. */
void zero3_reduce_leaf(struct lowering *low, uint32_t call);

/* ---- the bucket: zero3_reduce.c ---- */

/* A parameter's gradient goes into the bucket. */
void zero3_reduce(struct lowering *low, uint32_t param);
/* What is in it is reduced (__reduce_and_partition_ipg_grads). */
void zero3_flush(struct lowering *low);

/* ---- without reduce_scatter: zero3_whole.c ---- */

/* Whether the bucket is reduced so, and that. */
bool zero3_is_whole(const struct lowering *low);
void zero3_reduce_whole(struct lowering *low);

/* ---- the coordinator ---- */

/* Follows the stream: which modules are called in which order, and what is known of it where a
 * micro-batch begins. */
void zero3_trace(struct lowering *low);
/* Whether a call is of the other model; whether its own root is called: before that, reset_step. */
bool zero3_is_beside(const struct zero3 *z, uint32_t call);
bool zero3_calls_root(const struct zero3 *z, enum step_kind kind, uint32_t call);
void zero3_trace_restarts(struct zero3 *z);
/* A module is called: whether that is not what the trace has next (trace_prologue). */
bool zero3_trace_breaks(struct zero3 *z, uint32_t call);
/* reset_step: before a forward. */
void zero3_reset(struct lowering *low);
void zero3_fetch(struct lowering *low, uint32_t call, bool forward);
void zero3_release(struct lowering *low, uint32_t call, bool forward);
/* A node saves the memory that a parameter has now, and lets go of the last that one saved. */
void zero3_save(struct lowering *low, uint32_t param);
void zero3_unsave(struct lowering *low, uint32_t param);
/* Calls whose hook behind backward never came. */
void zero3_release_leftovers(struct lowering *low);
/* release_and_reset_all. */
void zero3_partition_all(struct lowering *low);
/* Gathers what is never released otherwise. */
void zero3_gather_persistent(struct lowering *low);
/* invalidate_secondary_tensor. */
void zero3_drop_secondary(struct lowering *low);

/* ---- what comes together: zero3_flats.c ---- */

/* Room for what comes together of one dtype, without a buffer yet; and all that came goes. */
struct zero3_flat *zero3_add_flat(struct lowering *low, struct zero3_handle *handle,
                                  enum dtype dtype);
void zero3_drop_flats(struct lowering *low, const struct zero3_handle *handle);

/* ---- gathers in 8 bits: zero3_quantize.c ---- */

bool zero3_quantizes(const struct lowering *low);
/* Of the handle's parameters, whose pieces are `shards`. */
void zero3_gather_quantized(struct lowering *low, struct zero3_handle *handle,
                            const struct operand *shards);
/* They have come: each parameter gets its place. */
void zero3_dequantize(struct lowering *low, struct zero3_handle *handle);
/* All have been waited for. */
void zero3_drop_quantized(struct lowering *low, const struct zero3_handle *handle);

/* ---- offloading: zero3_offload.c ---- */

/* Whether the host updates a group. */
bool zero3_is_on_host(const struct lowering *low, uint32_t group);
/* Where gradients of all groups are accumulated, and where the host finds each group's. */
uint32_t zero3_new_gradients(struct lowering *low, enum dtype dtype, uint64_t elements);
/* partition_grads: of the bucket's gradients, each one's reduced piece. Each .grad goes behind its
 * piece, unless the pieces are views of it (`held`). */
void zero3_offload_pieces(struct lowering *low, const struct operand *pieces, bool held);
/* The norms of all groups (each a scalar on the host) and of them together. */
uint32_t zero3_offload_norm(struct lowering *low, uint32_t *norms);
void zero3_offload_forget_norms(struct lowering *low);
/* A group's updated values to where its pieces are. */
void zero3_write_back(struct lowering *low, const struct zero3_group *group);
/* A group's pieces, wherever they are. */
uint32_t zero3_new_shard(struct lowering *low, enum dtype dtype, uint64_t elements);
/* hpZ: a piece for a smaller group, born within the step, or always there. */
uint32_t zero3_new_secondary(struct lowering *low, enum dtype dtype, uint64_t elements);
uint32_t zero3_keep_secondary(struct lowering *low, enum dtype dtype, uint64_t elements);
/* Those of `shards` that are on the host become copies on the device; and those copies go, though
 * `lane` may still read them. */
void zero3_bring_shards(struct lowering *low, uint8_t lane, struct operand *shards, uint32_t count);
void zero3_drop_copies(struct lowering *low, uint8_t lane, const struct operand *shards,
                       uint32_t count);
/* Frees what `lane` may still use. */
void zero3_let_go(struct lowering *low, uint32_t buffer, uint8_t lane);

/* Sets .grad free, where it is memory of its own. */
void zero3_forget(struct lowering *low, uint32_t param);

/* The host may be ahead by two events of a kind: it waits for the oldest one where there are more,
 * before it goes on. */
void zero3_hold_host(struct lowering *low, struct zero3_events *events);
void zero3_add_event(struct lowering *low, struct zero3_events *events, uint8_t lane);

/* step(). */
void zero3_update(struct lowering *low);

#endif
