/* xielu.c - xIELU in Python arithmetic (transformers' activations.py, where its CUDA extension is
 * not installed): an activation with two parameters.
 *
 *     a = softplus(alpha_p), b = beta + softplus(alpha_n)
 *     y = a x² + beta x           where x > 0
 *         b (expm1(x) - x) + beta x   elsewhere */
#include "hf/decoder.h"

#include <math.h>

static uint32_t declare_alpha(struct graph *graph, const char *prefix, const char *name,
                              double alpha)
{
    const uint32_t parameter =
        graph_param(graph, PARAM_NORM, SHAPE(1), "%sact_fn.%s", prefix, name);
    graph_init_param(graph, parameter,
                     (struct param_init){.kind = INIT_NUMBER, .number = log(expm1(alpha))});
    return parameter;
}

static uint32_t declare_number(struct graph *graph, float number)
{
    const struct buffer_values values = {.kind = VALUES_NUMBER, .number = number};
    return graph_buffer(graph, graph->made, (struct shape){.rank = 0}, &values);
}

struct hf_xielu hf_xielu_declare(struct graph *graph, const char *prefix)
{
    struct hf_xielu xielu = {.alpha_p = declare_alpha(graph, prefix, "alpha_p", 0.8)};
    xielu.alpha_n = declare_alpha(graph, prefix, "alpha_n", 0.8 - 0.5);
    xielu.beta = declare_number(graph, 0.5F);
    xielu.eps = declare_number(graph, -1e-6F);
    return xielu;
}

/* sum + beta x; `sum` is let go. */
static uint32_t with_line(struct graph *graph, const struct hf_xielu *xielu, uint32_t sum,
                          uint32_t x)
{
    const uint32_t line = op_mul_constant(graph, x, xielu->beta);
    const uint32_t out = op_add(graph, sum, line);
    graph_drop(graph, sum);
    graph_drop(graph, line);
    return out;
}

static uint32_t positive(struct graph *graph, const struct hf_xielu *xielu, uint32_t alpha,
                         uint32_t x)
{
    const uint32_t once = op_mul(graph, alpha, x);
    const uint32_t square = op_mul(graph, once, x);
    graph_drop(graph, once);
    return with_line(graph, xielu, square, x);
}

static uint32_t negative(struct graph *graph, const struct hf_xielu *xielu, uint32_t alpha,
                         uint32_t x)
{
    const uint32_t least = op_minimum(graph, x, xielu->eps);
    const uint32_t grown = op_unary(graph, OP_EXPM1, least);
    graph_drop(graph, least);
    const uint32_t rest = op_sub(graph, grown, x);
    graph_drop(graph, grown);
    const uint32_t scaled = op_mul(graph, rest, alpha);
    graph_drop(graph, rest);
    return with_line(graph, xielu, scaled, x);
}

uint32_t hf_xielu(struct graph *graph, const struct hf_xielu *xielu, uint32_t x)
{
    hf_call(graph, xielu->alpha_p);
    const uint32_t alpha_p = op_unary(graph, OP_SOFTPLUS, xielu->alpha_p);
    const uint32_t growth = op_unary(graph, OP_SOFTPLUS, xielu->alpha_n);
    const uint32_t alpha_n = op_add(graph, growth, xielu->beta);
    graph_drop(graph, growth);
    const uint32_t above = op_number(graph, WORK_GREATER_NUMBER, ATEN_GT, DTYPE_BOOL,
                                     graph->tensors[x].shape, x, 0.0F);
    const uint32_t right = positive(graph, xielu, alpha_p, x);
    const uint32_t left = negative(graph, xielu, alpha_n, x);
    const uint32_t out = op_choose(graph, above, right, left);
    graph_drop(graph, above);
    graph_drop(graph, right);
    graph_drop(graph, left);
    graph_drop(graph, alpha_p);
    graph_drop(graph, alpha_n);
    graph_call_end(graph);
    return out;
}
