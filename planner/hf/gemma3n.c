/* gemma3n.c - Gemma 3n's text model as Hugging Face's transformers writes it.
 *
 * A layer is called with n hidden states side by side, x (n, b, s, h), and computes one (AltUp):
 *
 *     p = x + x · predict(m(x_i))                   m = tanh(route(norm · / h)), n numbers a token
 *     y = before(p_i)
 *     g = (p_i + after(attention y) + y + norm(right(left y))) / root 2         (LAuReL)
 *     z = g + after'(mlp(before' g))
 *     x = p + (z - p_i) · (1 + correct(m(z)))
 *     x_j += norm(up(act(gate(x_i · scale)) · part))     for j >= 1, part of a second embedding
 *
 * In some layers the feed-forward's gate is cut off below its mean and so many standard deviations
 * (activation sparsity). Attention is Gemma 4's, which the last layers share keys and values of.
 * The n states are the embedding and products of it as long as it is; at the end the mean of the
 * same the other way. What correct and predict are made of is limited: correct's by a copy,
 * predict's weight in place, which no plan has a kernel for (n³ numbers). */
#include "hf/decoder.h"
#include "hf/gemma4.h"

#include <math.h>
#include <stdio.h>

static const float root_of_half = 0.70710678F; /* 1 / sqrt(2) */

enum place { INPUT, POST_ATTENTION, PRE_MLP, POST_MLP, NORMS };

struct altup {
    uint32_t scale; /* (h) */
    struct linear correct, predict, route;
    struct norm norm;
    uint32_t input_scale; /* a buffer () */
};

struct block {
    struct gemma4_attention attention;
    struct hf_mlp mlp;
    bool sparse;
    struct norm norms[NORMS];
    struct altup altup;
    struct linear left, right; /* LAuReL */
    struct norm laurel_norm;
    struct linear gate, project; /* of its part of the second embedding */
    struct norm part_norm;
};

struct model { /* hf_ahead.layers */
    struct block *blocks;
    uint32_t table, part_scale; /* of the second embedding: (v, l n), a buffer () */
    struct linear part_projection;
    struct norm part_norm;
    uint32_t projection_scale, sum_scale; /* buffers () */
    struct linear spread[GRAPH_OPERANDS], gather[GRAPH_OPERANDS];
    uint32_t target, projected, own,
        states[GRAPH_OPERANDS]; /* Python's between and behind layers */
    enum dtype dtype;           /* of the embedding's rows */
};

/* ---- parameters ---- */

static struct norm declare_norm(struct graph *graph, const struct model_config *c,
                                const char *layer, const char *name)
{
    return build_norm(graph, layer, name, c->hidden, false, c->norm_eps);
}

static uint32_t number(struct graph *graph, float value)
{
    const struct buffer_values values = {.kind = VALUES_NUMBER, .number = value};
    return graph_buffer(graph, graph->made, (struct shape){.rank = 0}, &values);
}

static struct altup declare_altup(struct graph *graph, const struct model_config *c,
                                  const char *layer)
{
    const uint32_t n = c->altup_inputs, h = c->hidden;
    char prefix[96];
    struct altup altup;
    snprintf(prefix, sizeof prefix, "%s.altup.", layer);
    altup.scale = graph_param(graph, PARAM_NORM, SHAPE(h), "%scorrect_output_scale", prefix);
    graph_init_param(graph, altup.scale, (struct param_init){.kind = INIT_ZEROS});
    altup.correct = build_linear(graph, prefix, "correction_coefs", n, n, false);
    altup.predict = build_linear(graph, prefix, "prediction_coefs", n * n, n, false);
    graph_read_around(graph, altup.correct.weight); /* both are limited */
    graph_read_by_outer(graph, altup.predict.weight);
    altup.route = build_linear(graph, prefix, "modality_router", n, h, false);
    altup.norm = declare_norm(graph, c, prefix, "router_norm");
    altup.input_scale = number(graph, 1 / (float)h);
    return altup;
}

