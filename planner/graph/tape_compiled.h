/* tape_compiled.h - a tape of which parts are compiled, blocks or the loss: each is one function
 * with a program of its own, forward and backward, and one node of autograd that holds what the
 * program saves.
 *
 *     PRE_FORWARD block | births, kernels and deaths of its forward program | POST_FORWARD block
 *     PRE_BACKWARD block | ... of its backward program, GRAD p ... | POST_BACKWARD block
 *
 * Who makes the programs (planner/compile) knows why they are as they are; here they run. What a
 * program saves, and the gradient that it is handed, die where backward's last reader has run:
 * AOTAutograd clears the node's saved tensors before it calls the program, and takes the gradients
 * out of the engine's hands (boxed_grads_call, torch 2.14). Parameters' gradients are all given out
 * behind it, in the order in which the engine runs their nodes (ready_queue.h), but those that
 * other functions give gradients, too, behind the last of these; the engine adds them up. */
#ifndef SHARDPLAN_TAPE_COMPILED_H
#define SHARDPLAN_TAPE_COMPILED_H

#include "graph/stream.h"
#include "graph/tape_options.h"

enum tape_memory_from {
    TAPE_MEMORY_NEW,      /* born in the program */
    TAPE_MEMORY_TENSOR,   /* of: a tensor of the graph: an argument */
    TAPE_MEMORY_PLACE,    /* of: the place of a parameter, an input, a module's buffer */
    TAPE_MEMORY_SAVED,    /* of: memory of the forward program */
    TAPE_MEMORY_GRADIENT, /* of: an output, whose gradient came */
};

struct tape_memory {
    uint8_t from; /* enum tape_memory_from */
    uint8_t dtype;
    uint16_t label;
    uint32_t of;
    struct shape shape;
};

struct tape_act {                         /* a kernel */
    struct kernel kernel;                 /* places of its operands: memory of the program */
    const uint32_t *writes, *over, *dies; /* program.h */
    uint32_t write_count, die_count;
};

struct tape_program {
    struct tape_memory *memory;
    struct tape_act *acts;
    uint32_t memory_count, act_count;
};

struct tape_given { /* a gradient that backward gives out */
    uint32_t memory;
    bool of_param;
    bool later;     /* with it, no node of forward has all of its gradients */
    uint32_t index; /* the parameter, or the tensor (its root) */
};

struct tape_result { /* that forward gives out */
    uint32_t tensor, memory;
};

struct tape_compiled {
    uint32_t first_item, end_item; /* what it stands for in the script: [first, end) */
    uint32_t frame_end;            /* tape_region */
    const struct tape_result *results;
    uint32_t result_count;
    struct tape_program forward, backward;
    const uint32_t *saved; /* memory of forward, each once: what the node holds */
    uint32_t saved_count;
    const struct tape_given *given; /* in the order of its arguments */
    uint32_t given_count;
    const uint32_t *lets_go; /* storages that Python lets go of behind its forward */
    uint32_t let_go_count;
};

/* As tape_run, with these (lent; in the order of the script) compiled. What the options say of
 * checkpointing compiled blocks is in the programs already; a block that calls what is compiled
 * runs its programs again. The caller owns the result:
 * stream_free. */
struct stream *tape_run_compiled(const struct graph *graph, const struct tape_options *options,
                                 const struct tape_compiled *compiled, uint32_t count);

#endif
