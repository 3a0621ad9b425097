/* build_t5_bias.c - T5's relative position bias, step by step as Python computes it.
 *
 * A distance falls into a bucket: small ones into one each, larger ones into buckets that grow
 * with the logarithm; the encoder has half of them for each direction. The bucket of every pair
 * (s, s) is looked up in an embedding of one number a head. Nothing but that lookup is part of
 * autograd: it keeps the buckets, in int64, until backward. */
#include "model/build_t5.h"

uint32_t t5_step(struct graph *graph, enum aten aten, enum dtype dtype, struct shape shape,
                 uint32_t x, uint32_t spent)
{
    const uint32_t out =
        op_no_grad(graph, aten, dtype, shape, x == GRAPH_NONE ? 0 : 1, (uint32_t[]){x});
    if (spent != GRAPH_NONE)
        graph_drop(graph, spent);
    return out;
}

/* max_exact + (log(distance / max_exact) / log(max / max_exact) * rest).long(), at most the last
 * bucket. */
static uint32_t large_bucket(struct graph *graph, uint32_t distance, struct shape square)
{
    uint32_t x = t5_step(graph, ATEN_TO_COPY, DTYPE_FP32, square, distance, GRAPH_NONE);
    x = t5_step(graph, ATEN_DIV, DTYPE_FP32, square, x, x);
    x = t5_step(graph, ATEN_LOG, DTYPE_FP32, square, x, x);
    x = t5_step(graph, ATEN_DIV, DTYPE_FP32, square, x, x);
    x = t5_step(graph, ATEN_MUL, DTYPE_FP32, square, x, x);
    x = t5_step(graph, ATEN_TO_COPY, DTYPE_INT64, square, x, x);
    x = t5_step(graph, ATEN_ADD, DTYPE_INT64, square, x, x);
    const uint32_t last =
        t5_step(graph, ATEN_FULL_LIKE, DTYPE_INT64, square, GRAPH_NONE, GRAPH_NONE);
    const uint32_t least =
        op_no_grad(graph, ATEN_MINIMUM, DTYPE_INT64, square, 2, (uint32_t[]){x, last});
    graph_drop(graph, last);
    graph_drop(graph, x);
    return least;
}

/* _relative_position_bucket: the encoder has half of its buckets for each direction. */
static uint32_t bucket_of(struct graph *graph, uint32_t relative, bool decoder)
{
    const struct shape square = graph->tensors[relative].shape;
    const enum dtype i64 = DTYPE_INT64;
    uint32_t side = GRAPH_NONE, distance;
    if (decoder) {
        const uint32_t zeros = t5_step(graph, ATEN_ZEROS_LIKE, i64, square, GRAPH_NONE, GRAPH_NONE);
        distance = op_no_grad(graph, ATEN_MINIMUM, i64, square, 2, (uint32_t[]){relative, zeros});
        graph_drop(graph, zeros);
        distance = t5_step(graph, ATEN_NEG, i64, square, distance, distance);
    } else {
        side = t5_step(graph, ATEN_GT, DTYPE_BOOL, square, relative, GRAPH_NONE);
        side = t5_step(graph, ATEN_TO_COPY, i64, square, side, side);
        side = t5_step(graph, ATEN_MUL, i64, square, side, side);
        side = t5_step(graph, ATEN_ADD, i64, square, side, side);
        distance = t5_step(graph, ATEN_ABS, i64, square, relative, GRAPH_NONE);
    }
    const uint32_t small = t5_step(graph, ATEN_LT, DTYPE_BOOL, square, distance, GRAPH_NONE);
    const uint32_t large = large_bucket(graph, distance, square);
    const uint32_t chosen =
        op_no_grad(graph, ATEN_WHERE, i64, square, 3, (uint32_t[]){small, distance, large});
    if (decoder)
        side = t5_step(graph, ATEN_ADD, i64, square, chosen, chosen); /* 0 + a tensor: a new one */
    else
        graph_drop(graph, chosen); /* added in place */
    graph_drop(graph, distance);
    graph_drop(graph, small);
    graph_drop(graph, large);
    return side;
}

uint32_t t5_position_bias(struct graph *graph, uint32_t s, uint32_t buckets, bool decoder)
{
    const uint32_t heads = graph->tensors[buckets].shape.dim[1];
    const enum dtype i64 = DTYPE_INT64;
    uint32_t context = op_arange(graph, s);
    context = t5_step(graph, ATEN_ADD, i64, SHAPE(s, 1), context, context);
    const uint32_t memory = op_arange(graph, s);
    const uint32_t relative =
        op_no_grad(graph, ATEN_SUB, i64, SHAPE(s, s), 2, (uint32_t[]){memory, context});
    const uint32_t bucket = bucket_of(graph, relative, decoder);
    const uint32_t values = op_embedding(graph, bucket, buckets);
    graph_drop(graph, context);
    graph_drop(graph, memory);
    graph_drop(graph, relative);
    graph_drop(graph, bucket);
    return graph_view(graph, values, SHAPE(1, heads, s, s));
}

uint32_t t5_own_bias(struct graph *graph, uint32_t bias, bool causal)
{
    if (!causal)
        return op_unary(graph, OP_CLONE, bias);
    const uint32_t s = graph->tensors[bias].shape.dim[2];
    const uint32_t rows = op_arange(graph, s), columns = op_arange(graph, s);
    const uint32_t mask =
        op_no_grad(graph, ATEN_GE, DTYPE_BOOL, SHAPE(s, s), 2, (uint32_t[]){rows, columns});
    graph_drop(graph, rows);
    graph_drop(graph, columns);
    const uint32_t masked = op_where(graph, mask, bias);
    const uint32_t copy = op_unary(graph, OP_CLONE, masked);
    graph_drop(graph, mask);
    graph_drop(graph, masked);
    return copy;
}
