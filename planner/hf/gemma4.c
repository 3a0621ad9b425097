/* gemma4.c - Gemma 4's text model as Hugging Face's transformers writes it.
 *
 *     h = x + after(o_proj(attention(rope(norm(q y)), rope(norm(k y)), norm(v y))))   y = before(x)
 *     z = h + after(f)                                                                y = before(h)
 *     f = mlp y, or after_1(mlp y) + after_2(experts(before_2(h))) where there are experts
 *     z = z + after(up(act(gate z) · p)) where layers have a part p of a second embedding
 *     z is multiplied in place by a buffer of one number
 *
 * Heads are normed and turned as they are projected, (b, s, a, d); the norm of v has no weight, and
 * v may be k before its norm. Scores are not scaled. The last layers may attend to keys and values
 * that the last of the layers before them, of their type, has kept. */
#include "hf/gemma4.h"
#include "hf/decoder.h"
#include "model/experts.h"

#include <math.h>
#include <stdio.h>

/* ---- what layers have ---- */

static bool is_full(const struct model_config *c, uint32_t index)
{
    return !model_has_window(c, index);
}

enum gemma4_keys gemma4_keys_of(const struct model_config *c, uint32_t index)
{
    const uint32_t first = c->layers - c->reusing_layers;
    if (index >= first)
        return GEMMA4_REUSED;
    if (c->reusing_layers == 0)
        return GEMMA4_OWN;
    for (uint32_t i = index + 1; i < first; i++)
        if (is_full(c, i) == is_full(c, index))
            return GEMMA4_OWN;
    return GEMMA4_KEPT;
}

uint32_t gemma4_head_dim(const struct model_config *c, uint32_t index)
{
    return is_full(c, index) ? c->full_head_dim : c->head_dim;
}

uint32_t gemma4_kv_heads(const struct model_config *c, uint32_t index)
{
    return is_full(c, index) ? c->full_kv_heads : c->kv_heads;
}

bool gemma4_keys_are_values(const struct model_config *c, uint32_t index)
{
    return c->keys_are_values && is_full(c, index);
}

uint32_t gemma4_ffn(const struct model_config *c, uint32_t index)
{
    const bool wide = c->wide_reusing && gemma4_keys_of(c, index) == GEMMA4_REUSED;
    return wide ? 2 * c->ffn : c->ffn;
}

static const struct hf_moe_way moe_way = {.gate = hf_gate_halves};

enum place { INPUT, POST_ATTENTION, PRE_MLP, POST_MLP, NORMS };

struct router {
    uint32_t scale, per_expert; /* (h), (E) */
    struct norm norm;
};

struct block {
    struct gemma4_attention attention;
    struct hf_mlp mlp;
    struct norm norms[NORMS];
    uint32_t scalar;             /* a buffer (1) */
    struct linear gate, project; /* of its part of the second embedding */
    struct norm part_norm;
    struct router router;
    struct hf_moe moe;
    struct norm post_mlp, post_experts, pre_experts;
};

/* ---- parameters ---- */

struct gemma4_attention gemma4_attention_declare(struct graph *graph, const struct model_config *c,
                                                 uint32_t index, const char *layer, bool in_turn)
{
    char prefix[96];
    const uint32_t h = c->hidden, d = gemma4_head_dim(c, index), q = c->heads * d,
                   kv = gemma4_kv_heads(c, index) * d;
    const bool own = gemma4_keys_of(c, index) != GEMMA4_REUSED;
    struct gemma4_attention a = {.in_turn = in_turn};
    snprintf(prefix, sizeof prefix, "%s.self_attn.", layer);
    a.q = build_linear(graph, prefix, "q_proj", q, h, c->attention_bias);
    a.q_norm = build_norm(graph, prefix, "q_norm", d, false, c->norm_eps);
    if (own && !in_turn)
        a.k_norm = build_norm(graph, prefix, "k_norm", d, false, c->norm_eps);
    if (own) {
        a.v_norm = build_bare_norm(graph, prefix, "v_norm", c->norm_eps);
        a.k = build_linear(graph, prefix, "k_proj", kv, h, c->attention_bias);
        if (!gemma4_keys_are_values(c, index))
            a.v = build_linear(graph, prefix, "v_proj", kv, h, c->attention_bias);
    }
    if (own && in_turn)
        a.k_norm = build_norm(graph, prefix, "k_norm", d, false, c->norm_eps);
    a.o = build_linear(graph, prefix, "o_proj", h, q, c->output_bias);
    return a;
}

