/* tape_state.h - for the files tape*.c only: a tape while it runs.
 *
 *     tape.c              walks the script forward, then backward
 *     tape_backward.c     runs a node: gradients in, gradients out
 *     tape_recompute.c    checkpointed regions: what they hold, and running them again
 *     tape_reentrant.c    those that compute backward within backward
 *     tape_leaves.c       leaves that are no parameters
 *     tape_op.c           runs an op of the script
 *     tape_saved.c        what its node saves
 *     tape_handed.c       what blocks hand on to others
 *     tape_host.c         what nodes save, on the host
 *     tape_nodes.c        how long nodes live, and what their contexts have
 *     tape_calls.c        where modules are called
 *     (op_table.c, ops_*.c: what each op saves and does)
 *     tape_emit.c         births, kernels, deaths
 *     tape_check.c        what is always true between two items of the script
 *
 * `holds` counts the holders of each buffer, and a buffer dies with its last holder:
 *
 *     Python              `python`, one for each storage that a name refers to
 *     a node              `node_holds`: what its op saves, from when it ran until its node has
 *     a node's context    `nodes`, as long as the node lives (tape_nodes.c)
 *     a dead node         `keeping`, by the storage that it goes with (graph_keeps)
 *     a gradient slot     `slot`, by the root tensor; a buffer passed on is in several
 *     the selective cache `cached`, from forward until recomputation takes it over
 *     a region            its module's inputs, from entering it until its last node has run; those
 *                         of a reentrant one, but the first, until the graph goes
 *     the graph           leaves (graph_need_input_gradients)
 *     an outer node       `given` and `results`, while a reentrant region's own backward runs
 *     a graph handed on   `handed_by`: what its node holds, once a region ran again
 *     a hook's stash      `host`: what nodes packed, instead of the node or the region
 *     backward()          `seed`, its own list of root gradients
 *     .grad               what a STEP_GRAD gave out: the strategy's, for good
 *
 * `where[storage]` is the buffer a storage lives in now; recomputation gives a storage a second
 * buffer in its block's backward. */
#ifndef SHARDPLAN_TAPE_STATE_H
#define SHARDPLAN_TAPE_STATE_H

#include "base/err.h"
#include "graph/calls.h"
#include "graph/stream.h"
#include "graph/tape_compiled.h"
#include "graph/tape_options.h"

#define NO_BUFFER GRAPH_NONE

enum {
    SAVED_MOST = GRAPH_OPERANDS + GRAPH_OUTPUTS, /* tensors that a node can hold */
    KEPT_MOST = 2,    /* calls within an op whose results the selective policy keeps */
    RESULTS_MOST = 4, /* that a reentrant block returns besides its first one */
};

struct region {           /* one checkpointed module */
    uint32_t first, last; /* items between its ENTER and EXIT */
    uint32_t stop;        /* item whose packing ends the recomputation early */
    uint32_t holders;     /* nodes that still have saved tensors */
    bool holds_inputs;
    bool holds_others; /* reentrant: those that it is called with by name, until the graph goes */
    bool recomputed;
};

struct held { /* by a node of a graph that is handed on */
    uint32_t op;
    uint32_t buffer; /* whatever its storage is in now; NO_BUFFER: the memory of ... */
    uint32_t param;
};

struct pending { /* a gradient on its way to an input */
    uint32_t tensor;
    struct operand gradient;
    bool broadcast; /* to be summed to the tensor's shape first */
    bool viewed;    /* its node made a view of it */
    bool added;     /* it was added to the gradient that was there */
    bool handed;    /* on, to what waits for it */
    uint32_t given; /* its number in the stream's given; GRAPH_NONE: it has none */
};

struct slice { /* as an operand's offset and pitch: a gradient may be a slice of a wider one */
    uint32_t offset, pitch;
    const struct strides *layout; /* as an operand's, in the shape of ... */
    uint32_t seen_as;             /* this tensor: the root or a view of it */
    uint32_t tensor;              /* that the gradient reached first: the root or a view of it */
    bool mixed;    /* a sum of gradients that reached two views: which then stands for both is not
                      known, and `tensor` is the root */
    bool expanded; /* fewer elements than its tensor: it stands for a wider one */
    bool viewed;   /* a view of what a kernel made, which the view's autograd data keep alive */
    bool direct;   /* it came in the root's shape, though `tensor` is a view in another: the root is
                      what PyTorch's function was given */
};

struct outside { /* of an input of a reentrant region: what the outer graph's slot has */
    uint32_t buffer;
    struct slice part;
};

struct seen { /* what a node unpacked that is not where its tensor's storage is */
    uint32_t tensor, buffer, offset;
    const struct strides *layout;
};

struct result {      /* that a block returns and nobody asks for */
    uint32_t tensor; /* what it is when the block has run again */
    uint32_t zeros;  /* its gradient, an argument of the outer node's function */
};

