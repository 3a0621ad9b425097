/* tape_regions.h - where the modules of an eager stream begin and end, and what goes over their
 * borders: for whoever makes something else of what is between (planner/compile). A region that
 * DDPOptimizer splits (bucket_parts.h) is several, one after the other. */
#ifndef SHARDPLAN_TAPE_REGIONS_H
#define SHARDPLAN_TAPE_REGIONS_H

#include "graph/stream.h"
#include "graph/tape_options.h"

struct tape_border { /* a tensor that a region has from outside, or gives out */
    uint32_t tensor, buffer;
    bool later; /* of `given`: other parts have yet to give the tensor theirs, or what it is made
                   with */
    bool activation; /* `buffer` is one of the stream's; otherwise the batch's or a module's */
};

struct tape_output {                   /* what a region gives out */
    uint32_t tensor, buffer, gradient; /* gradient: a buffer; NO_BUFFER: none came */
};

struct tape_region {
    uint32_t module;    /* GRAPH_NONE: the loss, the whole model */
    uint32_t block;     /* how many blocks end before it */
    bool is_part;       /* one of several of a graph that was split */
    bool is_last;       /* of its graph */
    uint32_t frame_end; /* item before which the function returns that it is a part of, and lets go
                           of what it was called with (frame_parts.h); 0: it is not */
    bool is_frame; /* a function of the model's own by itself, of which buffers count as what it is
                      called with: compile_steps_more.jsonl has a cast of one saved */
    uint32_t first_item, end_item;         /* of the script: [first, end) */
    uint32_t forward_first, forward_end;   /* steps of the stream: [first, end) */
    uint32_t backward_first, backward_end; /* empty: no gradient came */
    struct tape_border *inputs; /* activations that Python has where it begins, each storage once */
    uint32_t input_count;
    struct tape_output *outputs;
    uint32_t output_count;
    struct tape_border *given; /* gradients of inputs: the tensor's root, its buffer; outside of
                                  blocks those of parameters, too, that others give gradients as
                                  well */
    uint32_t given_count;
    uint32_t *arguments; /* (argument_count) tensors, roots: what its graph is called with */
    uint32_t argument_count;
    bool is_called;    /* by what is eager, within a block: that may call others with the same */
    uint32_t *lets_go; /* (let_go_count) storages that no part behind it is called with: Python
                          lets go of what the graph gives from one part to another */
    uint32_t let_go_count;
    bool shared; /* an input had a gradient from elsewhere before, or others read what it makes */
};

struct tape_regions {
    struct stream *stream;
    struct tape_region *of; /* in the order of the script */
    uint32_t count;
};

/* Runs the graph (lent) eagerly, without checkpointing, and notes the borders of what the options
 * say is compiled: blocks, the model, the loss. The caller owns *out: tape_regions_free. */
void tape_run_regions(const struct graph *graph, const struct tape_options *options,
                      struct tape_regions *out);
void tape_regions_free(struct tape_regions *regions);

#endif
