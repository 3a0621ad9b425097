/* frame_parts.h - what Dynamo makes of a block that has units within (FSDP1 with peft's policy,
 * which wraps each adapter's two Linears): their hooks end its graphs.
 *
 *     block      | norm                                            | add norm                | add
 *     self_attn         | (q) | (k) | (v) | rope attention | (o) |
 *     mlp                                                             (gate) | silu | (up) ...
 *
 * A layer with an adapter calls it in a loop, for which Dynamo leaves its function alone: all that
 * it does is eager. What calls it is cut there: of each function (the block's, and those of modules
 * in it that have such layers) what is between two of these calls is a graph. What such a graph is
 * called with is an argument of a function that goes on until the one that was cut returns. */
#ifndef SHARDPLAN_FRAME_PARTS_H
#define SHARDPLAN_FRAME_PARTS_H

#include "graph/graph.h"

struct frame_part {                 /* items of the script */
    uint32_t first, end, frame_end; /* [first, end); the function returns before frame_end */
};

/* Whether a module within a block got borders (borders.h). */
bool frame_parts_any(const struct graph *graph, uint32_t block);

/* The parts of items [first, end), which are all of `block`; out: room for end - first. Returns how
 * many. */
uint32_t frame_parts(const struct graph *graph, uint32_t block, uint32_t first, uint32_t end,
                     struct frame_part *out);

#endif