static uint32_t factors(struct graph *graph, const char *prefix, const char *name, uint32_t count)
{
    const uint32_t param = graph_param(graph, PARAM_NORM, SHAPE(count), "%s%s", prefix, name);
    graph_init_param(graph, param, (struct param_init){.kind = INIT_ONES});
    return param;
}

static struct norm declare_norm(struct graph *graph, const struct model_config *c,
                                const char *layer, const char *name)
{
    return build_norm(graph, layer, name, c->hidden, false, c->norm_eps);
}

static void declare_experts(struct graph *graph, const struct model_config *c, const char *layer,
                            struct block *block)
{
    char router[96], prefix[96];
    snprintf(router, sizeof router, "%s.router.", layer);
    snprintf(prefix, sizeof prefix, "%s.", layer);
    block->moe = (struct hf_moe){.module = GRAPH_NONE};
    block->router.scale = factors(graph, router, "scale", c->hidden);
    block->router.per_expert = factors(graph, router, "per_expert_scale", c->experts);
    block->router.norm = build_bare_norm(graph, router, "norm", c->norm_eps);
    block->moe.router = build_linear(graph, router, "proj", c->experts, c->hidden, false);
    hf_experts_declare(graph, c, &moe_way, prefix, &block->moe);
    block->post_mlp = declare_norm(graph, c, layer, ".post_feedforward_layernorm_1");
    block->post_experts = declare_norm(graph, c, layer, ".post_feedforward_layernorm_2");
    block->pre_experts = declare_norm(graph, c, layer, ".pre_feedforward_layernorm_2");
}

static void declare_block(struct graph *graph, const struct model_config *c, uint32_t index,
                          const char *layer, struct block *block)
{
    static const char *const norms[NORMS] = {".input_layernorm", ".post_attention_layernorm",
                                             ".pre_feedforward_layernorm",
                                             ".post_feedforward_layernorm"};
    const struct buffer_values one = {.kind = VALUES_NUMBER, .number = 1};
    char mlp[96];
    snprintf(mlp, sizeof mlp, "%s.mlp.", layer);
    block->attention = gemma4_attention_declare(graph, c, index, layer, false);
    block->mlp = hf_mlp_declare(graph, c, mlp, gemma4_ffn(c, index));
    for (int i = 0; i < NORMS; i++)
        block->norms[i] = declare_norm(graph, c, layer, norms[i]);
    block->scalar = graph_buffer(graph, graph->made, SHAPE(1), &one);
    if (c->layer_width) {
        block->gate =
            build_linear(graph, layer, ".per_layer_input_gate", c->layer_width, c->hidden, false);
        block->project =
            build_linear(graph, layer, ".per_layer_projection", c->hidden, c->layer_width, false);
        block->part_norm = declare_norm(graph, c, layer, ".post_per_layer_input_norm");
    }
    if (c->experts)
        declare_experts(graph, c, layer, block);
}

/* ---- a layer ---- */

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

/* Heads (b, s, a, d) through a norm and RoPE, in their place unless they are `held`. */
static uint32_t turned(struct graph *graph, uint32_t heads, struct norm norm, struct hf_rope rope,
                       bool held)
{
    const uint32_t even = normed(graph, heads, norm);
    if (!held)
        graph_drop(graph, heads);
    const uint32_t out = hf_rotate(graph, even, rope);
    graph_drop(graph, even);
    return out;
}

/* What a tuple of both has, in the order in which it lets go of them. */
enum { KEPT_VALUES, KEPT_KEYS, KEPT };

/* Heads (b, s, k, d) as layers that reuse them get them, (b, k, s, d), where their gradients are
 * added up; the same as they were, for the layer's own attention and that of others. */
static uint32_t kept(struct graph *graph, uint32_t heads, uint32_t *handed)
{
    *handed = op_alias(graph, graph_transpose(graph, heads, 1, 2));
    return graph_transpose(graph, *handed, 1, 2);
}

/* Its own keys and values of y (b, s, h): (b, s, k, d). Fused kernels and repeated heads leave the
 * gradient of values in an order of memory that their norm hands on; RoPE's slices leave that of
 * keys as they were projected, unless it is added to that of values. */
