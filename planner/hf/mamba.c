/* mamba.c - see mamba.h. */
#include "hf/mamba.h"

#include "model/count.h"
#include "model/keys.h"

static uint32_t inner_of(const struct model_config *c)
{
    return c->ssm_heads * c->ssm_head_dim;
}

uint32_t hf_mamba_channels(const struct model_config *c)
{
    return inner_of(c) + 2 * c->ssm_groups * c->ssm_state;
}

uint32_t hf_mamba_width(const struct model_config *c)
{
    return inner_of(c) + hf_mamba_channels(c) + c->ssm_heads;
}

double hf_mamba_count(const struct model_config *c)
{
    const double h = c->hidden, i = inner_of(c);
    return count_linear(hf_mamba_width(c), h, c->ssm_bias) + count_linear(h, i, c->ssm_out_bias) +
           count_linear(hf_mamba_channels(c), c->conv_width, c->conv_bias) + 3.0 * c->ssm_heads +
           (c->ssm_unnormed ? 0 : i);
}

enum err_code hf_mamba_check(const struct key_table *table, const struct model_config *c,
                             const char *where, struct err *err)
{
    const char *heads = NAME_OF(table, ssm_heads), *state = NAME_OF(table, ssm_state);
    if (c->ssm_heads % c->ssm_groups)
        return key_does_not_divide(where, NAME_OF(table, ssm_groups), c->ssm_groups, heads,
                                   c->ssm_heads, err);
    if (c->ssm_head_dim == 0 || c->ssm_head_dim > HEAD_DIM_MAX) /* Granite's comes of others */
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u heads of %u numbers: expected 1 ... %d",
                       where, heads, c->ssm_heads, c->ssm_head_dim, HEAD_DIM_MAX);
    if (hf_mamba_channels(c) % CONV_CHANNELS || hf_mamba_width(c) % CONV_CHANNELS)
        return err_set(err, ERR_INVALID,
                       "%s: \"%s\": %u of %u numbers, with \"%s\": %u: %u channels of %u columns; "
                       "both are planned as multiples of %d, for which causal-conv1d has kernels "
                       "that read them where they are",
                       where, heads, c->ssm_heads, c->ssm_head_dim, state, c->ssm_state,
                       hf_mamba_channels(c), hf_mamba_width(c), CONV_CHANNELS);
    return ERR_OK;
}

/* Falcon-H1's mup_vector. */
static uint32_t declare_factors(struct graph *graph, const struct model_config *c)
{
    const uint32_t i = inner_of(c), n = c->ssm_groups * c->ssm_state;
    const uint32_t widths[] = {i, i, n, n, c->ssm_heads};
    struct buffer_values values = {.kind = VALUES_PARTS};
    if (!(c->ssm_multipliers[0] > 0))
        return GRAPH_NONE;
    values.parts = sizeof widths / sizeof *widths;
    for (uint32_t part = 0; part < values.parts; part++) {
        values.widths[part] = widths[part];
        values.numbers[part] = c->ssm_multipliers[part];
    }
    return graph_buffer(graph, graph->made, SHAPE(1, 1, hf_mamba_width(c)), &values);
}

struct hf_mamba hf_mamba_declare(struct graph *graph, const struct model_config *c,
                                 const char *prefix)
{
    const uint32_t h = c->hidden, a = c->ssm_heads, i = inner_of(c);
    struct hf_mamba mamba;
    mamba.dt_bias = graph_param(graph, PARAM_NORM, SHAPE(a), "%sdt_bias", prefix);
    mamba.a_log = graph_param(graph, PARAM_WEIGHT, SHAPE(a), "%sA_log", prefix);
    mamba.skip = graph_param(graph, PARAM_NORM, SHAPE(a), "%sD", prefix);
    mamba.conv = build_short_filter(graph, prefix, "conv1d", hf_mamba_channels(c), c->conv_width,
                                    c->conv_bias);
    mamba.in = build_linear(graph, prefix, "in_proj", hf_mamba_width(c), h, c->ssm_bias);
    mamba.norm = (struct norm){.weight = GRAPH_NONE};
    if (!c->ssm_unnormed) {
        mamba.norm = build_norm(graph, prefix, "norm", i, false, c->norm_eps);
        graph_read_around(graph, mamba.norm.weight);
    }
    mamba.out = build_read_linear(graph, prefix, "out_proj", h, i, c->ssm_out_bias);
    mamba.factors = declare_factors(graph, c);
    return mamba;
}

uint32_t hf_mamba(struct graph *graph, const struct model_config *c, const struct hf_mamba *mamba,
                  uint32_t given)
{
    const uint32_t y = hf_unpadded(graph, given);
    hf_call_outer(graph, mamba->out.weight);
    const bool scaled = c->ssm_in_multiplier > 0;
    const uint32_t x = scaled ? op_scalar(graph, OP_MUL_SCALAR, y, c->ssm_in_multiplier) : y;
    if (scaled) /* which it takes the place of */
        hf_drop_unpadded(graph, given, y);
    uint32_t projected = apply_linear(graph, x, mamba->in);
    if (mamba->factors != GRAPH_NONE) {
        const uint32_t product = op_mul_constant(graph, projected, mamba->factors);
        graph_drop(graph, projected);
        projected = product;
    }
    const uint32_t a = hf_decay(graph, mamba->a_log);
    const struct mamba2 mixer = {.all = projected,
                                 .conv = mamba->conv.weight,
                                 .conv_bias = mamba->conv.bias,
                                 .dt_bias = mamba->dt_bias,
                                 .decay = a,
                                 .skip = mamba->skip,
                                 .norm = mamba->norm.weight,
                                 .out = mamba->out.weight,
                                 .out_bias = mamba->out.bias,
                                 .groups = c->ssm_groups,
                                 .chunk = c->ssm_chunk,
                                 .eps = mamba->norm.eps};
    const uint32_t out = op_mamba2(graph, &mixer);
    if (scaled)
        graph_drop(graph, x);
    else
        hf_drop_unpadded(graph, given, y);
    graph_drop(graph, projected);
    graph_drop(graph, a);
    graph_call_end(graph);
    return out;
}