struct tape;
struct tape_parts { /* programs that stand for items of the script (tape_compiled.c), in its order
                     */
    const struct tape_compiled *of; /* (count) */
    uint32_t count;
    void (*run)(struct tape *tape, void *with, uint32_t part); /* its forward */
    void *with;
};

struct open_calls { /* modules that are called and have not returned, outermost first */
    uint32_t at[CALLS_DEEP], depth;
};

struct tape {
    const struct graph *graph;
    struct graph_calls *calls; /* call_hooks; else NULL */
    struct open_calls open;
    uint32_t returning; /* forward: the op that was last in what is about to return; GRAPH_NONE */
    const struct tape_options *options; /* lent */
    struct stream *stream;
    const struct strides **layouts; /* (layout_count) of operands, each once; the table's */
    uint32_t layout_count, layout_cap;
    uint16_t *holds; /* (buffers) holders */
    uint32_t holds_cap;
    uint32_t *where;      /* (storages) buffer of each activation, NO_BUFFER */
    uint8_t *python;      /* (storages) whether Python refers to it */
    uint8_t *reached;     /* (tensors) roots whose node runs, be it without a gradient */
    uint8_t *keeping;     /* (storages) whether what goes with them is held */
    uint8_t *leaves;      /* (storages) held by the node that a leaf's gradient goes to */
    uint8_t *repeats;     /* (ops) casts that autocast does not make again (tape_reentrant.c) */
    uint8_t *kept_casts;  /* (storages) what it has in their place, until its region ends */
    uint8_t *cached;      /* (storages) kept by the selective policy until recomputation */
    uint32_t *kept_calls; /* (ops, KEPT_MOST) likewise, buffers of what calls within ops returned;
                             NO_BUFFER: nothing */
    uint32_t *root;       /* (tensors) the tensor whose gradient is this one's */
    uint32_t *same;       /* (tensors) itself, or what the absent op has that returns it */
    uint32_t *slot;       /* (tensors) buffer of the gradient so far, by root */
    struct slice *part;   /* (tensors) where in that buffer it is */
    uint16_t *param_uses; /* (params) gradients still to come */
    uint8_t *node_holds;  /* (ops) whether its node holds what it saves */
    struct tape_nodes *nodes;     /* NULL: no context has anything */
    struct tape_host *host;       /* NULL: what nodes save is theirs */
    struct seen seen[SAVED_MOST]; /* (seen_count) of the node that runs */
    uint32_t seen_count;
    uint8_t *handed;    /* (storages) in the dictionary of checkpointed blocks */
    uint8_t *handed_by; /* (ops) 1 + the last of what is handed on that holds its node; 0 */
    struct held *held;  /* (held_count) what these nodes hold, op by op */
    uint32_t held_count, held_cap;
    uint32_t before[HANDED_MOST][HANDED_PAIR]; /* buffers that a region which runs again has yet to
                                                  put others in the place of; NO_BUFFER */
    uint32_t *op_region;                       /* (ops) region of each op, GRAPH_NONE outside */
    bool *checkpointed;                        /* (modules) whether it is a block that is */
    struct tape_parts parts;                   /* lent */
    uint32_t *part_region;                     /* (parts) as op_region */
    struct region *regions;
    uint32_t region_count;
    struct pending pending[GRAPH_OPERANDS]; /* of the node that runs */
    uint32_t pending_count;
    uint32_t unasked[GRAPH_OPERANDS]; /* (unasked_count) buffers of gradients that nobody wants */
    uint32_t unasked_count;
    uint32_t current_op; /* GRAPH_NONE: none */
    bool in_op;          /* its own function runs: kernels have its numbers. The engine's,
                            which add gradients up and cast them, have none */
    struct outside outside[MODULE_INPUTS]; /* while a reentrant region's own backward runs */
    uint32_t given; /* ... the gradient of its output, its node's argument; NO_BUFFER: none does */
    struct result results[RESULTS_MOST]; /* (result_count) ... and what it returned besides */
    uint32_t result_count;
    uint32_t next_region, entered; /* forward: to come; that we are in, GRAPH_NONE outside */
    bool kept;                     /* the selective policy keeps the current op's outputs */
    uint32_t kept_count;           /* calls within it so far whose results it keeps, too */
    uint32_t matmuls;              /* counted by the selective policy, per region */
    uint32_t seed;            /* the gradient of the loss, while backward() has it; NO_BUFFER */
    uint32_t divided, scaled; /* scaled_loss: the loss as the engine has it; NO_BUFFER */
    bool backward, recomputing;
    bool without_grad; /* forward: under torch.no_grad */
    bool in_blocks;    /* backward has reached the blocks */
};