static void declare_block(struct graph *graph, const struct model_config *c, uint32_t index,
                          const char *layer, struct block *block)
{
    static const char *const norms[NORMS] = {".input_layernorm", ".post_attention_layernorm",
                                             ".pre_feedforward_layernorm",
                                             ".post_feedforward_layernorm"};
    const uint32_t h = c->hidden, n = c->layer_width;
    char prefix[96];
    snprintf(prefix, sizeof prefix, "%s.mlp.", layer);
    block->attention = gemma4_attention_declare(graph, c, index, layer, true);
    block->mlp = hf_mlp_declare(graph, c, prefix, c->ffn);
    block->sparse = layer_listed(&c->sparse_layers, index);
    for (int i = 0; i < NORMS; i++)
        block->norms[i] = declare_norm(graph, c, layer, norms[i]);
    block->altup = declare_altup(graph, c, layer);
    snprintf(prefix, sizeof prefix, "%s.laurel.", layer);
    block->left = build_linear(graph, prefix, "linear_left", c->laurel_rank, h, false);
    block->right = build_linear(graph, prefix, "linear_right", h, c->laurel_rank, false);
    block->laurel_norm = declare_norm(graph, c, prefix, "post_laurel_norm");
    block->gate = build_linear(graph, layer, ".per_layer_input_gate", n, h, false);
    block->project = build_linear(graph, layer, ".per_layer_projection", h, n, false);
    block->part_norm = declare_norm(graph, c, layer, ".post_per_layer_input_norm");
}

static void declare_rest(struct graph *graph, const struct model_config *c, struct model *model)
{
    const uint32_t n = c->layer_width, all = c->layers * n, h = c->hidden;
    char name[64];
    model->part_scale = number(graph, sqrtf((float)n));
    model->table = graph_param(graph, PARAM_WEIGHT, SHAPE(c->layer_vocab, all),
                               "model.embed_tokens_per_layer.weight");
    model->part_projection =
        build_linear(graph, "model.", "per_layer_model_projection", all, h, false);
    model->part_norm =
        build_norm(graph, "model.", "per_layer_projection_norm", n, false, c->norm_eps);
    for (uint32_t i = 1; i < c->altup_inputs; i++) {
        snprintf(name, sizeof name, "altup_projections.%u", i - 1);
        model->spread[i] = build_linear(graph, "model.", name, h, h, false);
    }
    for (uint32_t i = 1; i < c->altup_inputs; i++) {
        snprintf(name, sizeof name, "altup_unembed_projections.%u", i - 1);
        model->gather[i] = build_linear(graph, "model.", name, h, h, false);
    }
    model->projection_scale = number(graph, 1 / sqrtf((float)h));
    model->sum_scale = number(graph, root_of_half);
}

/* ---- pieces ---- */

/* The way of the norms and modules that all of it has. */
static const struct hf_decoder norms_way = {.norm = hf_rms_norm_power};

static uint32_t normed(struct graph *graph, uint32_t x, struct norm norm)
{
    return hf_decoder_normed(graph, &norms_way, x, norm);
}

/* The same, and x is let go. */
static uint32_t then_normed(struct graph *graph, uint32_t x, struct norm norm)
{
    const uint32_t out = normed(graph, x, norm);
    graph_drop(graph, x);
    return out;
}

/* x times a buffer () in the compute dtype: in its place, or else x goes first. */
static uint32_t scaled(struct graph *graph, uint32_t x, uint32_t buffer, bool in_place)
{
    const uint32_t cast = op_to(graph, buffer, graph->compute);
    uint32_t out;
    if (in_place) {
        out = op_mul_in_place(graph, x, cast);
    } else {
        out = op_mul_constant(graph, x, cast);
        graph_drop(graph, x);
    }
    if (cast != buffer)
        graph_drop(graph, cast);
    return out;
}

/* One of x (n, b, s, h): (b, s, h). */
static uint32_t one_of(struct graph *graph, uint32_t x, uint32_t i)
{
    const struct shape s = graph->tensors[x].shape;
    return graph_view(graph, op_select(graph, x, 0, i), SHAPE(s.dim[1], s.dim[2], s.dim[3]));
}

