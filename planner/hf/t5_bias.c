/* t5_bias.c - T5's relative position bias, step by step as Python computes it.
 *
 * A distance falls into a bucket: small ones into one each, larger ones into buckets that grow
 * with the logarithm; the encoder has half of them for each direction. The bucket of every pair
 * (s, s) is looked up in an embedding of one number a head. Nothing but that lookup is part of
 * autograd: it keeps the buckets, in int64, until backward. */
#include "hf/t5.h"

#include <float.h>
#include <math.h>

#define FARTHEST 128.0F /* relative_attention_max_distance of every T5 */

uint32_t t5_step(struct graph *graph, enum work_kind work, enum aten aten, enum dtype dtype,
                 struct shape shape, uint32_t x, uint32_t spent)
{
    const uint32_t out = op_no_grad(graph, work, aten, dtype, shape, 1, &x);
    if (spent != GRAPH_NONE)
        graph_drop(graph, spent);
    return out;
}

/* The same with a number, which takes the place of x. */
static uint32_t t5_number(struct graph *graph, enum work_kind work, enum aten aten,
                          enum dtype dtype, uint32_t x, float number)
{
    const uint32_t out = op_number(graph, work, aten, dtype, graph->tensors[x].shape, x, number);
    graph_drop(graph, x);
    return out;
}

/* max_exact + (log(distance / max_exact) / log(max / max_exact) * rest).long(), at most the last
 * bucket. */
static uint32_t large_bucket(struct graph *graph, uint32_t distance, uint32_t buckets)
{
    const struct shape square = graph->tensors[distance].shape;
    const enum dtype f32 = DTYPE_FP32, i64 = DTYPE_INT64;
    const uint32_t half = buckets / 2;
    const float exact = (float)half, rest = (float)(buckets - half);
    uint32_t x = t5_step(graph, WORK_CAST, ATEN_TO_COPY, f32, square, distance, GRAPH_NONE);
    x = t5_number(graph, WORK_DIV_NUMBER, ATEN_DIV, f32, x, exact);
    x = t5_step(graph, WORK_LOG, ATEN_LOG, f32, square, x, x);
    x = t5_number(graph, WORK_DIV_NUMBER, ATEN_DIV, f32, x, logf(FARTHEST / exact));
    x = t5_number(graph, WORK_MUL_NUMBER, ATEN_MUL, f32, x, rest);
    x = t5_step(graph, WORK_CAST, ATEN_TO_COPY, i64, square, x, x);
    x = t5_number(graph, WORK_ADD_NUMBER, ATEN_ADD, i64, x, exact);
    const uint32_t last = op_fill(graph, ATEN_FULL_LIKE, i64, square, (float)buckets - 1);
    const uint32_t least = op_no_grad(graph, WORK_MINIMUM, ATEN_MINIMUM, DTYPE_INT64, square, 2,
                                      (uint32_t[]){x, last});
    graph_drop(graph, last);
    graph_drop(graph, x);
    return least;
}

