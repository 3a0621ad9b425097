/* ops_hf.c - operators that only Hugging Face's op sequences need: GPT-2's Conv1D, concatenation,
 * views whose gradient is copied, and the pieces of attention where no fused kernel will do. */
#include "graph/ops_table.h"

#include <assert.h>

/* ---- Conv1D: a Linear whose weight is (in, out) ---- */

uint32_t op_conv1d(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias)
{
    const struct shape in = *shape_of(graph, x), w = *shape_of(graph, weight);
    assert(last_dim(&in) == w.dim[0]);
    const uint32_t out = simple(graph, OP_CONV1D, 3, (uint32_t[]){x, weight, bias}, ATEN_ADDMM,
                                dtype_of(graph, x), SHAPE(rows_of(&in), w.dim[1]));
    return graph_view(graph, out, with_last(in, w.dim[1]));
}

OP_SAVED(conv1d)
{
    uint32_t count = 0;
    if (needs(graph, op->in[1]))
        saved[count++] = op->in[0];
    if (needs(graph, op->in[0]))
        saved[count++] = op->in[1];
    return count;
}

double conv1d_flops(const struct graph *graph, const struct graph_op *op)
{
    return 2.0 * (double)shape_elements(shape_of(graph, op->in[0])) *
           shape_of(graph, op->in[1])->dim[1];
}

/* As a Linear with bias; the weight is the leaf itself, so its gradient is complete at once. */
OP_BACKWARD(conv1d)
{
    const struct shape *x = shape_of(graph, op->in[0]);
    const struct operand grad = tape_grad(tape, op, 0);
    struct operand input = {.place = PLACE_NONE}, weight = {.place = PLACE_NONE};
    if (tape_needs(tape, op, 0))
        input = tape_call(tape, WORK_MATMUL_NT, ATEN_MM, dtype_of(graph, op->in[0]),
                          SHAPE(rows_of(x), last_dim(x)), conv1d_flops(graph, op), 2,
                          (struct operand[]){grad, tape_tensor(tape, op->in[1])});
    if (tape_needs(tape, op, 1))
        weight = tape_call(tape, WORK_MATMUL_TN, ATEN_MM, dtype_of(graph, op->in[1]),
                           *shape_of(graph, op->in[1]), conv1d_flops(graph, op), 2,
                           (struct operand[]){tape_tensor(tape, op->in[0]), grad});
    if (tape_needs(tape, op, 2))
        tape_give_summed(tape, op, 2, grad);
    if (tape_needs(tape, op, 1))
        tape_give(tape, op, 1, weight);
    if (tape_needs(tape, op, 0))
        tape_give(tape, op, 0, input);
}

/* ---- shapes ---- */

uint32_t op_cat_last(struct graph *graph, uint32_t x, uint32_t y)
{
    const struct shape shape = *shape_of(graph, x);
    return simple(graph, OP_CAT, 2, (uint32_t[]){x, y}, ATEN_CAT, dtype_of(graph, x),
                  with_last(shape, last_dim(&shape) + last_dim(shape_of(graph, y))));
}

/* Each side gets a narrow view of the gradient: no births. */
OP_BACKWARD(cat_last)
{
    (void)graph;
    for (uint32_t i = 0; i < 2; i++)
        if (tape_needs(tape, op, i))
            tape_give(tape, op, i, tape_grad(tape, op, 0));
}

uint32_t op_view_copied(struct graph *graph, uint32_t x, struct shape shape)
{
    const uint32_t op = begin(graph, OP_VIEW, 1, &x);
    const uint32_t out = graph_view(graph, x, shape);
    graph->tensors[out].root = out;
    graph->ops[op].out[graph->ops[op].outs++] = out;
    graph_op_done(graph, op);
    return out;
}

OP_BACKWARD(view_copied)
{
    const struct operand grad = tape_grad(tape, op, 0);
    tape_give(tape, op, 0,
              tape_call(tape, WORK_REORDER, ATEN_CLONE, dtype_of(graph, op->in[0]),
                        *shape_of(graph, op->out[0]), -1.0, 1, &grad));
}

uint32_t op_repeat_copied(struct graph *graph, uint32_t x, struct shape repeated, uint32_t dim)
{
    const uint32_t op = begin(graph, OP_REPEAT, 1, &x);
    graph->ops[op].attr.dim = dim;
    const uint32_t out = graph_op_birth(graph, op, ATEN_CLONE, dtype_of(graph, x), repeated);
    graph_op_done(graph, op);
    return out;
}

/* ---- attention in single ops ---- */

uint32_t op_scale(struct graph *graph, uint32_t x, float number)
{
    const uint32_t op = begin(graph, OP_SCALE, 1, &x);
    graph->ops[op].attr.p = number;
    const uint32_t out =
        graph_op_birth(graph, op, ATEN_MUL_SCALAR, dtype_of(graph, x), *shape_of(graph, x));
    graph_op_done(graph, op);
    return out;
}

OP_BACKWARD(scale)
{
    give_elementwise(tape, graph, op, WORK_MUL_NUMBER, ATEN_MUL_SCALAR, GRAPH_NONE);
}

uint32_t op_bmm(struct graph *graph, uint32_t x, uint32_t y)
{
    const struct shape *a = shape_of(graph, x), *b = shape_of(graph, y);
    assert(a->rank == 3 && b->rank == 3 && a->dim[2] == b->dim[1]);
    return simple(graph, OP_BMM, 2, (uint32_t[]){x, y}, ATEN_BMM, dtype_of(graph, x),
                  SHAPE(a->dim[0], a->dim[1], b->dim[2]));
}

OP_SAVED(bmm)
{
    uint32_t count = 0;
    if (needs(graph, op->in[0]))
        saved[count++] = op->in[1];
    if (needs(graph, op->in[1]))
        saved[count++] = op->in[0];
    return count;
}

double bmm_flops(const struct graph *graph, const struct graph_op *op)
{
    return 2.0 * (double)shape_elements(shape_of(graph, op->in[0])) *
           shape_of(graph, op->in[1])->dim[2];
}

/* The second operand's gradient is computed first, as mm does. */
OP_BACKWARD(bmm)
{
    const struct operand grad = tape_grad(tape, op, 0);
    struct operand made[2] = {{.place = PLACE_NONE}, {.place = PLACE_NONE}};
    for (uint32_t i = 2; i-- > 0;) {
        const struct operand other = tape_tensor(tape, op->in[1 - i]);
        if (tape_needs(tape, op, i))
            made[i] = tape_call(
                tape, i == 0 ? WORK_BMM_NT : WORK_BMM_TN, ATEN_BMM, dtype_of(graph, op->in[i]),
                *shape_of(graph, op->in[i]), bmm_flops(graph, op), 2,
                i == 0 ? (struct operand[]){grad, other} : (struct operand[]){other, grad});
    }
    for (uint32_t i = 0; i < 2; i++)
        if (tape_needs(tape, op, i))
            tape_give(tape, op, i, made[i]);
}

uint32_t op_safe_softmax(struct graph *graph, uint32_t x)
{
    return simple(graph, OP_SAFE_SOFTMAX, 1, &x, ATEN_SAFE_SOFTMAX, dtype_of(graph, x),
                  *shape_of(graph, x));
}

OP_BACKWARD(safe_softmax)
{
    give_elementwise(tape, graph, op, WORK_SOFTMAX_BACKWARD, ATEN_SOFTMAX_BACKWARD, op->out[0]);
}
