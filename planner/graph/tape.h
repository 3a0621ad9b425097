/* tape.h - runs a graph as eager autograd runs it, and writes down what happened.
 *
 * Forward: each op births its outputs; each op that needs a gradient becomes a node that holds
 * what it saves; Python's reference dies at a drop. Backward: nodes run in reverse order of
 * creation (autograd's queue: highest sequence number first). A node births its gradients, lets
 * go of the gradients it was given, then of what it saved; a tensor used twice has its gradients
 * added into a new tensor. A storage dies with its last holder. Checkpointed blocks hold only
 * their inputs and run again at the first node that needs something saved.
 *
 * There are no formulas for activation memory here or anywhere else: it is what is alive. */
#ifndef SHARDPLAN_TAPE_H
#define SHARDPLAN_TAPE_H

#include "graph/stream.h"

enum checkpointing {
    CHECKPOINTING_NONE,
    CHECKPOINTING_FULL,      /* torch.utils.checkpoint around each block */
    CHECKPOINTING_SELECTIVE, /* torchtitan's op policy: SDPA and every second matmul are kept */
};

struct tape_options {
    enum checkpointing checkpointing;
    bool no_early_stop; /* recompute whole blocks (torchtitan), not only up to the last saved */
};

/* Runs the graph (lent) for one micro-batch. The caller owns the result: stream_free. */
struct stream *tape_run(const struct graph *graph, const struct tape_options *options);

/* ---- for the operator table (ops.c) only: what a backward function may do ---- */

struct tape;

/* Whether input i of the op wants a gradient. */
bool tape_needs(const struct tape *tape, const struct graph_op *op, uint32_t i);

/* An operand for a tensor of the graph, where it is now. */
struct operand tape_tensor(const struct tape *tape, uint32_t tensor);
/* An operand for the gradient of output i; place is GRAPH_NONE when none arrived. */
struct operand tape_grad(const struct tape *tape, const struct graph_op *op, uint32_t i);

/* Births a buffer and runs a kernel that fills it from `ins` operands (PLACE_NONE places are
 * left out). Returns it as an operand. flops < 0: elementwise, one per element. */
struct operand tape_call(struct tape *tape, enum work_kind work, enum aten aten, enum dtype dtype,
                         struct shape shape, double flops, uint32_t ins, const struct operand *in);
/* The two halves of tape_call, for kernels with more results or a birth of another name. */
struct operand tape_birth(struct tape *tape, enum aten aten, enum dtype dtype, struct shape shape);
/* As tape_birth, with rows `pitch` elements apart (and no gap after the last). */
struct operand tape_birth_pitched(struct tape *tape, enum aten aten, enum dtype dtype,
                                  struct shape shape, uint32_t pitch);
void tape_kernel(struct tape *tape, enum work_kind work, enum aten aten, double flops, uint32_t ins,
                 const struct operand *in, uint32_t outs, const struct operand *out);
/* The last kernel's attr.p is `number`, and not that of its op. */
void tape_number(struct tape *tape, float number);
/* Ends a transient that tape_call or tape_birth made. */
void tape_death(struct tape *tape, struct operand transient);
/* A kernel's own workspace of `bytes`, alive until tape_death. */
struct operand tape_scratch(struct tape *tape, uint64_t bytes);

/* Hands a gradient (made by tape_call, or the one from tape_grad passed on) to input i. */
void tape_give(struct tape *tape, const struct graph_op *op, uint32_t i, struct operand gradient);

/* As tape_give, for an input that was broadcast: the engine sums the gradient to the input's shape
 * when it checks a node's results, after the node's own function has returned. (There it also
 * casts what is not of the input's dtype; that goes for tape_give too.) */
void tape_give_summed(struct tape *tape, const struct graph_op *op, uint32_t i,
                      struct operand gradient);

#endif
