/* ops_moe.c - what a mixture of experts needs: choosing, sorting by expert and back, and matrices
 * that multiply one group of rows each. */
#include "graph/ops_table.h"

#include <assert.h>

/* ---- the router ---- */

uint32_t op_softmax(struct graph *graph, uint32_t x)
{
    return simple(graph, OP_SOFTMAX, 1, &x, ATEN_SOFTMAX, dtype_of(graph, x), *shape_of(graph, x));
}

OP_BACKWARD(softmax)
{
    give_elementwise(tape, graph, op, WORK_SOFTMAX_BACKWARD, ATEN_SOFTMAX_BACKWARD, op->out[0]);
}

uint32_t op_topk(struct graph *graph, uint32_t x, uint32_t k, uint32_t *indices)
{
    const struct shape shape = with_last(*shape_of(graph, x), k);
    const uint32_t op = begin(graph, OP_TOPK, 1, &x);
    const uint32_t values = graph_op_birth(graph, op, ATEN_TOPK, dtype_of(graph, x), shape);
    *indices = graph_op_birth(graph, op, ATEN_TOPK, DTYPE_INT64, shape);
    graph_op_done(graph, op);
    return values;
}

OP_SAVED(topk)
{
    (void)graph;
    saved[0] = op->out[1];
    return 1;
}

/* The gradient of what was taken from `x` by index, put into zeros of x's shape. */
static void give_put(struct tape *tape, const struct graph *graph, const struct graph_op *op,
                     enum work_kind work, enum aten aten, uint32_t indices)
{
    const enum dtype dtype = dtype_of(graph, op->in[0]);
    const struct shape shape = *shape_of(graph, op->in[0]);
    const struct operand zeros = tape_birth(tape, ATEN_NEW_ZEROS, dtype, shape);
    tape_kernel(tape, WORK_FILL, ATEN_NEW_ZEROS, -1.0, 0, NULL, 1, &zeros);
    const struct operand in[3] = {zeros, tape_tensor(tape, indices), tape_grad(tape, op, 0)};
    tape_give(tape, op, 0, tape_call(tape, work, aten, dtype, shape, -1.0, 3, in));
    tape_death(tape, zeros);
}

OP_BACKWARD(topk)
{
    give_put(tape, graph, op, WORK_SCATTER, ATEN_SCATTER, op->out[1]);
}

uint32_t op_sum_last(struct graph *graph, uint32_t x)
{
    return simple(graph, OP_SUM_LAST, 1, &x, ATEN_SUM_DIM, dtype_of(graph, x),
                  with_last(*shape_of(graph, x), 1));
}

OP_BACKWARD(sum_last) /* expanded: a view */
{
    (void)graph;
    tape_give(tape, op, 0, tape_grad(tape, op, 0));
}

uint32_t op_div_inplace(struct graph *graph, uint32_t x, uint32_t y)
{
    const uint32_t op = begin(graph, OP_DIV_INPLACE, 2, (uint32_t[]){x, y});
    const uint32_t out = graph_view(graph, x, *shape_of(graph, x));
    graph->tensors[out].root = out; /* what x was is another value, with another gradient */
    graph->ops[op].out[graph->ops[op].outs++] = out;
    graph_op_birth(graph, op, ATEN_CLONE, dtype_of(graph, x), *shape_of(graph, x));
    graph->ops[op].hidden = 1;
    graph_op_done(graph, op);
    return out;
}

OP_SAVED(div_inplace)
{
    (void)graph;
    saved[0] = op->in[1];
    saved[1] = op->out[1];
    return 2;
}

/* The divisor's gradient comes first: -grad * ((x / y) / y). */
OP_BACKWARD(div_inplace)
{
    const struct operand grad = tape_grad(tape, op, 0);
    const struct operand x = tape_tensor(tape, op->out[1]), y = tape_tensor(tape, op->in[1]);
    const struct operand once = call2(tape, WORK_DIV, ATEN_DIV, x, y);
    const struct operand twice = call2(tape, WORK_DIV, ATEN_DIV, once, y);
    const struct operand minus = call1(tape, WORK_NEG, ATEN_NEG, grad);
    const struct operand divisor = call2(tape, WORK_MUL, ATEN_MUL, minus, twice);
    tape_death(tape, minus);
    tape_death(tape, twice);
    tape_death(tape, once);
    tape_give(tape, op, 0, call2(tape, WORK_DIV, ATEN_DIV, grad, y));
    if (last_dim(shape_of(graph, op->in[0])) == 1)
        tape_give(tape, op, 1, divisor);
    else
        tape_give_summed(tape, op, 1, divisor);
}

