/* mamba1.c - see mamba1.h. */
#include "hf/mamba1.h"

#include "model/count.h"

static uint32_t inner_of(const struct model_config *c)
{
    return c->ssm_expand * c->hidden;
}

double hf_mamba1_count(const struct model_config *c)
{
    const double h = c->hidden, i = inner_of(c), n = c->ssm_state, r = c->scan_rank;
    return 3 * h * i + count_linear(i, c->conv_width, c->conv_bias) + i * (r + 2 * n) + i * r + i +
           i * n + i + r + 2 * n;
}

enum err_code hf_mamba1_check(const struct key_table *table, const struct model_config *c,
                              const char *where, struct err *err)
{
    if (inner_of(c) % CONV_CHANNELS == 0)
        return ERR_OK;
    return err_set(err, ERR_INVALID,
                   "%s: \"%s\": %u times \"%s\": %u are %u channels; causal-conv1d has kernels for "
                   "a multiple of %d",
                   where, NAME_OF(table, ssm_expand), c->ssm_expand, NAME_OF(table, hidden),
                   c->hidden, inner_of(c), CONV_CHANNELS);
}

struct hf_mamba1 hf_mamba1_declare(struct graph *graph, const struct model_config *c,
                                   const char *prefix)
{
    const uint32_t h = c->hidden, i = inner_of(c), n = c->ssm_state, r = c->scan_rank;
    struct hf_mamba1 mamba;
    mamba.a_log = graph_param(graph, PARAM_WEIGHT, SHAPE(i, n), "%sA_log", prefix);
    mamba.skip = graph_param(graph, PARAM_NORM, SHAPE(i), "%sD", prefix);
    mamba.conv = build_short_filter(graph, prefix, "conv1d", i, c->conv_width, c->conv_bias);
    mamba.in = build_linear(graph, prefix, "in_proj", 2 * i, h, false);
    mamba.x = build_linear(graph, prefix, "x_proj", r + 2 * n, i, false);
    mamba.dt = build_read_linear(graph, prefix, "dt_proj", i, r, true);
    mamba.out = build_linear(graph, prefix, "out_proj", h, i, false);
    graph->lies_across = graph_param_of(graph, mamba.out.weight)->name;
    mamba.dt_norm = build_norm(graph, prefix, "dt_layernorm", r, false, c->norm_eps);
    mamba.b_norm = build_norm(graph, prefix, "b_layernorm", n, false, c->norm_eps);
    mamba.c_norm = build_norm(graph, prefix, "c_layernorm", n, false, c->norm_eps);
    return mamba;
}

/* dt_proj's weight times steps (b, s, r), which go: (b, i, s). torch.matmul takes all tokens for
 * rows of one product where the weight needs a gradient, and turns that round by a copy. */
static uint32_t widened(struct graph *graph, const struct hf_mamba1 *mamba, uint32_t steps)
{
    const struct shape s = graph->tensors[steps].shape;
    const struct graph_tensor *weight = &graph->tensors[mamba->dt.weight];
    const struct shape w = weight->shape;
    if (!weight->requires_grad) {
        const uint32_t each =
            op_expand(graph, graph_view(graph, mamba->dt.weight, SHAPE(1, w.dim[0], w.dim[1])),
                      SHAPE(s.dim[0], w.dim[0], w.dim[1]));
        const uint32_t out = op_bmm(graph, each, graph_transpose(graph, steps, 1, 2));
        graph_drop(graph, steps);
        return out;
    }
    const uint32_t product = op_linear(graph, steps, mamba->dt.weight, GRAPH_NONE);
    const uint32_t seen = op_reshape(graph, product, graph->tensors[product].shape);
    const uint32_t out = op_unary(graph, OP_CLONE, graph_transpose(graph, seen, 1, 2));
    graph_drop(graph, product);
    graph_drop(graph, steps);
    return out;
}

/* A parameter in fp32, for the scan. */
static void drop_cast(struct graph *graph, uint32_t param, uint32_t wide)
{
    if (wide != param)
        graph_drop(graph, wide);
}

uint32_t hf_mamba1(struct graph *graph, const struct model_config *c, const struct hf_mamba1 *mamba,
                   uint32_t given)
{
    const uint32_t n = c->ssm_state, y = hf_unpadded(graph, given);
    uint32_t half[2], part[3];
    hf_call_outer(graph, mamba->out.weight);
    const uint32_t projected = apply_linear(graph, y, mamba->in);
    const uint32_t a = hf_decay(graph, mamba->a_log);
    op_chunk_across(graph, op_reshape(graph, projected, graph->tensors[projected].shape), 2, half);
    const uint32_t conv =
        op_causal_conv(graph, half[0], mamba->conv.weight, mamba->conv.bias, true);
    const uint32_t u = hf_unpadded(graph, conv);
    if (u != conv)
        graph_drop(graph, conv);
    const uint32_t x = apply_linear(graph, u, mamba->x);
    op_parts(graph, x, 3, (uint32_t[]){c->scan_rank, n, n}, part);
    const uint32_t steps = hf_rms_norm_called(graph, part[0], mamba->dt_norm);
    const uint32_t b = hf_rms_norm_called(graph, part[1], mamba->b_norm);
    const uint32_t to = hf_rms_norm_called(graph, part[2], mamba->c_norm);
    graph_drop(graph, x);
    const uint32_t delta = widened(graph, mamba, steps);
    const uint32_t bias = op_to(graph, mamba->dt.bias, DTYPE_FP32);
    const uint32_t skip = op_to(graph, mamba->skip, DTYPE_FP32);
    const struct selective_scan scan = {.u = u,
                                        .delta = delta,
                                        .decay = a,
                                        .b = b,
                                        .c = to,
                                        .skip = skip,
                                        .z = half[1],
                                        .bias = bias};
    const uint32_t scanned = op_selective_scan(graph, &scan);
    drop_cast(graph, mamba->skip, skip);
    hf_call(graph, mamba->out.weight); /* which copies what it is given, or does not fold it */
    const uint32_t out = apply_linear(graph, graph_transpose(graph, scanned, 1, 2), mamba->out);
    graph_call_end(graph);
    hf_drop_unpadded(graph, given, y);
    graph_drop(graph, a);
    graph_drop(graph, u);
    graph_drop(graph, projected); /* of which the gate is a part */
    graph_drop(graph, delta);
    graph_drop(graph, b);
    graph_drop(graph, to);
    drop_cast(graph, mamba->dt.bias, bias);
    graph_drop(graph, scanned);
    graph_call_end(graph);
    return out;
}