/* _relative_position_bucket: the encoder has half of its buckets for each direction. */
static uint32_t bucket_of(struct graph *graph, uint32_t relative, uint32_t buckets, bool decoder)
{
    const struct shape square = graph->tensors[relative].shape;
    const enum dtype i64 = DTYPE_INT64;
    uint32_t side = GRAPH_NONE, distance;
    if (decoder) {
        const uint32_t zeros = op_fill(graph, ATEN_ZEROS_LIKE, i64, square, 0.0F);
        distance = op_no_grad(graph, WORK_MINIMUM, ATEN_MINIMUM, i64, square, 2,
                              (uint32_t[]){relative, zeros});
        graph_drop(graph, zeros);
        distance = t5_step(graph, WORK_NEG, ATEN_NEG, i64, square, distance, distance);
    } else {
        buckets /= 2;
        side = op_number(graph, WORK_GREATER_NUMBER, ATEN_GT, DTYPE_BOOL, square, relative, 0.0F);
        side = t5_step(graph, WORK_CAST, ATEN_TO_COPY, i64, square, side, side);
        side = t5_number(graph, WORK_MUL_NUMBER, ATEN_MUL, i64, side, (float)buckets);
        side = t5_number(graph, WORK_ADD_NUMBER, ATEN_ADD, i64, side, 0.0F);
        distance = t5_step(graph, WORK_ABS, ATEN_ABS, i64, square, relative, GRAPH_NONE);
    }
    const uint32_t half = buckets / 2;
    const uint32_t small =
        op_number(graph, WORK_LESS_NUMBER, ATEN_LT, DTYPE_BOOL, square, distance, (float)half);
    const uint32_t large = large_bucket(graph, distance, buckets);
    const uint32_t chosen = op_no_grad(graph, WORK_WHERE, ATEN_WHERE, i64, square, 3,
                                       (uint32_t[]){small, distance, large});
    if (decoder) /* 0 + a tensor: a new one */
        side = t5_number(graph, WORK_ADD_NUMBER, ATEN_ADD, i64, chosen, 0.0F);
    else
        op_add_in_place(graph, side, chosen);
    if (!decoder)
        graph_drop(graph, chosen);
    graph_drop(graph, distance);
    graph_drop(graph, small);
    graph_drop(graph, large);
    return side;
}

uint32_t t5_position_bias(struct graph *graph, uint32_t s, uint32_t buckets, bool decoder)
{
    const uint32_t heads = graph->tensors[buckets].shape.dim[1];
    const enum dtype i64 = DTYPE_INT64;
    const uint32_t range = op_arange(graph, s);
    const uint32_t context =
        op_number(graph, WORK_ADD_NUMBER, ATEN_ADD, i64, SHAPE(s, 1), range, 0.0F);
    graph_drop(graph, range);
    const uint32_t memory = op_arange(graph, s);
    const uint32_t relative =
        op_no_grad(graph, WORK_SUB, ATEN_SUB, i64, SHAPE(s, s), 2, (uint32_t[]){memory, context});
    const uint32_t bucket =
        bucket_of(graph, relative, graph->tensors[buckets].shape.dim[0], decoder);
    const uint32_t values = op_embedding(graph, bucket, buckets);
    graph_drop(graph, context);
    graph_drop(graph, memory);
    graph_drop(graph, relative);
    graph_drop(graph, bucket);
    const uint32_t by_row = graph_transpose(graph, values, 1, 2); /* (s, s, a) -> (a, s, s) */
    return graph_view(graph, graph_transpose(graph, by_row, 0, 1), SHAPE(1, heads, s, s));
}

/* torch.finfo(dtype).min */
static float lowest(enum dtype dtype)
{
    return dtype == DTYPE_FP16 ? -65504.0F : dtype == DTYPE_BF16 ? -0x1.fep127F : -FLT_MAX;
}

uint32_t t5_own_bias(struct graph *graph, uint32_t bias, bool causal)
{
    const uint32_t s = graph->tensors[bias].shape.dim[2];
    const bool copied = s > 1 && graph->tensors[bias].shape.dim[1] > 1; /* else contiguous */
    if (!causal || s == 1)
        return copied ? op_unary(graph, OP_CLONE, bias) : bias;
    const uint32_t rows = op_arange(graph, s), columns = op_arange(graph, s);
    const uint32_t below[] = {graph_view(graph, rows, SHAPE(s, 1)), columns};
    const uint32_t mask =
        op_no_grad(graph, WORK_GREATER_EQUAL, ATEN_GE, DTYPE_BOOL, SHAPE(s, s), 2, below);
    graph_drop(graph, rows);
    graph_drop(graph, columns);
    const uint32_t masked =
        op_where(graph, mask, bias, lowest((enum dtype)graph->tensors[bias].dtype));
    const uint32_t copy = copied ? op_unary(graph, OP_CLONE, masked) : masked;
    graph_drop(graph, mask);
    if (copied)
        graph_drop(graph, masked);
    return copy;
}
