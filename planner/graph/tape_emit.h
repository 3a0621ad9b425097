/* tape_emit.h - what a backward function may do: find operands, birth buffers, run kernels, hand
 * gradients on. Each call is written down at once, in the order in which eager PyTorch would make
 * it. Nothing here knows an operator. */
#ifndef SHARDPLAN_TAPE_EMIT_H
#define SHARDPLAN_TAPE_EMIT_H

#include "graph/stream.h"

struct tape;

/* Whether input i of the op wants a gradient. */
bool tape_needs(const struct tape *tape, const struct graph_op *op, uint32_t i);

/* Whether Python runs forward without grad mode: no op becomes a node. */
bool tape_is_without_grad(const struct tape *tape);

/* tape_options.own_linear, of a linear layer that calls F.linear: not of one that is written as a
 * product, whose weight is a view. */
bool tape_own_linear(const struct tape *tape, const struct graph_op *op);

/* tape_options.replays_views, of this graph. */
bool tape_replays_views(const struct tape *tape);

/* An operand for a tensor of the graph, where it is now. */
struct operand tape_tensor(const struct tape *tape, uint32_t tensor);
/* An operand for the gradient of output i; place is GRAPH_NONE when none arrived. */
struct operand tape_grad(struct tape *tape, const struct graph_op *op, uint32_t i);
/* Products call it first: their output of several dims is a view of rows, and where the gradient's
 * order of memory cannot be seen as rows, that view's backward, a reshape, has copied it. */
void tape_grad_in_rows(struct tape *tape, const struct graph_op *op);
/* The same for one product alone: whether *grad is a copy, which ends by tape_death. */
bool tape_rows_of_grad(struct tape *tape, const struct graph_op *op, struct operand *grad);
/* That gradient in whatever shape its order of memory can be seen in. */
struct operand tape_grad_where_it_lies(struct tape *tape, const struct graph_op *op);
/* Of what is born by tape_birth: in the order of memory of the kernel's operands, where the work
 * keeps it (tape_call does that itself). */
void tape_lay_out_like(struct tape *tape, enum work_kind work, uint32_t ins,
                       const struct operand *in, struct operand *out);
/* Says where an operand's elements are: `strides` is copied. */
void tape_lay_out(struct tape *tape, struct operand *operand, const struct strides *strides);
/* The same memory in another shape of as many elements. */
void tape_view(struct tape *tape, struct operand *operand, struct shape shape);

/* Births a buffer and runs a kernel that fills it from `ins` operands (PLACE_NONE places are
 * left out). Returns it as an operand. flops < 0: elementwise, one per element. */
struct operand tape_call(struct tape *tape, enum work_kind work, enum aten aten, enum dtype dtype,
                         struct shape shape, double flops, uint32_t ins, const struct operand *in);
/* Where the selective policy keeps what a call within the current op returns: false, and it is
 * born, with one holder: the caller, who runs the kernel; or true: it is there since forward, and
 * the caller's now. */
bool tape_call_kept(struct tape *tape, enum aten aten, enum dtype dtype, struct shape shape,
                    struct operand *out);
/* Whether a call's result, the op's output `o`, is there since forward, as the selective policy
 * kept it; then it is Python's, and what births it does not run again. */
bool tape_takes_output(struct tape *tape, const struct graph_op *op, uint32_t o);
/* The two halves of tape_call, for kernels with more results or a birth of another name. */
struct operand tape_birth(struct tape *tape, enum aten aten, enum dtype dtype, struct shape shape);
/* Births output o of an op whose class has a `forward`. */
struct operand tape_birth_output(struct tape *tape, const struct graph_op *op, uint32_t o);
/* As tape_birth, with rows `pitch` elements apart (and no gap after the last). */
struct operand tape_birth_pitched(struct tape *tape, enum aten aten, enum dtype dtype,
                                  struct shape shape, uint32_t pitch);
void tape_kernel(struct tape *tape, enum work_kind work, enum aten aten, double flops, uint32_t ins,
                 const struct operand *in, uint32_t outs, const struct operand *out);
/* The next operand of the kernel that is added next. Kernels outlive the graph, and what compiled
 * it: what says where a tensor lies is copied to their table. */
void tape_operand(struct tape *tape, struct operand operand);
/* The last kernel's attr.p is `number`, and not that of its op. */
void tape_number(struct tape *tape, float number);
/* Its attr.dim is `dim`, likewise, and attr.first 0. */
void tape_dim(struct tape *tape, uint32_t dim);
/* The last kernel computes again what forward did: no arithmetic of the model's. */
void tape_again(struct tape *tape);
/* The host waits for what the last kernel computed. */
void tape_host_reads(struct tape *tape);
/* Ends a transient that tape_call or tape_birth made. */
void tape_death(struct tape *tape, struct operand transient);
/* A kernel's own workspace of `bytes`, alive until tape_death. */
struct operand tape_scratch(struct tape *tape, uint64_t bytes);

/* Hands a gradient (made by tape_call, or the one from tape_grad passed on) to input i. */
void tape_give(struct tape *tape, const struct graph_op *op, uint32_t i, struct operand gradient);

/* As tape_give, where the node hands on a view of what its kernel made. A gradient whose shape is
 * not its input's is one without being told. */
void tape_give_view(struct tape *tape, const struct graph_op *op, uint32_t i,
                    struct operand gradient);

/* As tape_give_view, of a torch.autograd.Function that computes what nobody asked for as well: that
 * lives until the engine has handed on the others. */
void tape_give_unasked(struct tape *tape, struct operand gradient);

/* The same of the gradient that the node was called with, in whose place it is. */
void tape_pass_unasked(struct tape *tape, struct operand gradient);

/* The frame of a torch.autograd.Function's backward ends: in a checkpointed region, what it
 * unpacked dies here. */
void tape_end_frame(struct tape *tape, const struct graph_op *op);
/* The same, part by part: of what it unpacked these tensors die; `last`: all have. */
void tape_end_locals(struct tape *tape, const struct graph_op *op, uint32_t count,
                     const uint32_t *tensors, bool last);

/* Hands the memory of a tensor that the node saved to input i: its kernel has put the gradient
 * there. */
void tape_give_saved(struct tape *tape, const struct graph_op *op, uint32_t i, uint32_t tensor);

/* As tape_give, for an input that was broadcast: the engine sums the gradient to the input's shape
 * when it checks a node's results, after the node's own function has returned. (There it also
 * casts what is not of the input's dtype; that goes for tape_give too.) */
void tape_give_summed(struct tape *tape, const struct graph_op *op, uint32_t i,
                      struct operand gradient);

#endif
