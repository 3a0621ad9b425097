/* norm.c - LayerNorms that model files write themselves, and Gemma 4's RMSNorm (hf.h). */
#include "hf/hf.h"

/* (x - mean) · rsqrt(mean((x - mean)²) + eps), where x - mean is computed twice. */
static uint32_t centred(struct graph *graph, uint32_t x, uint32_t mean, uint32_t variance,
                        float eps)
{
    const uint32_t difference = op_sub(graph, x, mean);
    const uint32_t shifted = op_scalar(graph, OP_ADD_SCALAR, variance, eps);
    const uint32_t rstd = op_unary(graph, OP_RSQRT, shifted);
    graph_drop(graph, shifted);
    const uint32_t normed = op_mul(graph, difference, rstd);
    graph_drop(graph, difference);
    graph_drop(graph, rstd);
    return normed;
}

static uint32_t variance_of(struct graph *graph, uint32_t x, uint32_t mean)
{
    const uint32_t difference = op_sub(graph, x, mean);
    const uint32_t square = op_scalar(graph, OP_POW, difference, 2.0F);
    graph_drop(graph, difference);
    const uint32_t variance = op_mean_last(graph, square);
    graph_drop(graph, square);
    return variance;
}

uint32_t hf_layer_norm_wide(struct graph *graph, uint32_t x, struct norm norm)
{
    const uint32_t upcast = op_to(graph, x, DTYPE_FP32);
    const uint32_t mean = op_mean_last(graph, upcast);
    const uint32_t variance = variance_of(graph, upcast, mean);
    const uint32_t normed = centred(graph, upcast, mean, variance, norm.eps);
    if (upcast != x)
        graph_drop(graph, upcast);
    const uint32_t weight = op_to(graph, norm.weight, DTYPE_FP32);
    const uint32_t product = op_mul(graph, weight, normed);
    if (weight != norm.weight)
        graph_drop(graph, weight);
    graph_drop(graph, normed);
    const uint32_t out = op_to(graph, product, (enum dtype)graph->tensors[x].dtype);
    if (out != product)
        graph_drop(graph, product);
    graph_drop(graph, mean);
    graph_drop(graph, variance);
    return out;
}

/* Under autocast its arguments are cast to that dtype (_cast_if_autocast_enabled), and the call is
 * outside of it. */
uint32_t hf_layer_norm_plus_one(struct graph *graph, uint32_t x, struct norm norm)
{
    const bool casts = graph->autocast.on;
    const uint32_t input = op_call_input(graph, x);
    const uint32_t weight = op_scalar(graph, OP_ADD_SCALAR, norm.weight, 1.0F);
    const uint32_t called[3] = {input, weight, norm.bias};
    uint32_t in[3] = {input, weight, norm.bias};
    for (uint32_t i = 0; i < 3 && casts; i++)
        in[i] = op_to(graph, called[i], graph->autocast.dtype);
    if (in[1] != weight)
        graph_drop(graph, weight);
    graph->autocast.on = false;
    const uint32_t out = op_layer_norm(graph, in[0], in[1], in[2], norm.eps);
    graph->autocast.on = casts;
    for (uint32_t i = 3; i-- > 0;)
        if (i == 1 || in[i] != called[i])
            graph_drop(graph, in[i]);
    return out;
}

uint32_t hf_layer_norm_bare(struct graph *graph, uint32_t x, struct norm norm)
{
    const uint32_t upcast = op_to(graph, x, DTYPE_FP32);
    const uint32_t normed = op_layer_norm(graph, upcast, GRAPH_NONE, GRAPH_NONE, norm.eps);
    if (upcast != x)
        graph_drop(graph, upcast);
    const uint32_t out = op_to(graph, normed, (enum dtype)graph->tensors[x].dtype);
    if (out != normed)
        graph_drop(graph, normed);
    return out;
}

/* upcast · (mean(upcast²) + eps) to the power -1/2 */
static uint32_t powered(struct graph *graph, uint32_t x, uint32_t upcast, float eps)
{
    const uint32_t square = op_scalar(graph, OP_POW, upcast, 2.0F);
    const uint32_t mean = op_mean_last(graph, square);
    graph_drop(graph, square);
    const uint32_t shifted = op_scalar(graph, OP_ADD_SCALAR, mean, eps);
    graph_drop(graph, mean);
    const uint32_t root = op_scalar(graph, OP_POW, shifted, -0.5F);
    const uint32_t normed = op_mul(graph, upcast, root);
    graph_drop(graph, root);
    if (upcast != x)
        graph_drop(graph, upcast);
    graph_drop(graph, shifted);
    return normed;
}

uint32_t hf_rms_norm_power(struct graph *graph, uint32_t x, struct norm norm)
{
    uint32_t wide = powered(graph, x, op_to(graph, x, DTYPE_FP32), norm.eps);
    if (!norm.bare) {
        const uint32_t weight = op_to(graph, norm.weight, DTYPE_FP32);
        const uint32_t product = op_mul(graph, wide, weight);
        if (weight != norm.weight)
            graph_drop(graph, weight);
        graph_drop(graph, wide);
        wide = product;
    }
    const uint32_t out = op_to(graph, wide, (enum dtype)graph->tensors[x].dtype);
    if (out != wide)
        graph_drop(graph, wide);
    return out;
}

uint32_t hf_rms_norm_called(struct graph *graph, uint32_t x, struct norm norm)
{
    hf_call(graph, norm.weight);
    const uint32_t out = hf_rms_norm(graph, x, norm);
    graph_call_end(graph);
    return out;
}