/* What a token's states are made of: tanh(route(norm(x) · scale)) in fp32, cast back (b, s, n). */
static uint32_t modalities(struct graph *graph, const struct altup *altup, uint32_t x)
{
    hf_call(graph, altup->norm.weight); /* each module is called twice by a layer */
    const uint32_t even = normed(graph, x, altup->norm);
    graph_call_end(graph);
    const uint32_t input = op_mul_constant(graph, even, altup->input_scale);
    graph_drop(graph, even);
    hf_call(graph, altup->route.weight);
    const uint32_t routed = apply_linear(graph, input, altup->route);
    graph_call_end(graph);
    const uint32_t wide = op_to(graph, routed, DTYPE_FP32);
    const uint32_t bounded = op_unary(graph, OP_TANH, wide);
    if (wide != routed)
        graph_drop(graph, wide);
    const uint32_t out = op_to(graph, bounded, (enum dtype)graph->tensors[x].dtype);
    if (out != bounded)
        graph_drop(graph, bounded);
    graph_drop(graph, input);
    graph_drop(graph, routed);
    return out;
}

/* (n, b, s, h) as (b, s, h, n), and back. */
static uint32_t states_last(struct graph *graph, uint32_t x)
{
    for (uint32_t i = 0; i < 3; i++)
        x = graph_transpose(graph, x, i, i + 1);
    return x;
}

static uint32_t states_first(struct graph *graph, uint32_t x)
{
    for (uint32_t i = 3; i > 0; i--)
        x = graph_transpose(graph, x, i - 1, i);
    return x;
}

/* p of x (n, b, s, h). */
static uint32_t predict(struct graph *graph, const struct model_config *c,
                        const struct altup *altup, uint32_t x)
{
    const struct shape all = graph->tensors[x].shape;
    const uint32_t n = all.dim[0], b = all.dim[1], s = all.dim[2];
    const uint32_t of = modalities(graph, altup, one_of(graph, x, c->altup_active));
    const uint32_t product = apply_linear(graph, of, altup->predict);
    const uint32_t coefs =
        graph_transpose(graph, op_reshape(graph, product, SHAPE(b, s, n, n)), 2, 3);
    const uint32_t base = op_matmul(graph, states_last(graph, op_alias(graph, x)), coefs);
    const uint32_t sum = op_add_to_seen(graph, base, states_first(graph, base), x);
    const uint32_t seen = op_as_strided(graph, sum, sum);
    const uint32_t lined = op_unary(graph, OP_CLONE, seen);
    const uint32_t out = op_to(graph, lined, (enum dtype)graph->tensors[x].dtype);
    if (out != lined)
        graph_drop(graph, lined);
    graph_drop(graph, of);
    graph_drop(graph, product);
    graph_drop(graph, seen);
    return out;
}

/* p + (z - p_i) · (1 + correct(m(z))) */
static uint32_t correct(struct graph *graph, const struct model_config *c,
                        const struct altup *altup, uint32_t p, uint32_t z)
{
    const struct shape all = graph->tensors[p].shape;
    const uint32_t n = all.dim[0], b = all.dim[1], s = all.dim[2];
    const uint32_t of = modalities(graph, altup, z);
    const uint32_t new = op_sub(graph, z, one_of(graph, p, c->altup_active));
    const uint32_t each = op_copies(graph, new, n);
    graph_drop(graph, new);
    const uint32_t weight = op_limit(graph, altup->correct.weight, c->altup_clip, true);
    const uint32_t product = op_linear(graph, of, weight, GRAPH_NONE);
    const uint32_t coefs = op_scalar(graph, OP_ADD_SCALAR, product, 1.0F);
    graph_drop(graph, product);
    const uint32_t turned = graph_transpose(graph, graph_transpose(graph, coefs, 1, 2), 0, 1);
    const uint32_t changed = op_mul(graph, each, graph_view(graph, turned, SHAPE(n, b, s, 1)));
    const uint32_t out = op_add_in_place(graph, changed, p);
    graph_drop(graph, of);
    graph_drop(graph, each);
    graph_drop(graph, weight);
    graph_drop(graph, coefs);
    return out;
}

