/* delta.c - see delta.h. */
#include "hf/delta.h"

#include "model/count.h"

#define APART_EPS 1e-5F /* of OLMo Hybrid's norm of heads, whatever the file says */

struct sizes {
    uint32_t keys, values, channels; /* i d, a e, and of the convolution */
};

static struct sizes sizes_of(const struct model_config *c)
{
    const uint32_t keys = c->delta_key_heads * c->delta_key_dim;
    const uint32_t values = c->delta_value_heads * c->delta_value_dim;
    return (struct sizes){keys, values, 2 * keys + values};
}

uint32_t hf_delta_channels(const struct model_config *c)
{
    return sizes_of(c).channels;
}

double hf_delta_count(const struct model_config *c)
{
    const struct sizes n = sizes_of(c);
    const double h = c->hidden, a = c->delta_value_heads;
    return h * ((double)n.channels + n.values + 2 * a) + h * n.values +
           (double)n.channels * c->conv_width + 2 * a + c->delta_value_dim;
}

/* OLMo Hybrid's. */
static struct hf_delta declare_apart(struct graph *graph, const struct model_config *c,
                                     const char *prefix)
{
    const struct sizes n = sizes_of(c);
    const uint32_t h = c->hidden, a = c->delta_value_heads;
    struct hf_delta delta = {.conv = GRAPH_NONE};
    delta.a_log = graph_param(graph, PARAM_WEIGHT, SHAPE(a), "%sA_log", prefix);
    if (graph->made != DTYPE_FP32 && !graph->tensors[delta.a_log].requires_grad)
        graph_own_dtype(graph, delta.a_log, DTYPE_FP32); /* torch.empty(..., dtype=torch.float32) */
    delta.dt_bias = graph_param(graph, PARAM_NORM, SHAPE(a), "%sdt_bias", prefix);
    delta.qkv = build_linear(graph, prefix, "q_proj", n.keys, h, false);
    delta.k = build_linear(graph, prefix, "k_proj", n.keys, h, false);
    delta.v = build_linear(graph, prefix, "v_proj", n.values, h, false);
    delta.a = build_linear(graph, prefix, "a_proj", a, h, false);
    delta.b = build_linear(graph, prefix, "b_proj", a, h, false);
    delta.z = build_linear(graph, prefix, "g_proj", n.values, h, false);
    delta.out = build_linear(graph, prefix, "o_proj", h, n.values, false);
    delta.conv =
        build_short_filter(graph, prefix, "conv1d", n.channels, c->conv_width, false).weight;
    delta.norm = build_norm(graph, prefix, "o_norm", c->delta_value_dim, false, APART_EPS);
    return delta;
}

struct hf_delta hf_delta_declare(struct graph *graph, const struct model_config *c,
                                 const char *prefix)
{
    const struct sizes n = sizes_of(c);
    const uint32_t h = c->hidden, a = c->delta_value_heads;
    struct hf_delta delta = {.conv = GRAPH_NONE};
    if (c->delta_apart)
        return declare_apart(graph, c, prefix);
    delta.dt_bias = graph_param(graph, PARAM_NORM, SHAPE(a), "%sdt_bias", prefix);
    delta.a_log = graph_param(graph, PARAM_WEIGHT, SHAPE(a), "%sA_log", prefix);
    delta.conv =
        build_short_filter(graph, prefix, "conv1d", n.channels, c->conv_width, false).weight;
    if (c->joint_delta) {
        delta.qkv = build_linear(graph, prefix, "in_proj_qkvz", n.channels + n.values, h, false);
        delta.b = build_linear(graph, prefix, "in_proj_ba", 2 * a, h, false);
    }
    delta.norm = build_norm(graph, prefix, "norm", c->delta_value_dim, false, c->norm_eps);
    delta.out = build_linear(graph, prefix, "out_proj", h, n.values, false);
    if (c->joint_delta)
        return delta;
    delta.qkv = build_linear(graph, prefix, "in_proj_qkv", n.channels, h, false);
    delta.z = build_linear(graph, prefix, "in_proj_z", n.values, h, false);
    delta.b = build_linear(graph, prefix, "in_proj_b", a, h, false);
    delta.a = build_linear(graph, prefix, "in_proj_a", a, h, false);
    return delta;
}

/* -exp(A_log) · softplus(a + dt_bias), in fp32: (b, s, a). `given`: a, which stays the caller's;
 * GRAPH_NONE: it is made of y. */
static uint32_t decay(struct graph *graph, const struct hf_delta *delta, uint32_t given, uint32_t y)
{
    const uint32_t minus = hf_decay(graph, delta->a_log);
    const uint32_t a = given == GRAPH_NONE ? apply_linear(graph, y, delta->a) : given;
    const uint32_t wide = op_to(graph, a, DTYPE_FP32);
    if (wide != a && a != given)
        graph_drop(graph, a);
    const uint32_t shifted = op_add(graph, wide, delta->dt_bias);
    if (wide != given)
        graph_drop(graph, wide);
    const uint32_t step = op_unary(graph, OP_SOFTPLUS, shifted);
    graph_drop(graph, shifted);
    const uint32_t g = op_mul(graph, minus, step);
    graph_drop(graph, minus);
    graph_drop(graph, step);
    return g;
}

