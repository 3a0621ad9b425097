/* fsdp1.h - for the fsdp1*.c files only: the state of FSDP1 while a program is made.
 *
 *     fsdp1.c          the hooks
 *     fsdp1_units.c    flat parameters: what is in them, and what is there before the first step
 *     fsdp1_gather.c   unshard, reshard, the limiter, prefetching
 *     fsdp1_reduce.c   from the gradients of a unit to its gradient shard
 *     fsdp1_step.c     clipping, optimizer.step() and zero_grad() */
#ifndef SHARDPLAN_FSDP1_H
#define SHARDPLAN_FSDP1_H

#include "lower/units.h"

struct flat_part {  /* of a flat parameter */
    uint32_t param; /* NONE: padding */
    uint64_t elements;
};

/* What units of one root share. Of another model the second, whose backward never is. */
struct root {
    uint8_t unshard, pre_unshard;                             /* lanes */
    uint32_t *forward_order, forward_count;                   /* of handles, in any forward */
    uint32_t *free_events, free_first, free_count, free_room; /* the limiter's queue; NONE: has
                                                                 passed */
};

struct handle { /* a FlatParamHandle */
    uint32_t unit;
    struct root *root;
    struct flat_part *parts;
    uint32_t part_count;
    uint64_t elements; /* of the flat parameter, P */
    uint64_t shard;    /* of its shard, S; P where nothing is sharded */
    bool trained;      /* something in it is */
    enum dtype stored; /* of the shard */
    uint32_t store;    /* buffer of the shard */
    uint32_t cast;     /* ... in the compute dtype (nothing sharded: of the parameter); NONE */
    uint32_t gathered; /* buffer of N·S elements; NONE: nothing is sharded */
    uint32_t kept;     /* buffer of the gradient that the optimizer reads; NONE: none */

    bool unsharded; /* `gathered` has memory */
    bool viewed;    /* the flat parameter's data is the unsharded one */
    bool cast_held; /* nothing sharded: `cast` has memory */
    bool prefetched, needs_pre_forward, needs_pre_backward, ran_pre_backward;
    uint32_t forward_index, backward_index; /* in the orders below; NONE */
    uint32_t flat;                          /* the unsharded gradient that no_sync leaves; NONE */
    uint32_t gradient;                      /* the gradient shard so far; NONE */
    bool carried;   /* use_orig_params: that of the step before is still there */
    uint32_t shown; /* use_orig_params: what was the gradient, while .grad is still of it; NONE */
    bool exposed;   /* use_orig_params: the original parameters have a .grad */
    bool hosted;    /* offloaded, too: it is of what the host has of the step before */
    bool stale;     /* ... and no unshard has met it so far */
    uint32_t restored; /* ... but one has put it into this, for a while; NONE */
};

/* Which of the tensors that a backward makes is the gradient in the end. */
enum kept {
    KEPT_CAT,     /* autograd's */
    KEPT_REDUCED, /* what the reduction writes, in the reduction dtype */
    KEPT_CAST,    /* that cast to the stored dtype */
    KEPT_LOW,     /* that cast to the compute dtype */
    KEPT_HOST,    /* its copy on the host, where there is a tensor for it all the time */
};

struct views { /* made of a flat parameter in forward: its gradient comes when backward is there */
    struct handle *handle;
    uint32_t under; /* the module whose pre-forward made them */
};

struct fsdp1 {
    struct wrapping wrapping;
    struct handle *handles;           /* (units) [0] is the root's */
    uint32_t handle_count, own_count; /* the first of them are the model's that is trained */
    struct root root, beside;
    uint32_t ranks; /* N */
    bool sharded;   /* not NO_SHARD */
    bool reshards;  /* after forward */
    enum kept kept;
    float before, after; /* factors that gradients are divided by around the reduction */
    uint8_t group, replicate_group;
    uint8_t post_backward, all_reduce;        /* lanes */
    uint32_t *backward_order, backward_count; /* as they were resharded in this one */
    uint32_t *returned;     /* (modules, the root) the module in it whose output is its own; NONE */
    uint32_t zero;          /* FullyShardedDataParallel._zero_scalar; NONE: there is none */
    bool in_units;          /* backward has come to the first unit that is not the root */
    struct handle *waiting; /* frozen, to be resharded after the next pre-backward; NULL */
    bool *again; /* (modules) in a block whose backward is of its own: gradients come to the views
                    of the forward that runs again, the first being without grad mode */
    struct views *views;
    uint32_t view_count;
};

static inline struct fsdp1 *fsdp1_of(const struct lowering *low)
{
    return low->state;
}

/* Whether a handle is of another model. */
static inline bool fsdp1_is_beside(const struct lowering *low, const struct handle *handle)
{
    return handle->root == &fsdp1_of(low)->beside;
}

/* The handle whose hooks are a module's; NULL: none. */
struct handle *fsdp1_handle_at(const struct lowering *low, uint32_t module);

/* ---- fsdp1_units.c ---- */

enum err_code fsdp1_check(const struct strategy *strategy, const struct graph *graph,
                          const struct stream *stream, struct err *err);
void fsdp1_prepare(const struct strategy *strategy, struct graph *graph);
void fsdp1_set_up(struct lowering *low);

/* ---- fsdp1_gather.c ---- */

void fsdp1_unshard(struct lowering *low, struct handle *handle);
/* `frees`: the unsharded parameter's memory goes. */
void fsdp1_reshard(struct lowering *low, struct handle *handle, bool frees);
bool fsdp1_frees_in_backward(const struct lowering *low);
void fsdp1_prefetch_forward(struct lowering *low, const struct handle *handle, uint32_t under);
/* Where `when` is the strategy's. */
void fsdp1_prefetch_backward(struct lowering *low, const struct handle *handle,
                             enum backward_prefetch when);
/* Views of the flat parameter are made in the pre-forward of module `under`. */
void fsdp1_make_views(struct lowering *low, struct handle *handle, uint32_t under);

/* ---- fsdp1_reduce.c ---- */

/* All gradients of a unit are there: autograd's concatenation of them, and the post-backward hook.
 */
void fsdp1_reduce(struct lowering *low, struct handle *handle);
/* In the final callback: the gradient as the optimizer is to see it. */
void fsdp1_finish_gradient(struct lowering *low, struct handle *handle);
/* Offloading with use_orig_params: views of the host's gradient are .grad from a unit's reshard in
 * forward on; its next unshard takes them for a gradient that somebody set, and makes one of them
 * (_writeback_orig_params), which its pre-backward lets go. */
void fsdp1_expose_host(struct lowering *low, struct handle *handle);
void fsdp1_restore_host(struct lowering *low, struct handle *handle);
/* Before a backward: to a gradient that was cast down (keep_low_precision_grads) it adds. */
void fsdp1_resume_gradient(struct lowering *low, struct handle *handle);

/* ---- fsdp1_step.c ---- */

void fsdp1_update(struct lowering *low);
/* zero_grad(set_to_none=True). */
void fsdp1_zero_grad(struct lowering *low);
/* A gradient dies, or the tensor that it was made of. */
void fsdp1_free_gradient(struct lowering *low, uint32_t buffer);
/* Under use_orig_params gradients die in the next forward. */
void fsdp1_drop_gradients(struct lowering *low);

#endif