/* y + norm(right(left y)) */
static uint32_t laurel(struct graph *graph, const struct block *block, uint32_t given)
{
    hf_call_outer(graph, block->left.weight);
    const uint32_t y = op_call_input(graph, given); /* attention is called by keywords */
    const uint32_t low = apply_linear(graph, y, block->left);
    const uint32_t product = apply_linear(graph, low, block->right);
    graph_drop(graph, low);
    const uint32_t even = normed(graph, product, block->laurel_norm);
    const uint32_t sum = op_add(graph, y, even);
    graph_drop(graph, product);
    graph_drop(graph, even);
    graph_call_end(graph);
    return sum;
}

/* How many standard deviations above its mean a number is larger than that share of them: () in
 * x's dtype. The class's own is on the host, but for `share`; held[3]: Python's. */
static uint32_t deviations(struct graph *graph, float share, enum dtype dtype, uint32_t held[3])
{
    const struct shape one = {.rank = 0};
    held[0] = op_fill(graph, ATEN_LIFT_FRESH, DTYPE_FP32, one, share);
    held[1] = op_fill(graph, ATEN_LIFT_FRESH, DTYPE_FP32, one, 0.0F);
    held[2] = op_fill(graph, ATEN_LIFT_FRESH, DTYPE_FP32, one, 1.0F);
    const uint32_t twice =
        op_number(graph, WORK_MUL_NUMBER, ATEN_MUL, DTYPE_FP32, one, held[0], 2.0F);
    const uint32_t less =
        op_number(graph, WORK_ADD_NUMBER, ATEN_SUB, DTYPE_FP32, one, twice, -1.0F);
    graph_drop(graph, twice);
    const uint32_t inverse = op_no_grad(graph, WORK_OTHER, ATEN_ERFINV, DTYPE_FP32, one, 1, &less);
    graph_drop(graph, less);
    const uint32_t wide =
        op_no_grad(graph, WORK_MUL, ATEN_MUL, DTYPE_FP32, one, 2, (uint32_t[]){held[2], inverse});
    graph_drop(graph, inverse);
    const uint32_t normal =
        op_number(graph, WORK_MUL_NUMBER, ATEN_MUL, DTYPE_FP32, one, wide, sqrtf(2.0F));
    graph_drop(graph, wide);
    const uint32_t sum =
        op_no_grad(graph, WORK_ADD, ATEN_ADD, DTYPE_FP32, one, 2, (uint32_t[]){held[1], normal});
    graph_drop(graph, normal);
    const uint32_t out = op_to(graph, sum, dtype);
    if (out != sum)
        graph_drop(graph, sum);
    return out;
}

/* relu(x - (mean + deviation · so many)), in the place of x. */
static uint32_t cut_off(struct graph *graph, const struct model_config *c, uint32_t x)
{
    uint32_t held[3];
    const uint32_t count =
        deviations(graph, c->sparsity, (enum dtype)graph->tensors[x].dtype, held);
    const uint32_t mean = op_mean_last(graph, x), deviation = op_std_last(graph, x);
    const uint32_t above = op_mul_constant(graph, deviation, count);
    const uint32_t cut = op_add(graph, mean, above);
    graph_drop(graph, above);
    const uint32_t rest = op_sub(graph, x, cut), out = op_unary(graph, OP_RELU, rest);
    graph_drop(graph, rest);
    for (int i = 0; i < 3; i++)
        graph_drop(graph, held[i]);
    graph_drop(graph, count);
    graph_drop(graph, mean);
    graph_drop(graph, deviation);
    graph_drop(graph, cut);
    graph_drop(graph, x);
    return out;
}