static void keys_and_values(struct graph *graph, const struct model_config *c,
                            const struct gemma4_attention *block, const struct hf_layer_call *call,
                            uint32_t y, struct hf_rope rope, uint32_t out[2])
{
    const uint32_t i = call->index, d = gemma4_head_dim(c, i), kv = gemma4_kv_heads(c, i);
    const bool joint = gemma4_keys_are_values(c, i);
    const struct shape s = graph->tensors[y].shape, heads = SHAPE(s.dim[0], s.dim[1], kv, d);
    struct model_config own = *c;
    own.head_dim = d;
    own.kv_heads = kv;
    const bool copied = hf_copies_gradients(graph, &own, call->mask != GRAPH_NONE);
    const uint32_t k = hf_heads(graph, apply_linear(graph, y, block->k), heads, joint && copied);
    uint32_t v = k;
    if (!joint && !block->in_turn)
        v = hf_heads(graph, apply_linear(graph, y, block->v), heads, copied);
    const bool keeps = gemma4_keys_of(c, i) == GEMMA4_KEPT;
    struct hf_ahead *ahead = call->ahead;
    uint32_t handed[KEPT];
    out[0] = turned(graph, k, block->k_norm, rope, joint);
    if (keeps)
        out[0] = kept(graph, out[0], &handed[KEPT_KEYS]);
    if (!joint && block->in_turn)
        v = hf_heads(graph, apply_linear(graph, y, block->v), heads, copied);
    out[1] = then_normed(graph, v, block->v_norm);
    if (!keeps)
        return;
    out[1] = kept(graph, out[1], &handed[KEPT_VALUES]);
    graph_hand_on(graph, handed);
    ahead->held[ahead->holds + KEPT_KEYS] = out[0];
    ahead->held[ahead->holds + KEPT_VALUES] = out[1];
    ahead->holds += KEPT;
}

/* The keys and values that the last layer of this one's type has kept: (b, s, k, d). */
static void reuse(const struct model_config *c, const struct hf_layer_call *call, uint32_t out[2])
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < call->index; i++) {
        if (gemma4_keys_of(c, i) != GEMMA4_KEPT)
            continue;
        if (model_has_window(c, i) == model_has_window(c, call->index))
            break;
        at += KEPT;
    }
    out[0] = call->ahead->held[at + KEPT_KEYS];
    out[1] = call->ahead->held[at + KEPT_VALUES];
}

uint32_t gemma4_attention(struct graph *graph, const struct model_config *c,
                          const struct gemma4_attention *block, const struct hf_layer_call *call,
                          uint32_t y, uint32_t *weights)
{
    const enum gemma4_keys keys = gemma4_keys_of(c, call->index);
    const struct shape s = graph->tensors[y].shape;
    const struct shape heads = SHAPE(s.dim[0], s.dim[1], c->heads, gemma4_head_dim(c, call->index));
    struct hf_rope rope = call->rope;
    uint32_t kv[2];
    rope.by_token = true;
    *weights = GRAPH_NONE;
    const uint32_t q =
        turned(graph, hf_heads(graph, apply_linear(graph, y, block->q), heads, false),
               block->q_norm, rope, false);
    if (keys == GEMMA4_REUSED)
        reuse(c, call, kv);
    else
        keys_and_values(graph, c, block, call, y, rope, kv);
    const struct hf_attention arguments = {.q = q,
                                           .k = kv[0],
                                           .v = kv[1],
                                           .mask = call->mask,
                                           .dropout = c->attention_dropout,
                                           .positions = rope.positions,
                                           .sample = rope.sample,
                                           .window = call->window,
                                           .scale = 1};
    const uint32_t o = graph->attention == ATTENTION_EAGER
                           ? hf_eager_attention(graph, &arguments, 0, weights)
                           : hf_attention(graph, &arguments);
    const uint32_t out = apply_linear(graph, o, block->o);
    graph_drop(graph, o);
    graph_drop(graph, q);
    for (int i = 0; i < 2 && keys == GEMMA4_OWN; i++)
        graph_drop(graph, kv[i]);
    return out;
}

/* p = softmax(proj(norm(x) · scale / the root of h)) in fp32; the k best, divided by their sum,
 * times a factor for each expert. The caller keeps p, too (`logits`). */
