/* ops_no_grad.c - calls outside autograd: births, but no node. */
#include "graph/op_class.h"

#include <math.h>

static uint32_t outside_autograd(struct graph *graph, enum work_kind work, enum aten aten,
                                 enum dtype dtype, struct shape shape, uint32_t ins,
                                 const uint32_t *in, struct kernel_attr attr)
{
    const uint32_t op = begin(graph, OP_NO_GRAD, ins, in);
    const uint32_t out = graph_op_birth(graph, op, aten, dtype, shape);
    graph->ops[op].work = (uint8_t)work;
    graph->ops[op].attr = attr;
    graph_op_done(graph, op);
    graph->ops[op].requires_grad = false;
    graph->tensors[out].requires_grad = false;
    return out;
}

uint32_t op_no_grad(struct graph *graph, enum work_kind work, enum aten aten, enum dtype dtype,
                    struct shape shape, uint32_t ins, const uint32_t *in)
{
    return outside_autograd(graph, work, aten, dtype, shape, ins, in, (struct kernel_attr){0});
}

uint32_t op_number(struct graph *graph, enum work_kind work, enum aten aten, enum dtype dtype,
                   struct shape shape, uint32_t x, float number)
{
    return outside_autograd(graph, work, aten, dtype, shape, 1, &x,
                            (struct kernel_attr){.p = number});
}

uint32_t op_sum_last_no_grad(struct graph *graph, uint32_t x)
{
    struct shape shape = *shape_of(graph, x);
    shape.rank--;
    const enum dtype dtype = graph->autocast.on ? DTYPE_FP32 : dtype_of(graph, x); /* as sum_last */
    return outside_autograd(graph, WORK_SUM_DIM, ATEN_SUM_DIM, dtype, shape, 1, &x,
                            (struct kernel_attr){.dim = shape.rank});
}

uint32_t op_repeat_no_grad(struct graph *graph, enum aten aten, uint32_t x, struct shape repeated,
                           uint32_t dim)
{
    return outside_autograd(graph, WORK_REPEAT, aten, dtype_of(graph, x), repeated, 1, &x,
                            (struct kernel_attr){.dim = dim});
}

uint32_t op_masked_no_grad(struct graph *graph, uint32_t x, uint32_t mask, float number)
{
    return outside_autograd(graph, WORK_MASKED_FILL, ATEN_MASKED_FILL, dtype_of(graph, x),
                            *shape_of(graph, x), 2, (uint32_t[]){x, mask},
                            (struct kernel_attr){.p = number});
}

void op_put_number(struct graph *graph, uint32_t x, uint32_t ids, float number)
{
    const uint32_t op = begin(graph, OP_PUT_NUMBER, 2, (uint32_t[]){x, ids});
    const uint32_t out = graph_view(graph, x, *shape_of(graph, x));
    graph->ops[op].attr.p = number;
    graph->ops[op].out[graph->ops[op].outs++] = out;
    graph_op_done(graph, op);
}

OP_CLASS(put_number) = {
    .label = ATEN_SCATTER_VALUE_, .work = WORK_SCATTER_NUMBER, .in_place = true};

uint32_t op_fill(struct graph *graph, enum aten aten, enum dtype dtype, struct shape shape,
                 float number)
{
    const enum work_kind work = isinf(number) ? WORK_FILL_LOWEST : WORK_FILL;
    const float p = isinf(number) ? 0 : number;
    return outside_autograd(graph, work, aten, dtype, shape, 0, NULL, (struct kernel_attr){.p = p});
}

uint32_t op_arange_from(struct graph *graph, enum aten aten, enum dtype dtype, uint32_t first,
                        uint32_t count)
{
    return outside_autograd(graph, WORK_ARANGE, aten, dtype, SHAPE(count), 0, NULL,
                            (struct kernel_attr){.first = first});
}

uint32_t op_slice_copied(struct graph *graph, uint32_t x, struct shape shape, uint32_t first)
{
    return outside_autograd(graph, WORK_SLICE, ATEN_CLONE, dtype_of(graph, x), shape, 1, &x,
                            (struct kernel_attr){.first = first});
}

OP_CLASS(no_grad) = {.label = ATEN_NONE}; /* each says its own */