static uint32_t feed_forward(struct graph *graph, const struct model_config *c,
                             const struct block *block, uint32_t y)
{
    const struct hf_mlp *mlp = &block->mlp;
    hf_call_outer(graph, mlp->gate.weight);
    uint32_t gate = apply_linear(graph, y, mlp->gate);
    if (block->sparse)
        gate = cut_off(graph, c, gate);
    const uint32_t active =
        hf_activation_beside(graph, c->activation, gate, mlp->gate.weight, "act_fn");
    const uint32_t up = apply_linear(graph, y, mlp->up);
    const uint32_t product = op_mul(graph, active, up);
    const uint32_t out = apply_linear(graph, product, mlp->down);
    graph_drop(graph, product);
    graph_drop(graph, gate);
    graph_drop(graph, active);
    graph_drop(graph, up);
    graph_call_end(graph);
    return out;
}

/* ---- a layer ---- */

/* norm(up(act(gate(x · scale)) · part)) of x (b, s, h), which goes; Python's name for all of that
 * comes behind that of `corrected`. */
static uint32_t part_of_layer(struct graph *graph, const struct model_config *c,
                              const struct block *block, uint32_t x, uint32_t part,
                              uint32_t corrected)
{
    if (c->altup_scaled) {
        const uint32_t out = op_mul(graph, x, block->altup.scale);
        graph_drop(graph, x);
        x = out;
    }
    const uint32_t gate = apply_linear(graph, x, block->gate);
    graph_drop(graph, x);
    const uint32_t active =
        hf_activation_beside(graph, c->activation, gate, block->gate.weight, "act_fn");
    graph_drop(graph, gate);
    const uint32_t product = op_mul(graph, active, part);
    graph_drop(graph, active);
    const uint32_t projected = apply_linear(graph, product, block->project);
    graph_drop(graph, product);
    const uint32_t out = normed(graph, projected, block->part_norm);
    graph_rebind(graph, projected, corrected);
    graph_dies_before(graph, corrected, out);
    return out;
}

static uint32_t layer(struct graph *graph, const struct model_config *c,
                      const struct model_job *job, const struct hf_layer_call *call)
{
    const struct block *block = ((const struct model *)call->ahead->layers)->blocks + call->index;
    uint32_t weights;
    (void)job;
    const uint32_t p = predict(graph, c, &block->altup, call->x);
    const uint32_t active = one_of(graph, p, c->altup_active);
    const uint32_t y = normed(graph, active, block->norms[INPUT]);
    const uint32_t low = laurel(graph, block, y);
    const uint32_t attended =
        then_normed(graph, gemma4_attention(graph, c, &block->attention, call, y, &weights),
                    block->norms[POST_ATTENTION]);
    const uint32_t gated = op_add(graph, active, attended), sum = op_add(graph, gated, low);
    const uint32_t both = op_scalar(graph, OP_DIV_SCALAR, sum, sqrtf(2.0F));
    graph_drop(graph, sum);
    const uint32_t y2 = normed(graph, both, block->norms[PRE_MLP]);
    const uint32_t fed = feed_forward(graph, c, block, y2);
    const uint32_t even = normed(graph, fed, block->norms[POST_MLP]);
    const uint32_t z = op_add(graph, both, even);
    const uint32_t corrected = correct(graph, c, &block->altup, p, z);
    const uint32_t first = op_unary(graph, OP_CLONE, one_of(graph, corrected, c->altup_active));
    const uint32_t part = part_of_layer(graph, c, block, first, call->beside, corrected);
    const uint32_t out = op_add_to_others(graph, corrected, part);
    graph_drop(graph, p);
    graph_drop(graph, y);
    graph_drop(graph, low);
    graph_drop(graph, attended);
    if (weights != GRAPH_NONE)
        graph_drop(graph, weights);
    graph_drop(graph, gated);
    graph_drop(graph, both);
    graph_drop(graph, y2);
    graph_drop(graph, fed);
    graph_drop(graph, even);
    graph_drop(graph, z);
    graph_drop(graph, part);
    return out;
}

/* ---- around layers ---- */

/* The root of the mean square of rows. */
static uint32_t magnitude(struct graph *graph, uint32_t x)
{
    const uint32_t square = op_scalar(graph, OP_POW, x, 2.0F);
    const uint32_t mean = op_mean_last(graph, square);
    graph_drop(graph, square);
    const uint32_t out = op_scalar(graph, OP_POW, mean, 0.5F);
    graph_drop(graph, mean);
    return out;
}