/* RMSNorm of x (n, e), times silu(z) in fp32. */
static uint32_t gated_norm(struct graph *graph, struct norm norm, uint32_t x, uint32_t z)
{
    const enum dtype dtype = (enum dtype)graph->tensors[x].dtype;
    uint32_t variance;
    hf_call(graph, norm.weight);
    const uint32_t normed = hf_rms_normed(graph, x, norm.eps, &variance);
    const uint32_t cast = op_to(graph, normed, dtype);
    const uint32_t weighted = op_mul(graph, norm.weight, cast);
    if (cast != normed)
        graph_drop(graph, cast);
    graph_drop(graph, normed);
    const uint32_t gate = op_to(graph, z, DTYPE_FP32);
    const uint32_t active = op_unary(graph, OP_SILU, gate);
    if (gate != z)
        graph_drop(graph, gate);
    const uint32_t product = op_mul(graph, weighted, active);
    graph_drop(graph, active);
    graph_drop(graph, weighted);
    const uint32_t out = op_to(graph, product, dtype);
    if (out != product)
        graph_drop(graph, product);
    graph_drop(graph, variance);
    graph_call_end(graph);
    return out;
}

struct projected {
    uint32_t mixed; /* q, k and v beside each other (b, s, 2 i d + a e) */
    uint32_t z, b, a;
    uint32_t held[2], holds; /* what else is Python's until all is done */
    uint32_t parts[3];       /* ... until the convolution has taken their names */
    uint32_t part_count;
};

static struct projected project(struct graph *graph, const struct hf_delta *delta, uint32_t y)
{
    struct projected p = {.holds = 0};
    p.mixed = apply_linear(graph, y, delta->qkv);
    p.z = apply_linear(graph, y, delta->z);
    p.b = apply_linear(graph, y, delta->b);
    p.a = apply_linear(graph, y, delta->a);
    return p;
}

/* A part of what was split, in another shape: a copy. */
static uint32_t gathered(struct graph *graph, uint32_t part, struct shape shape)
{
    return graph_view(graph, op_unary(graph, OP_CLONE, part), shape);
}

/* The same from joint products (b, s, i, ...). */
static struct projected project_joint(struct graph *graph, const struct model_config *c,
                                      const struct hf_delta *delta, uint32_t y)
{
    const struct sizes n = sizes_of(c);
    const uint32_t b = graph->tensors[y].shape.dim[0], s = graph->tensors[y].shape.dim[1];
    const uint32_t i = c->delta_key_heads, a = c->delta_value_heads, d = c->delta_key_dim;
    const struct shape keys = SHAPE(b, s, n.keys), values = SHAPE(b, s, n.values);
    uint32_t part[4], half[2];
    struct projected p = {.holds = 2, .part_count = 3};
    p.held[0] = apply_linear(graph, y, delta->qkv);
    p.held[1] = apply_linear(graph, y, delta->b);
    op_parts(graph, graph_view(graph, p.held[0], SHAPE(b, s, i, 2 * (d + n.values / i))), 4,
             (uint32_t[]){d, d, n.values / i, n.values / i}, part);
    op_parts(graph, graph_view(graph, p.held[1], SHAPE(b, s, i, 2 * a / i)), 2,
             (uint32_t[]){a / i, a / i}, half);
    p.parts[2] = gathered(graph, part[2], values);
    p.z = gathered(graph, part[3], values);
    p.b = gathered(graph, half[0], SHAPE(b, s, a));
    p.a = gathered(graph, half[1], SHAPE(b, s, a));
    p.parts[0] = gathered(graph, part[0], keys);
    p.parts[1] = gathered(graph, part[1], keys);
    p.mixed = op_cat_parts(graph, 3, p.parts);
    return p;
}

/* The rule on parts (b, s, .) of what was convolved: (b, s, a, e) */
static uint32_t apply_rule(struct graph *graph, const struct model_config *c,
                           const uint32_t part[3], uint32_t g, uint32_t beta)
{
    const uint32_t b = graph->tensors[g].shape.dim[0], s = graph->tensors[g].shape.dim[1];
    const struct shape few = SHAPE(b, s, c->delta_key_heads, c->delta_key_dim);
    const struct shape all = SHAPE(b, s, c->delta_value_heads, c->delta_value_dim);
    const struct delta_rule rule = {.q = graph_view(graph, part[0], few),
                                    .k = graph_view(graph, part[1], few),
                                    .v = graph_view(graph, part[2], all),
                                    .g = g,
                                    .beta = beta};
    return op_gated_delta_rule(graph, &rule);
}