/* Whether an op is there at all under this tape's options. */
static inline bool tape_has(const struct tape *tape, const struct graph_op *op)
{
    return !tape->repeats[op - tape->graph->ops] && (!op->of_hook || tape->options->input_nodes) &&
           (!op->of_call || tape->options->call_hooks);
}

/* Whether an op is such a function. */
bool tape_is_own_linear(const struct tape *tape, const struct graph_op *op);

static inline bool tape_is_activation(const struct tape *tape, uint32_t tensor)
{
    return tape->graph->storages[tape->graph->tensors[tensor].storage].kind == STORAGE_ACTIVATION;
}

/* The buffer of an activation now. */
static inline uint32_t tape_buffer(const struct tape *tape, uint32_t tensor)
{
    return tape->where[tape->graph->tensors[tensor].storage];
}

/* The parameter that a tensor is of. */
static inline uint32_t tape_param_index(const struct tape *tape, uint32_t tensor)
{
    return tape->graph->storages[tape->graph->tensors[tensor].storage].index;
}

/* ---- tape_emit.c ---- */

void tape_step(struct tape *tape, enum step_kind kind, uint32_t arg);
/* A new buffer with one holder: the caller. */
uint32_t tape_new_buffer(struct tape *tape, enum aten aten, enum dtype dtype, struct shape shape,
                         uint64_t bytes);
void tape_hold(struct tape *tape, uint32_t buffer);
/* A copy between host and device, as a step of its kind; its kernel. */
uint32_t tape_copy(struct tape *tape, enum step_kind kind, struct operand from, struct operand to);
void tape_release(struct tape *tape, uint32_t buffer);
/* The gradient that has arrived, as that of a tensor. */
struct operand tape_grad_as(struct tape *tape, uint32_t tensor);

/* ---- tape_saved.c, tape_op.c ---- */

/* The tensors that the node of an op holds; returns their number, 0 when it is no node. */
uint32_t tape_saved(const struct tape *tape, const struct graph_op *op, uint32_t saved[SAVED_MOST]);
/* Whether the node of op `index` saves a parameter's memory, `tensor` being of a parameter (else
 * false). Without call_hooks nobody asks. */
bool tape_saves_memory(const struct tape *tape, uint32_t index, uint32_t tensor);
/* The op's node now holds them. */
void tape_save(struct tape *tape, uint32_t op);
/* Runs an op. `holding`: whether autograd keeps what the node saves; in a checkpointed region it
 * does so only when the region runs again. */
void tape_op(struct tape *tape, uint32_t op, bool holding);

/* ---- tape_recompute.c ---- */

/* Finds the checkpointed regions and where each recomputation may stop. */
void tape_find_regions(struct tape *tape);
/* The part that begins at an item of the script; GRAPH_NONE: none does. */
uint32_t tape_part_at(const struct tape *tape, uint32_t item);
bool tape_is_checkpointed(const struct tape *tape, uint32_t module);
/* Forward comes to the next region, which holds its inputs from now on. */
void tape_enter_region(struct tape *tape);
void tape_leave_region(struct tape *tape);
/* Runs a region's script again, now holding what nodes save. */
void tape_recompute(struct tape *tape, struct region *region);
/* Casts of parameters that autocast kept while a region ran again within the region of autocast of
 * the node that asked for it (op_class.custom_bwd): that is left. */
void tape_end_kept_casts(struct tape *tape, const struct region *region);
/* The last node of a region has run. */
void tape_end_region(struct tape *tape, struct region *region);
/* The loss goes, and with it what reentrant ones were called with by name. */
void tape_end_called(struct tape *tape);

/* ---- tape_reentrant.c ---- */

/* The gradient of such a module's output is there: it runs again, and a backward of its own begins;
 * which has ended. */
void tape_begin_nested(struct tape *tape, uint32_t module);
void tape_end_nested(struct tape *tape, uint32_t module);
/* ---- tape_leaves.c ---- */

/* In a reentrant region that runs again: an op that does not, for its result is there; whether it
 * is. */
bool tape_repeats(struct tape *tape, uint32_t op);
/* A node that takes the tensor leads to a node of its own, if it is a leaf. */
void tape_hold_leaf(struct tape *tape, uint32_t tensor);
/* The loss goes, and with it leaves and their gradients. */
void tape_end_leaves(struct tape *tape);

/* ---- tape_handed.c ---- */

/* Marks what is handed on, once regions are found. */
void tape_find_handed(struct tape *tape);
/* Whether a tensor is one that is handed on, as it is. */
bool tape_is_handed_root(const struct tape *tape, uint32_t tensor);
/* Whether a frame of a region still has it: no name that goes is its last. */
bool tape_is_handed(const struct tape *tape, uint32_t storage);
/* A region is to run again; behind an op of it; it has run, or an exception ended it. */
void tape_before_handing(struct tape *tape, const struct region *region);
void tape_hand_on(struct tape *tape, uint32_t op);
void tape_after_handing(struct tape *tape, const struct region *region);
/* Of the last region's frame the dictionary goes, with all that is in it. */
void tape_release_handed(struct tape *tape);