/* Names that Python has for what it last computed, here and there; GRAPH_NONE: for nothing. */
static void name(struct graph *graph, uint32_t *variable, uint32_t value)
{
    if (*variable != GRAPH_NONE)
        graph_drop(graph, *variable);
    *variable = value;
}

/* x, in `dtype`, times `target` over its own magnitude, 1e-5 in the square at the least. `former`
 * is what Python had under the name of that; GRAPH_NONE: nothing that goes. */
static uint32_t as_long(struct graph *graph, struct model *model, uint32_t x, enum dtype dtype,
                        uint32_t former)
{
    const uint32_t current = op_to(graph, x, dtype);
    if (former != GRAPH_NONE)
        graph_drop(graph, former);
    const uint32_t square = op_scalar(graph, OP_POW, current, 2.0F);
    const uint32_t mean = op_mean_last(graph, square);
    graph_drop(graph, square);
    name(graph, &model->own, GRAPH_NONE);
    const uint32_t least = op_at_least(graph, mean, 1e-5F);
    model->own = op_unary(graph, OP_SQRT, least);
    graph_drop(graph, least);
    graph_drop(graph, mean);
    const uint32_t product = op_mul(graph, current, model->target);
    const uint32_t out = op_div(graph, product, model->own);
    graph_drop(graph, product);
    if (current != x)
        graph_drop(graph, current);
    return out;
}

static uint32_t spread(struct graph *graph, const struct model_config *c, struct hf_ahead *ahead,
                       uint32_t x)
{
    struct model *model = ahead->layers;
    uint32_t states[GRAPH_OPERANDS] = {x};
    model->dtype = (enum dtype)graph->tensors[x].dtype;
    model->target = magnitude(graph, x);
    for (uint32_t i = 1; i < c->altup_inputs; i++) {
        name(graph, &model->projected, apply_linear(graph, x, model->spread[i]));
        states[i] = as_long(graph, model, model->projected, model->dtype, GRAPH_NONE);
        model->states[i] = states[i];
    }
    return op_stack(graph, c->altup_inputs, states);
}

static uint32_t gather(struct graph *graph, const struct model_config *c, struct hf_ahead *ahead,
                       uint32_t x)
{
    struct model *model = ahead->layers;
    const uint32_t n = c->altup_inputs, first = one_of(graph, x, 0);
    name(graph, &model->target, magnitude(graph, first));
    uint32_t states[GRAPH_OPERANDS] = {one_of(graph, x, 0)}, product = GRAPH_NONE;
    for (uint32_t i = 1; i + 1 < n; i++) /* the last has another name */
        graph_drop(graph, model->states[i]);
    for (uint32_t i = 1; i < n; i++) {
        name(graph, &product, apply_linear(graph, one_of(graph, x, i), model->gather[i]));
        states[i] = as_long(graph, model, product, model->dtype,
                            i == 1 ? model->states[n - 1] : GRAPH_NONE);
    }
    const uint32_t all = op_stack(graph, n, states);
    graph_drop(graph, x);
    const uint32_t mean = op_mean_first(graph, all);
    graph_drop(graph, all);
    ahead->parts[ahead->part_count++] = model->target;
    for (uint32_t i = 1; i + 1 < n; i++)
        ahead->parts[ahead->part_count++] = states[i];
    ahead->parts[ahead->part_count++] = model->projected;
    ahead->parts[ahead->part_count++] = states[n - 1];
    ahead->parts[ahead->part_count++] = model->own;
    ahead->behind = product;
    return mean;
}