/* q, k and v by three products, side by side and convolved. */
static uint32_t convolve_apart(struct graph *graph, const struct hf_delta *delta, uint32_t y)
{
    const uint32_t parts[3] = {apply_linear(graph, y, delta->qkv), apply_linear(graph, y, delta->k),
                               apply_linear(graph, y, delta->v)};
    const uint32_t mixed = op_cat_parts(graph, 3, parts);
    for (int i = 3; i-- > 0;) /* a list's */
        graph_drop(graph, parts[i]);
    const uint32_t conv = op_causal_conv(graph, mixed, delta->conv, GRAPH_NONE, true);
    graph_drop(graph, mixed);
    const uint32_t all = op_slice_last(graph, graph_transpose(graph, conv, 1, 2), 0,
                                       graph->tensors[conv].shape.dim[1]); /* [:, :, -s:] */
    return graph_transpose(graph, all, 1, 2);
}

/* sigmoid(b y), perhaps twice that. */
static uint32_t beta_apart(struct graph *graph, const struct model_config *c,
                           const struct hf_delta *delta, uint32_t y)
{
    const uint32_t product = apply_linear(graph, y, delta->b);
    const uint32_t beta = op_unary(graph, OP_SIGMOID, product);
    graph_drop(graph, product);
    if (!c->delta_twice)
        return beta;
    const uint32_t twice = op_scalar(graph, OP_MUL_SCALAR, beta, 2);
    graph_drop(graph, beta);
    return twice;
}

/* hf_delta where each product is one of its own, made when it is asked for. */
static uint32_t run_apart(struct graph *graph, const struct model_config *c,
                          const struct hf_delta *delta, uint32_t given)
{
    const struct sizes n = sizes_of(c);
    const uint32_t y = hf_unpadded(graph, given);
    const uint32_t b = graph->tensors[y].shape.dim[0], s = graph->tensors[y].shape.dim[1];
    const uint32_t e = c->delta_value_dim, rows = b * s * c->delta_value_heads;
    uint32_t part[3];
    hf_call_outer(graph, delta->out.weight);
    const uint32_t conv = convolve_apart(graph, delta, y);
    op_parts(graph, conv, 3, (uint32_t[]){n.keys, n.keys, n.values}, part);
    const uint32_t beta = beta_apart(graph, c, delta, y);
    const uint32_t g = decay(graph, delta, GRAPH_NONE, y);
    const uint32_t o = apply_rule(graph, c, part, g, beta);
    const uint32_t z = apply_linear(graph, y, delta->z);
    const uint32_t gated = gated_norm(graph, delta->norm, graph_view(graph, o, SHAPE(rows, e)),
                                      graph_view(graph, z, SHAPE(rows, e)));
    graph_drop(graph, o);
    const uint32_t out =
        apply_linear(graph, graph_view(graph, gated, SHAPE(b, s, n.values)), delta->out);
    graph_drop(graph, gated);
    hf_drop_unpadded(graph, given, y);
    graph_drop(graph, conv);
    graph_drop(graph, beta);
    graph_drop(graph, g);
    graph_drop(graph, z);
    graph_call_end(graph);
    return out;
}

uint32_t hf_delta(struct graph *graph, const struct model_config *c, const struct hf_delta *delta,
                  uint32_t given)
{
    if (c->delta_apart)
        return run_apart(graph, c, delta, given);
    const struct sizes n = sizes_of(c);
    const uint32_t y = hf_unpadded(graph, given);
    const uint32_t b = graph->tensors[y].shape.dim[0], s = graph->tensors[y].shape.dim[1];
    const uint32_t a = c->delta_value_heads, e = c->delta_value_dim, rows = b * s * a;
    uint32_t part[3];
    hf_call_outer(graph, delta->out.weight);
    const struct projected p =
        c->joint_delta ? project_joint(graph, c, delta, y) : project(graph, delta, y);
    const uint32_t conv = op_causal_conv(graph, p.mixed, delta->conv, GRAPH_NONE, true);
    graph_drop(graph, p.mixed);
    for (uint32_t i = 0; i < p.part_count; i++)
        graph_drop(graph, p.parts[i]);
    op_parts(graph, conv, 3, (uint32_t[]){n.keys, n.keys, n.values}, part);
    const uint32_t beta = op_unary(graph, OP_SIGMOID, p.b);
    const uint32_t g = decay(graph, delta, p.a, y);
    const uint32_t o = apply_rule(graph, c, part, g, beta);
    const uint32_t gated = gated_norm(graph, delta->norm, graph_view(graph, o, SHAPE(rows, e)),
                                      graph_view(graph, p.z, SHAPE(rows, e)));
    graph_drop(graph, o);
    const uint32_t out =
        apply_linear(graph, graph_view(graph, gated, SHAPE(b, s, n.values)), delta->out);
    hf_drop_unpadded(graph, given, y);
    for (uint32_t i = 0; i < p.holds; i++)
        graph_drop(graph, p.held[i]);
    graph_drop(graph, p.z);
    graph_drop(graph, p.b);
    graph_drop(graph, p.a);
    graph_drop(graph, conv);
    graph_drop(graph, beta);
    graph_drop(graph, g);
    graph_drop(graph, gated);
    graph_call_end(graph);
    return out;
}
