/* tape_options.h - what a user may ask of a tape. */
#ifndef SHARDPLAN_TAPE_OPTIONS_H
#define SHARDPLAN_TAPE_OPTIONS_H

#include <stdbool.h>

enum checkpointing {
    CHECKPOINTING_NONE,
    CHECKPOINTING_FULL,      /* torch.utils.checkpoint around each block */
    CHECKPOINTING_SELECTIVE, /* torchtitan's op policy: SDPA and every second matmul are kept */
};

struct tape_options {
    enum checkpointing checkpointing;
    bool input_nodes;   /* the sharding system passes what modules are called with through nodes of
                           its own (op_module_input) */
    bool no_early_stop; /* recompute whole blocks (torchtitan), not only up to the last saved */
    bool call_hooks;    /* the sharding system has hooks on every module (calls.h), and nodes of its
                           own before and behind each */
    bool own_linear;  /* F.linear is an autograd function in Python: the product, and the bias added
                         to it in place; what it saves is packed behind it */
    bool scaled_loss; /* an engine divides the loss by the micro-batches, multiplies it by a loss
                         scale, and has hooks behind backward() instead of in its final callback */
};

#endif