/* Tokens that the second embedding has, and 0 for others. *known is Python's. */
static uint32_t known_tokens(struct graph *graph, const struct model_config *c, uint32_t tokens,
                             uint32_t *known)
{
    const struct shape s = graph->tensors[tokens].shape, one = {.rank = 0};
    const uint32_t above =
        op_number(graph, WORK_OTHER, ATEN_GE_SCALAR, DTYPE_BOOL, s, tokens, 0.0F);
    const uint32_t below =
        op_number(graph, WORK_LESS_NUMBER, ATEN_LT, DTYPE_BOOL, s, tokens, (float)c->layer_vocab);
    *known =
        op_no_grad(graph, WORK_AND, ATEN_LOGICAL_AND, DTYPE_BOOL, s, 2, (uint32_t[]){above, below});
    graph_drop(graph, above);
    graph_drop(graph, below);
    const uint32_t zero = op_fill(graph, ATEN_SCALAR_TENSOR, DTYPE_INT64, one, 0.0F);
    const uint32_t out = op_no_grad(graph, WORK_WHERE, ATEN_WHERE, DTYPE_INT64, s, 3,
                                    (uint32_t[]){*known, tokens, zero});
    graph_drop(graph, zero);
    return out;
}

/* The second embedding of tokens and a projection of the first one's rows, normed, added and
 * scaled: (b, s, l, n). */
static uint32_t parts_of_layers(struct graph *graph, const struct model_config *c,
                                const struct model *model, uint32_t tokens, uint32_t embedded)
{
    const struct shape s = graph->tensors[embedded].shape;
    const struct shape parts = SHAPE(s.dim[0], s.dim[1], c->layers, c->layer_width);
    uint32_t known;
    graph_mark(graph, MARK_FRAME); /* get_per_layer_inputs */
    const uint32_t ids = known_tokens(graph, c, tokens, &known);
    const uint32_t rows = hf_embedded_rows(graph, ids, model->table, model->part_scale, c->padding);
    graph_drop(graph, ids);
    graph_drop(graph, known);
    graph_mark(graph, MARK_FRAME_END);
    graph_mark(graph, MARK_FRAME); /* project_per_layer_inputs */
    const uint32_t product = apply_linear(graph, embedded, model->part_projection);
    const uint32_t line = scaled(graph, product, model->projection_scale, true);
    const uint32_t even = then_normed(graph, graph_view(graph, line, parts), model->part_norm);
    const uint32_t sum = op_add(graph, even, graph_view(graph, rows, parts));
    const uint32_t out = scaled(graph, sum, model->sum_scale, false);
    graph_drop(graph, even);
    graph_mark(graph, MARK_FRAME_END);
    graph_drop(graph, rows);
    return out;
}

static struct hf_ahead *ahead(struct graph *graph, const struct model_config *c,
                              const struct model_job *job, uint32_t tokens, uint32_t embedded)
{
    struct hf_ahead *out = arena_alloc(&graph->arena, sizeof *out);
    struct model *model = arena_alloc(&graph->arena, sizeof *model);
    (void)job;
    /* its methods are called by layers; and lists */
    graph->uncalled = ".altup,.altup_projections,.altup_unembed_projections";
    *out = (struct hf_ahead){.layers = model, .behind = GRAPH_NONE};
    model->blocks = arena_alloc(&graph->arena, c->layers * sizeof *model->blocks);
    out->modules = arena_alloc(&graph->arena, c->layers * sizeof *out->modules);
    for (uint32_t i = 0; i < c->layers; i++) {
        out->modules[i] = graph_module(graph, ROLE_BLOCK, "model.layers.%u", i);
        declare_block(graph, c, i, graph->modules[out->modules[i]].name, &model->blocks[i]);
    }
    out->last_module = graph_module(graph, ROLE_NORM, "model.norm");
    out->last = declare_norm(graph, c, "model.", "norm");
    graph->current_module = GRAPH_NONE;
    declare_rest(graph, c, model);
    model->target = model->projected = model->own = GRAPH_NONE;
    out->beside = parts_of_layers(graph, c, model, tokens, embedded);
    return out;
}

void build_hf_gemma3n(struct graph *graph, const struct model_config *config,
                      const struct model_job *job)
{
    static const struct hf_decoder way = {
        .norm = hf_rms_norm_power,
        .scaled_rows = true,
        .masks_by_layer = true,
        .both_types = true,
        .tables_by_layer = true,
        .tables_first = true,
        .tables_before = true,
        .ahead = ahead,
        .spread = spread,
        .gather = gather,
        .layer = layer,
    };
    hf_decoder_build(graph, config, job, &way);
}