static struct hf_routing route(struct graph *graph, const struct model_config *c,
                               const struct block *block, uint32_t rows)
{
    struct hf_routing r = {.in_place = false};
    hf_call_outer(graph, block->moe.router.weight);
    const uint32_t even = normed(graph, rows, block->router.norm);
    const uint32_t wide = op_mul(graph, even, block->router.scale);
    const uint32_t x = op_scalar(graph, OP_MUL_SCALAR, wide, 1 / sqrtf((float)c->hidden));
    graph_drop(graph, wide);
    graph_drop(graph, even);
    const uint32_t scores = apply_linear(graph, x, block->moe.router);
    const uint32_t upcast = op_to(graph, scores, DTYPE_FP32);
    r.logits = op_softmax(graph, upcast);
    if (upcast != scores)
        graph_drop(graph, upcast);
    const uint32_t best = op_topk(graph, r.logits, c->experts_per_token, &r.experts);
    const uint32_t sum = op_sum_last(graph, best);
    const uint32_t shares = op_div_inplace(graph, best, sum);
    graph_drop(graph, sum);
    const uint32_t each = op_index(graph, block->router.per_expert, r.experts);
    r.weights = op_mul(graph, shares, each);
    graph_drop(graph, each);
    graph_rebind(graph, shares, r.weights);
    graph_drop(graph, x);
    graph_drop(graph, scores);
    graph_call_end(graph);
    return r;
}

struct routed { /* what the layer has besides until it returns */
    struct hf_routing routing;
    uint32_t fed, mixed;
};

/* The feed-forward's result `fed`, which goes, and experts of h, each through its norm, added. */
static uint32_t add_experts(struct graph *graph, const struct model_config *c,
                            const struct block *block, uint32_t h, uint32_t fed, uint32_t *weights,
                            struct routed *routed)
{
    const struct shape s = graph->tensors[h].shape;
    routed->fed = normed(graph, fed, block->post_mlp);
    const uint32_t rows = op_view_node(graph, h, SHAPE(s.dim[0] * s.dim[1], s.dim[2]));
    routed->routing = route(graph, c, block, rows);
    if (*weights != GRAPH_NONE) /* both are called _ */
        graph_drop(graph, *weights);
    *weights = routed->routing.logits;
    const uint32_t y = normed(graph, rows, block->pre_experts);
    const uint32_t out = hf_experts(graph, c, &moe_way, &block->moe, y, &routed->routing);
    graph_drop(graph, y);
    routed->mixed = then_normed(graph, graph_view(graph, out, s), block->post_experts);
    const uint32_t sum = op_add(graph, routed->fed, routed->mixed);
    graph_drop(graph, fed);
    return sum;
}

/* z + norm(project(act(gate z) · part)) */
static uint32_t add_part(struct graph *graph, const struct model_config *c,
                         const struct block *block, uint32_t z, uint32_t part)
{
    const uint32_t gate = apply_linear(graph, z, block->gate);
    const uint32_t active =
        hf_activation_beside(graph, c->activation, gate, block->gate.weight, "act_fn");
    graph_drop(graph, gate);
    const uint32_t product = op_mul(graph, active, part);
    graph_drop(graph, active);
    const uint32_t projected = apply_linear(graph, product, block->project);
    graph_drop(graph, product);
    const uint32_t even = then_normed(graph, projected, block->part_norm);
    const uint32_t sum = op_add(graph, z, even);
    graph_drop(graph, even);
    return sum;
}

static uint32_t layer(struct graph *graph, const struct model_config *c,
                      const struct model_job *job, const struct hf_layer_call *call)
{
    const struct block *block = (const struct block *)call->ahead->layers + call->index;
    uint32_t weights;
    struct routed routed;
    (void)job;
    const uint32_t y = normed(graph, call->x, block->norms[INPUT]);
    const uint32_t attended = gemma4_attention(graph, c, &block->attention, call, y, &weights);
    graph_drop(graph, y);
    const uint32_t after = then_normed(graph, attended, block->norms[POST_ATTENTION]);
    uint32_t residual = op_add(graph, call->x, after);
    graph_drop(graph, after);
    const uint32_t y2 = normed(graph, residual, block->norms[PRE_MLP]);
    uint32_t fed = hf_mlp(graph, c, &block->mlp, y2);
    graph_drop(graph, y2);
    const uint32_t seen = c->experts ? residual : GRAPH_NONE;
    if (c->experts)
        fed = add_experts(graph, c, block, residual, fed, &weights, &routed);
    const uint32_t behind = then_normed(graph, fed, block->norms[POST_MLP]);
    uint32_t z = op_add(graph, residual, behind);
    graph_drop(graph, behind);
    if (call->beside != GRAPH_NONE) {
        if (residual != seen)
            graph_drop(graph, residual);
        residual = z;
        z = add_part(graph, c, block, z, call->beside);
    }
    z = op_mul_in_place(graph, z, block->scalar);
    if (residual != seen) /* else experts' rows are a view of it */
        graph_drop(graph, residual);
    if (weights != GRAPH_NONE)
        graph_drop(graph, weights);
    if (c->experts) {
        graph_drop(graph, routed.fed);
        graph_drop(graph, seen);
        graph_drop(graph, routed.routing.weights);
        graph_drop(graph, routed.routing.experts);
        graph_drop(graph, routed.mixed);
    }
    return z;
}

