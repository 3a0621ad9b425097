/* logged.c - see logged.h. */
#include "model/logged.h"

uint32_t logged_number(struct graph *graph, enum work_kind work, enum aten aten, uint32_t x)
{
    const enum dtype of = (enum dtype)graph->tensors[x].dtype;
    const enum dtype dtype = of == DTYPE_BOOL ? DTYPE_INT64 : of;
    return op_no_grad(graph, work, aten, dtype, (struct shape){.rank = 0}, 1, &x);
}

uint32_t logged_sum(struct graph *graph, uint32_t x)
{
    return logged_number(graph, WORK_SUM, ATEN_SUM, x);
}

uint32_t logged_summed(struct graph *graph, uint32_t x)
{
    const uint32_t sum = logged_sum(graph, x);
    graph_drop(graph, x);
    return sum;
}

void logged_read(struct graph *graph, uint32_t x)
{
    op_read(graph, x);
    graph_drop(graph, x);
}

void logged_mean(struct graph *graph, uint32_t x)
{
    logged_read(graph, logged_number(graph, WORK_MEAN, ATEN_MEAN_ALL, x));
}

uint32_t logged_both(struct graph *graph, enum work_kind work, enum aten aten, enum dtype dtype,
                     uint32_t x, uint32_t y)
{
    return op_no_grad(graph, work, aten, dtype, graph->tensors[x].shape, 2, (uint32_t[]){x, y});
}