/* ---- rows to experts and back ---- */

uint32_t op_index(struct graph *graph, uint32_t x, uint32_t indices)
{
    struct shape shape = *shape_of(graph, x);
    assert(shape_of(graph, indices)->rank == 1);
    shape.dim[0] = shape_of(graph, indices)->dim[0];
    return simple(graph, OP_INDEX, 2, (uint32_t[]){x, indices}, ATEN_INDEX, dtype_of(graph, x),
                  shape);
}

OP_SAVED(index)
{
    (void)graph;
    saved[0] = op->in[1];
    return 1;
}

OP_BACKWARD(index)
{
    give_put(tape, graph, op, WORK_INDEX_PUT, ATEN_INDEX_PUT, op->in[1]);
}

uint32_t op_sort(struct graph *graph, uint32_t x, uint32_t *permutation)
{
    const uint32_t op = begin(graph, OP_NO_GRAD, 1, &x);
    graph->ops[op].work = WORK_SORT;
    const struct shape shape = *shape_of(graph, x);
    const uint32_t sorted = graph_op_birth(graph, op, ATEN_SORT, dtype_of(graph, x), shape);
    *permutation = graph_op_birth(graph, op, ATEN_SORT, DTYPE_INT64, shape);
    graph_op_done(graph, op);
    return sorted;
}

uint32_t op_sum_groups(struct graph *graph, uint32_t x, uint32_t group)
{
    const struct shape shape = *shape_of(graph, x);
    const uint32_t rows = shape.dim[0] / group, h = shape.dim[1];
    const uint32_t groups = graph_view(graph, x, SHAPE(rows, group, h));
    const uint32_t op = begin(graph, OP_SUM_GROUPS, 1, &groups);
    graph->ops[op].attr.dim = 1;
    const uint32_t out =
        graph_op_birth(graph, op, ATEN_SUM_DIM, dtype_of(graph, x), SHAPE(rows, h));
    graph_op_done(graph, op);
    return out;
}

/* The gradient is expanded over each group, and the view (rows · group, h) of that is a copy. */
OP_BACKWARD(sum_groups)
{
    if (shape_of(graph, op->in[0])->dim[1] == 1)
        tape_give(tape, op, 0, tape_grad(tape, op, 0));
    else
        give_elementwise(tape, graph, op, WORK_REPEAT, ATEN_CLONE, GRAPH_NONE);
}

/* ---- the experts ---- */

uint32_t op_grouped_mm(struct graph *graph, uint32_t x, uint32_t weight, uint32_t offsets)
{
    const struct shape in = *shape_of(graph, x), w = *shape_of(graph, weight);
    assert(in.rank == 2 && w.rank == 3 && in.dim[1] == w.dim[2]);
    return simple(graph, OP_GROUPED_MM, 3, (uint32_t[]){x, weight, offsets}, ATEN_GROUPED_MM,
                  dtype_of(graph, x), SHAPE(in.dim[0], w.dim[1]));
}

OP_SAVED(grouped_mm)
{
    uint32_t count = 0;
    if (needs(graph, op->in[0]))
        saved[count++] = op->in[1];
    saved[count++] = op->in[2];
    if (needs(graph, op->in[1]))
        saved[count++] = op->in[0];
    return count;
}

double grouped_mm_flops(const struct graph *graph, const struct graph_op *op)
{
    return 2.0 * (double)shape_elements(shape_of(graph, op->in[0])) *
           shape_of(graph, op->in[1])->dim[1];
}

/* As mm: the weight's gradient first. */
OP_BACKWARD(grouped_mm)
{
    const struct operand grad = tape_grad(tape, op, 0), offsets = tape_tensor(tape, op->in[2]);
    for (uint32_t i = 2; i-- > 0;) {
        if (!tape_needs(tape, op, i))
            continue;
        const struct operand in[3] = {grad, tape_tensor(tape, op->in[1 - i]), offsets};
        tape_give(tape, op, i,
                  tape_call(tape, i == 0 ? WORK_GROUPED_MM_NN : WORK_GROUPED_MM_TN, ATEN_GROUPED_MM,
                            dtype_of(graph, op->in[i]), *shape_of(graph, op->in[i]),
                            grouped_mm_flops(graph, op), 3, in));
    }
}
