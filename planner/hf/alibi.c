/* alibi.c - ALiBi as Falcon's model file in transformers has it (hf.h): a bias of each head's slope
 * times the key's place, from a mask of ones, made once and put into the mask. */
#include "hf/hf.h"

#include <float.h>
#include <math.h>

float hf_least(enum dtype dtype)
{
    return dtype == DTYPE_FP32 ? -FLT_MAX : dtype == DTYPE_FP16 ? -65504.0F : -0x1.fep127F;
}

/* 1 .. a as powers of 2^(-8/a): (a, 1) in bf16. What it is made of is Python's: names[3]. */
static uint32_t slopes(struct graph *graph, uint32_t a, uint32_t names[3])
{
    const float base = (float)pow(2, -8.0 / a);
    const struct shape scalar = {.rank = 0};
    names[0] = op_fill(graph, ATEN_FULL, DTYPE_FP32, scalar, base);
    names[1] = op_arange_from(graph, ATEN_ARANGE_START, DTYPE_INT32, 1, a);
    names[2] =
        op_number(graph, WORK_POWER_OF, ATEN_POW_TENSORS, DTYPE_FP32, SHAPE(a), names[1], base);
    return names[2];
}

uint32_t hf_alibi_places(struct graph *graph, uint32_t ones)
{
    const struct shape shape = graph->tensors[ones].shape;
    const uint32_t count =
        op_no_grad(graph, WORK_CUMULATIVE_SUM, ATEN_CUMSUM, DTYPE_INT64, shape, 1, &ones);
    const uint32_t place =
        op_number(graph, WORK_ADD_NUMBER, ATEN_SUB, DTYPE_INT64, shape, count, -1.0F);
    graph_drop(graph, count);
    const uint32_t masked =
        op_no_grad(graph, WORK_MUL, ATEN_MUL, DTYPE_INT64, shape, 2, (uint32_t[]){place, ones});
    graph_drop(graph, place);
    return masked;
}

struct hf_alibi hf_alibi(struct graph *graph, const struct model_config *c,
                         const struct model_job *job, enum dtype dtype)
{
    const uint32_t b = job->batch, s = job->seq, a = c->heads;
    uint32_t names[3];
    const bool padded = graph->attention_mask != GRAPH_NONE;
    const uint32_t ones =
        padded ? graph->attention_mask : op_fill(graph, ATEN_ONES, DTYPE_INT64, SHAPE(b, s), 1.0F);
    const uint32_t slope = slopes(graph, a, names);
    const uint32_t place = hf_alibi_places(graph, ones);
    const uint32_t column = graph_view(graph, slope, SHAPE(a, 1));
    const uint32_t cast =
        op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_BF16, SHAPE(a, 1), 1, &column);
    const uint32_t row = graph_view(graph, place, SHAPE(b, 1, s));
    const uint32_t product = op_no_grad(graph, WORK_MUL, ATEN_MUL, DTYPE_BF16, SHAPE(b, a, s), 2,
                                        (uint32_t[]){row, cast});
    graph_drop(graph, cast);
    const uint32_t flat = graph_view(graph, product, SHAPE(b * a, 1, s));
    const uint32_t bias = op_to(graph, flat, dtype);
    for (int i = 0; i < 3; i++)
        graph_drop(graph, names[i]);
    graph_drop(graph, place);
    if (bias != flat)
        graph_drop(graph, product);
    return (struct hf_alibi){.bias = graph_view(graph, bias, SHAPE(b, a, 1, s)),
                             .ones = padded ? GRAPH_NONE : ones};
}

uint32_t hf_alibi_mask(struct graph *graph, const struct model_config *c,
                       const struct model_job *job, struct hf_alibi alibi, uint32_t mask)
{
    const uint32_t b = job->batch, s = job->seq, a = c->heads;
    const struct shape scalar = {.rank = 0}, square = SHAPE(b, 1, s, s), all = SHAPE(b, a, s, s);
    const enum dtype dtype = (enum dtype)graph->tensors[alibi.bias].dtype;
    const float least = hf_least(dtype);
    const uint32_t zero = op_fill(graph, ATEN_FULL, dtype, scalar, 0.0F);
    const uint32_t number = op_fill(graph, ATEN_SCALAR_TENSOR, dtype, scalar, least);
    const uint32_t added = op_no_grad(graph, WORK_WHERE, ATEN_WHERE, dtype, square, 3,
                                      (uint32_t[]){mask, zero, number});
    graph_drop(graph, number);
    graph_drop(graph, zero);
    graph_drop(graph, mask);
    const uint32_t scaled = op_number(graph, WORK_DIV_NUMBER, ATEN_DIV, dtype, SHAPE(b, a, 1, s),
                                      alibi.bias, sqrtf((float)c->head_dim));
    const uint32_t outside =
        op_number(graph, WORK_LESS_NUMBER, ATEN_LT, DTYPE_BOOL, square, added, -1.0F);
    const uint32_t out = op_masked_no_grad(graph, graph_expand(graph, scaled, all), outside, least);
    graph_drop(graph, scaled);
    graph_drop(graph, outside);
    graph_drop(graph, added);
    return out;
}
