/* tape_options.h - what a user may ask of a tape. */
#ifndef SHARDPLAN_TAPE_OPTIONS_H
#define SHARDPLAN_TAPE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum checkpointing {
    CHECKPOINTING_NONE,
    CHECKPOINTING_FULL,      /* torch.utils.checkpoint around each block */
    CHECKPOINTING_SELECTIVE, /* torchtitan's op policy: SDPA and every second matmul are kept */
};

enum checkpointed_blocks {
    CHECKPOINTED_ALL,
    CHECKPOINTED_FIRST, /* so many (Megatron's --recompute-method block) */
    CHECKPOINTED_SHARE, /* the first percent of them, rounded up */
    CHECKPOINTED_EVERY, /* the k-th, the 2 k-th, ... (torchtitan's selective_ac_option) */
};

enum compiled {
    COMPILED_NOT,
    COMPILED_BLOCKS, /* each block on its own */
    COMPILED_MODEL,  /* what the root module's forward does, as one graph */
    COMPILED_FRAMES, /* likewise, where hooks within its loop over blocks break that: Dynamo leaves
                        a frame alone that would break in a loop, and makes a graph of each function
                        of the model's own that it calls: blocks, and what MARK_FRAME marks */
};

/* Where what nodes save waits for backward (tape_host.c). */
enum saved_on {
    SAVED_ON_DEVICE,
    SAVED_ON_HOST_ASIDE,     /* copied by a stream of its own */
    SAVED_ON_HOST,           /* copied by the compute stream */
    SAVED_ON_HOST_ASIDE_ALL, /* these, with views of parameters */
    SAVED_ON_HOST_ALL,
};

static inline bool saved_aside(enum saved_on on)
{
    return on == SAVED_ON_HOST_ASIDE || on == SAVED_ON_HOST_ASIDE_ALL;
}

struct tape_options {
    enum checkpointing checkpointing;
    enum checkpointed_blocks checkpointed; /* blocks in the order in which the model has them */
    uint32_t checkpointed_number;          /* which `checkpointed` speaks of; 0 with ALL */
    bool input_nodes; /* the sharding system passes what modules are called with through nodes of
                         its own (op_module_input) */
    enum compiled compiled; /* by torch.compile (planner/compile) */
    bool compiled_loss;     /* likewise the function that computes the loss */
    bool head_hooks;        /* the head is wrapped by itself: its hooks break frames, too */
    bool whole_graphs; /* torch._dynamo.config.optimize_ddp is off: what is compiled within DDP's
                          forward is not split where buckets end */
    uint64_t bucket_bytes; /* the system's buckets, at which it is; 0: it has none, or nothing is
                              compiled */
    bool no_early_stop;    /* recompute whole blocks (torchtitan), not only up to the last saved */
    bool reentrant;        /* checkpoints are (tape_reentrant.c) */
    enum saved_on saved_on;
    bool saved_end_last; /* ... and what is left there when backward ends goes behind the system's
                            final callback, not before it */
    bool saves_weights;  /* ... and views of parameters are packed as others are: they are not
                            where they were when the hooks asked for their memory */
    bool call_hooks; /* the sharding system has hooks on every module (calls.h), and nodes of its
                        own before and behind each */
    bool own_linear; /* F.linear is an autograd function in Python: the product, and the bias added
                        to it in place; what it saves is packed behind it */
    bool replays_views; /* in recordings on fake tensors, views that Python wrote through are made
                           again by their own functions, and not by as_strided */
    bool scaled_loss;   /* an engine divides the loss by the micro-batches, multiplies it by a loss
                           scale, and has hooks behind backward() instead of in its final callback */
    bool divided_loss;  /* with scaled_loss: there is no loss scale */
    bool grad_dtypes;   /* the system says in which dtypes parameters have their gradients, where
                           PyTorch has grad_dtype: theirs is not that of the parameter */
};

/* Whether the options checkpoint block `block` of `count`. */
bool tape_options_checkpoint(const struct tape_options *options, uint32_t block, uint32_t count);

/* Options of a model with so many blocks that come to the same, written one way only. */
void tape_options_simplify(struct tape_options *options, uint32_t blocks);

#endif
