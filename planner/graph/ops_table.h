/* ops_table.h - for the files of operators only: the helpers that constructors, saved lists and
 * backward functions share, and the functions that the table in ops.c names from other files. */
#ifndef SHARDPLAN_OPS_TABLE_H
#define SHARDPLAN_OPS_TABLE_H

#include "graph/ops.h"

static inline const struct shape *shape_of(const struct graph *graph, uint32_t tensor)
{
    return &graph->tensors[tensor].shape;
}

static inline enum dtype dtype_of(const struct graph *graph, uint32_t tensor)
{
    return (enum dtype)graph->tensors[tensor].dtype;
}

static inline uint32_t last_dim(const struct shape *shape)
{
    return shape->dim[shape->rank - 1];
}

/* Rows when the last dim is one row. */
static inline uint32_t rows_of(const struct shape *shape)
{
    return (uint32_t)(shape_elements(shape) / last_dim(shape));
}

static inline struct shape with_last(struct shape shape, uint32_t last)
{
    shape.dim[shape.rank - 1] = last;
    return shape;
}

static inline uint32_t begin(struct graph *graph, enum op_kind kind, uint32_t ins,
                             const uint32_t *in)
{
    const uint32_t op = graph_op_new(graph, (int)kind);
    for (uint32_t i = 0; i < ins; i++)
        graph->ops[op].in[i] = in[i];
    graph->ops[op].ins = (uint8_t)ins;
    return op;
}

/* An op with one output of the given birth; the usual case. */
static inline uint32_t simple(struct graph *graph, enum op_kind kind, uint32_t ins,
                              const uint32_t *in, enum aten aten, enum dtype dtype,
                              struct shape shape)
{
    const uint32_t op = begin(graph, kind, ins, in);
    const uint32_t out = graph_op_birth(graph, op, aten, dtype, shape);
    graph_op_done(graph, op);
    return out;
}

static inline bool needs(const struct graph *graph, uint32_t tensor)
{
    return tensor != GRAPH_NONE && graph->tensors[tensor].requires_grad;
}

static inline uint32_t save_input(const struct graph *graph, const struct graph_op *op,
                                  uint32_t *saved)
{
    (void)graph;
    saved[0] = op->in[0];
    return 1;
}

static inline uint32_t save_output(const struct graph *graph, const struct graph_op *op,
                                   uint32_t *saved)
{
    (void)graph;
    saved[0] = op->out[0];
    return 1;
}

/* dx of an elementwise op: one call with the gradient and one other operand (or none). */
static inline void give_elementwise(struct tape *tape, const struct graph *graph,
                                    const struct graph_op *op, enum work_kind work, enum aten aten,
                                    uint32_t other)
{
    struct operand in[2] = {tape_grad(tape, op, 0), {.place = PLACE_NONE}};
    if (other != GRAPH_NONE)
        in[1] = tape_tensor(tape, other);
    tape_give(tape, op, 0,
              tape_call(tape, work, aten, dtype_of(graph, op->in[0]), *shape_of(graph, op->in[0]),
                        -1.0, 2, in));
}

/* One or two operands of the same shape into a new tensor. */
static inline struct operand call1(struct tape *tape, enum work_kind work, enum aten aten,
                                   struct operand x)
{
    return tape_call(tape, work, aten, (enum dtype)x.dtype, x.shape, -1.0, 1, &x);
}

static inline struct operand call2(struct tape *tape, enum work_kind work, enum aten aten,
                                   struct operand x, struct operand y)
{
    const struct operand in[2] = {x, y};
    return tape_call(tape, work, aten, (enum dtype)x.dtype, x.shape, -1.0, 2, in);
}

/* An operand and a number into a new tensor. */
static inline struct operand call_number(struct tape *tape, enum work_kind work, enum aten aten,
                                         struct operand x, float number)
{
    const struct operand out = call1(tape, work, aten, x);
    tape_number(tape, number);
    return out;
}

/* X(kind): <kind>_saved and <kind>_backward are in another file than the table. */
#define OP_SAVED(kind)                                                                             \
    uint32_t kind##_saved(const struct graph *graph, const struct graph_op *op, uint32_t *saved)
#define OP_BACKWARD(kind)                                                                          \
    void kind##_backward(struct tape *tape, const struct graph *graph, const struct graph_op *op)

/* ops_attention.c */
OP_SAVED(efficient_attention);
OP_BACKWARD(efficient_attention);
double efficient_attention_flops(const struct graph *graph, const struct graph_op *op);
OP_BACKWARD(where);
OP_BACKWARD(pad_last);
OP_BACKWARD(slice_last);
OP_BACKWARD(expand);
OP_BACKWARD(alias);
OP_SAVED(clamp);
OP_BACKWARD(clamp);

/* ops_hf.c */
OP_SAVED(conv1d);
OP_BACKWARD(conv1d);
double conv1d_flops(const struct graph *graph, const struct graph_op *op);
OP_BACKWARD(cat_last);
OP_BACKWARD(view_copied);
OP_BACKWARD(scale);
OP_SAVED(bmm);
OP_BACKWARD(bmm);
double bmm_flops(const struct graph *graph, const struct graph_op *op);
OP_BACKWARD(safe_softmax);

/* ops_moe.c */
OP_BACKWARD(softmax);
OP_SAVED(topk);
OP_BACKWARD(topk);
OP_BACKWARD(sum_last);
OP_SAVED(div_inplace);
OP_BACKWARD(div_inplace);
OP_SAVED(index);
OP_BACKWARD(index);
OP_BACKWARD(sum_groups);
OP_SAVED(grouped_mm);
OP_BACKWARD(grouped_mm);
double grouped_mm_flops(const struct graph *graph, const struct graph_op *op);

#endif