/* ---- what is ahead of layers ---- */

/* The second embedding of tokens and a projection of the first one's rows, normed, added and
 * scaled: (b, s, l, n). */
static uint32_t parts_of_layers(struct graph *graph, const struct model_config *c, uint32_t tokens,
                                uint32_t embedded)
{
    const struct shape s = graph->tensors[embedded].shape;
    const uint32_t n = c->layer_width, all = c->layers * n;
    const struct shape parts = SHAPE(s.dim[0], s.dim[1], c->layers, n);
    const struct buffer_values root = {.kind = VALUES_NUMBER, .number = sqrtf((float)n)};
    const uint32_t scale = graph_buffer(graph, graph->made, (struct shape){.rank = 0}, &root);
    const uint32_t table = graph_param(graph, PARAM_WEIGHT, SHAPE(c->layer_vocab, all),
                                       "model.embed_tokens_per_layer.weight");
    const struct linear projection =
        build_linear(graph, "model.", "per_layer_model_projection", all, c->hidden, false);
    const struct norm norm =
        build_norm(graph, "model.", "per_layer_projection_norm", n, false, c->norm_eps);
    const uint32_t rows = hf_embedded_rows(graph, tokens, table, scale, c->padding);
    graph_mark(graph, MARK_FRAME); /* project_per_layer_inputs */
    const uint32_t product = apply_linear(graph, embedded, projection);
    const uint32_t scaled = op_scalar(graph, OP_MUL_SCALAR, product, 1 / sqrtf((float)c->hidden));
    graph_drop(graph, product);
    const uint32_t even = then_normed(graph, graph_view(graph, scaled, parts), norm);
    const uint32_t sum = op_add(graph, even, graph_view(graph, rows, parts));
    const uint32_t out = op_scalar(graph, OP_MUL_SCALAR, sum, 0.70710678F); /* 1 / sqrt(2) */
    graph_drop(graph, sum);
    graph_drop(graph, even);
    graph_mark(graph, MARK_FRAME_END);
    graph_drop(graph, rows);
    return out;
}

static struct hf_ahead *ahead(struct graph *graph, const struct model_config *c,
                              const struct model_job *job, uint32_t tokens, uint32_t embedded)
{
    struct hf_ahead *out = arena_alloc(&graph->arena, sizeof *out);
    struct block *blocks = arena_alloc(&graph->arena, c->layers * sizeof *blocks);
    (void)job;
    *out = (struct hf_ahead){.layers = blocks, .beside = GRAPH_NONE, .behind = GRAPH_NONE};
    out->modules = arena_alloc(&graph->arena, c->layers * sizeof *out->modules);
    for (uint32_t i = 0; i < c->layers; i++) {
        out->modules[i] = graph_module(graph, ROLE_BLOCK, "model.layers.%u", i);
        declare_block(graph, c, i, graph->modules[out->modules[i]].name, &blocks[i]);
    }
    out->last_module = graph_module(graph, ROLE_NORM, "model.norm");
    out->last = declare_norm(graph, c, "model.", "norm");
    graph->current_module = GRAPH_NONE;
    if (c->layer_width)
        out->beside = parts_of_layers(graph, c, tokens, embedded);
    return out;
}

void build_hf_gemma4(struct graph *graph, const struct model_config *config,
                     const struct model_job *job)
{
    static const struct hf_decoder way = {
        .norm = hf_rms_norm_power,
        .scaled_rows = true,
        .masks_by_layer = true,
        .both_types = true,
        .tables_by_layer = true,
        .tables_first = true,
        .ahead = ahead,
        .layer = layer,
    };
    hf_decoder_build(graph, config, job, &way);
}