/* ---- tape_nodes.c ---- */

/* NULL where no node of the graph keeps anything in its context: all else is nothing then. */
struct tape_nodes *tape_nodes_new(const struct graph *graph);
void tape_nodes_free(struct tape_nodes *nodes);
/* An op has run whose node autograd has made. */
void tape_node_made(struct tape *tape, uint32_t op);
/* Nodes that Python's last name of a storage led to go, and what their contexts have, before
 * tape_drop lets go of its memory. */
void tape_name_goes(struct tape *tape, uint32_t storage);
/* Python's last name of a storage goes away, if it has one. */
void tape_drop(struct tape *tape, uint32_t storage);
/* A region has run again (a reentrant one: with its backward), or backward is over: none of its
 * nodes is left. */
void tape_nodes_end(struct tape *tape, bool again);
/* The buffer that the context of an op's node has, of that of a region that runs again; or
 * NO_BUFFER. */
uint32_t tape_node_keeps(const struct tape *tape, uint32_t op, bool again);

/* ---- tape_host.c ---- */

/* Once regions are found. */
void tape_host_open(struct tape *tape);
void tape_host_close(struct tape *tape);
/* Whether what an op's node saves is packed when it is saved. */
bool tape_host_has(const struct tape *tape, uint32_t op);
/* Before such an op runs, and behind it. */
void tape_host_pack_inputs(struct tape *tape, uint32_t op);
void tape_host_pack_outputs(struct tape *tape, uint32_t op);
/* Before its node runs: all that it saved is a local, and goes by tape_host_end_local, each. */
void tape_host_unpack(struct tape *tape, uint32_t op);
void tape_host_end_local(struct tape *tape, uint32_t tensor);
/* Hooks behind every node, once its gradients are checked. */
void tape_host_after_node(struct tape *tape);
/* What a region's block is called with by position; it runs again, and has. */
void tape_host_enter(struct tape *tape, uint32_t region, uint32_t tensor);
uint32_t tape_host_begin_again(struct tape *tape, uint32_t region);
void tape_host_end_again(struct tape *tape, uint32_t packed);
/* Backward has run; behind all of it. */
void tape_host_end(struct tape *tape);
void tape_host_clear(struct tape *tape);
/* Holders: buffers that the packed tensor `at` has, NO_BUFFER; the next one, or GRAPH_NONE. */
bool tape_host_any(const struct tape *tape);
uint32_t tape_host_holds(const struct tape *tape, uint32_t at, uint32_t buffers[2]);

/* ---- tape_backward.c ---- */

void tape_begin_backward(struct tape *tape);
/* Runs the node of an op, if a gradient has reached it. */
void tape_node(struct tape *tape, uint32_t op);
void tape_end_backward(struct tape *tape);
/* A gradient of a tensor arrives, whole, and is added to the one that is there: whether it was. Its
 * holder is the tensor's slot, or, where it was added, the caller still. */
bool tape_accumulate(struct tape *tape, uint32_t tensor, uint32_t buffer);
/* A gradient of zeros for each of these that wants one and has none, where others have one: what
 * the engine hands a function of several outputs (torch/csrc/autograd/python_function.cpp,
 * materialize_grads). */
void tape_zero_gradients(struct tape *tape, uint32_t count, const uint32_t *tensors);
/* Adds `by` to the parameters' gradients to come, for each use in items [first, end). */
void tape_count_uses(struct tape *tape, uint32_t first, uint32_t end, int by);
/* A parameter's gradient, complete, is given out. */
void tape_give_out(struct tape *tape, uint32_t param);

/* ---- tape.c: tape_run in steps, for tests ---- */

/* `graph` and `options` are lent until tape_close. */
void tape_open(struct tape *tape, const struct graph *graph, const struct tape_options *options);
/* Likewise, where programs stand for parts of the script; NULL: none do. */
void tape_open_parts(struct tape *tape, const struct graph *graph,
                     const struct tape_options *options, const struct tape_parts *parts);
void tape_forward_item(struct tape *tape, struct graph_item item);
void tape_backward_item(struct tape *tape, struct graph_item item);
/* Frees all but the stream, which the caller owns. */
struct stream *tape_close(struct tape *tape);

/* ---- tape_check.c ---- */

/* Between two items of the script: every buffer has exactly the holders that the rest of the state
 * says, names and slots mean living buffers, and after backward nothing lives but the gradients
 * given out. ERR_INTERNAL names the first buffer that is wrong. */
enum err_code tape_check(const struct tape *tape, struct err *err);

#endif
