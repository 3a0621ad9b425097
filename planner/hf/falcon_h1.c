/* falcon_h1.c - Falcon-H1 as Hugging Face transformers write it: in each layer attention and
 * Mamba-2 beside each other, then a gated feed-forward, and numbers that all of it is times.
 *
 *     h = x + (m mamba(y) + a attention(a' y))        y = norm(x)
 *     z = h + d down(up y · silu(g gate y))           y = norm(h)
 *
 * What m, a and the others are times is a new tensor, though the number may be 1. */
#include "hf/falcon_h1.h"
#include "hf/decoder.h"

#include <stdio.h>

struct block { /* the parameters of a layer */
    struct hf_mlp mlp;
    struct hf_mamba mamba;
    struct linear q, k, v, o;
    struct norm before, before_mlp;
};

/* What norms are here, and the rest of the model. */
static const struct hf_decoder way;

/* ---- parameters ---- */

static void declare_attention(struct graph *graph, const struct model_config *c, const char *prefix,
                              struct block *block)
{
    const uint32_t h = c->hidden, q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    block->q = build_linear(graph, prefix, "q_proj", q, h, c->attention_bias);
    block->k = build_linear(graph, prefix, "k_proj", kv, h, c->attention_bias);
    block->v = build_linear(graph, prefix, "v_proj", kv, h, c->attention_bias);
    block->o = build_linear(graph, prefix, "o_proj", h, q, c->output_bias);
}

static void declare_block(struct graph *graph, const struct model_config *c, const char *layer,
                          struct block *block)
{
    char prefix[96];
    snprintf(prefix, sizeof prefix, "%s.feed_forward.", layer);
    block->mlp = hf_mlp_declare(graph, c, prefix, c->ffn);
    snprintf(prefix, sizeof prefix, "%s.mamba.", layer);
    block->mamba = hf_mixer_mamba.declare(graph, c, prefix).mamba;
    snprintf(prefix, sizeof prefix, "%s.self_attn.", layer);
    declare_attention(graph, c, prefix, block);
    block->before = build_norm(graph, layer, ".input_layernorm", c->hidden, false, c->norm_eps);
    block->before_mlp =
        build_norm(graph, layer, ".pre_ff_layernorm", c->hidden, false, c->norm_eps);
}

/* All layers are declared ahead: their buffers come before RoPE's. */
static struct hf_ahead *ahead(struct graph *graph, const struct model_config *c,
                              const struct model_job *job, uint32_t tokens, uint32_t embedded)
{
    struct hf_ahead *out = arena_alloc(&graph->arena, sizeof *out);
    struct block *blocks = arena_alloc(&graph->arena, c->layers * sizeof *blocks);
    (void)job;
    (void)tokens;
    (void)embedded;
    *out = (struct hf_ahead){.layers = blocks, .beside = GRAPH_NONE, .behind = GRAPH_NONE};
    out->modules = arena_alloc(&graph->arena, c->layers * sizeof *out->modules);
    for (uint32_t i = 0; i < c->layers; i++) {
        out->modules[i] = graph_module(graph, ROLE_BLOCK, "model.layers.%u", i);
        declare_block(graph, c, graph->modules[out->modules[i]].name, &blocks[i]);
    }
    out->last_module = graph_module(graph, ROLE_NORM, "model.final_layernorm");
    out->last = build_norm(graph, "model.", "final_layernorm", c->hidden, false, c->norm_eps);
    graph->current_module = GRAPH_NONE;
    return out;
}

/* ---- a layer ---- */

/* x times a number, which takes its place. */
static uint32_t times(struct graph *graph, uint32_t x, float number)
{
    const uint32_t out = op_scalar(graph, OP_MUL_SCALAR, x, number);
    graph_drop(graph, x);
    return out;
}

/* *weights: Python's until the layer returns; GRAPH_NONE: there are none. */
static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct block *block, const struct hf_layer_call *call, uint32_t y,
                          uint32_t *weights)
{
    const struct shape s = graph->tensors[y].shape;
    const struct shape q_heads = SHAPE(s.dim[0], s.dim[1], c->heads, c->head_dim),
                       heads = SHAPE(s.dim[0], s.dim[1], c->kv_heads, c->head_dim);
    const bool copied = hf_copies_gradients(graph, c, call->mask != GRAPH_NONE);
    const uint32_t q = hf_heads(graph, apply_linear(graph, y, block->q), q_heads, true);
    const uint32_t k0 = hf_heads(graph, apply_linear(graph, y, block->k), heads, true);
    const uint32_t k = graph_transpose(
        graph, times(graph, graph_transpose(graph, k0, 1, 2), c->key_multiplier), 1, 2);
    const uint32_t v = hf_heads(graph, apply_linear(graph, y, block->v), heads, copied);
    const uint32_t turned_q = hf_rotate(graph, graph_transpose(graph, q, 1, 2), call->rope);
    const uint32_t turned_k = hf_rotate(graph, graph_transpose(graph, k, 1, 2), call->rope);
    graph_drop(graph, q);
    graph_drop(graph, k);
    const struct hf_attention arguments = {.q = graph_transpose(graph, turned_q, 1, 2),
                                           .k = graph_transpose(graph, turned_k, 1, 2),
                                           .v = v,
                                           .mask = call->mask,
                                           .dropout = c->attention_dropout,
                                           .positions = call->rope.positions};
    *weights = GRAPH_NONE;
    const uint32_t attended = hf_is_eager(graph, &way)
                                  ? hf_eager_attention(graph, &arguments, 0, weights)
                                  : hf_attention(graph, &arguments);
    const uint32_t out = apply_linear(graph, attended, block->o);
    graph_drop(graph, attended);
    graph_drop(graph, turned_q);
    graph_drop(graph, turned_k);
    graph_drop(graph, v);
    return out;
}

static uint32_t feed_forward(struct graph *graph, const struct model_config *c,
                             const struct hf_mlp *mlp, uint32_t y)
{
    const uint32_t up = apply_linear(graph, y, mlp->up);
    const uint32_t gate = times(graph, apply_linear(graph, y, mlp->gate), c->gate_multiplier);
    const uint32_t active =
        hf_activation_beside(graph, c->activation, gate, mlp->gate.weight, "act_fn");
    graph_drop(graph, gate);
    const uint32_t product = op_mul(graph, up, active);
    graph_drop(graph, up);
    graph_drop(graph, active);
    const uint32_t out = times(graph, apply_linear(graph, product, mlp->down), c->down_multiplier);
    graph_drop(graph, product);
    return out;
}

static uint32_t layer(struct graph *graph, const struct model_config *c,
                      const struct model_job *job, const struct hf_layer_call *call)
{
    const struct block *block = (const struct block *)call->ahead->layers + call->index;
    uint32_t weights;
    (void)job;
    const uint32_t y = hf_decoder_normed(graph, &way, call->x, block->before);
    const uint32_t mixed =
        times(graph, hf_mamba(graph, c, &block->mamba, y), c->ssm_out_multiplier);
    const uint32_t to_attend = op_scalar(graph, OP_MUL_SCALAR, y, c->attention_in_multiplier);
    const uint32_t attention_out = attention(graph, c, block, call, to_attend, &weights);
    graph_drop(graph, to_attend);
    const uint32_t attended = times(graph, attention_out, c->attention_out_multiplier);
    const uint32_t both = op_add(graph, mixed, attended);
    graph_drop(graph, y);
    const uint32_t h = op_add(graph, call->x, both);
    graph_drop(graph, both);
    const uint32_t y2 = hf_decoder_normed(graph, &way, h, block->before_mlp);
    const uint32_t fed = feed_forward(graph, c, &block->mlp, y2);
    graph_drop(graph, y2);
    const uint32_t z = op_add(graph, h, fed);
    graph_drop(graph, fed);
    graph_drop(graph, h);
    graph_drop(graph, mixed);
    graph_drop(graph, attended);
    if (weights != GRAPH_NONE)
        graph_drop(graph, weights);
    return z;
}

static const struct hf_decoder way = {
    .norm = hf_rms_norm,
    .last_norm = "final_layernorm",
    .last_named = true,
    .positions_first = true,
    .masks_by_layer = true,
    .ahead = ahead,
    .layer = layer,
};

void build_hf_falcon_h1(struct graph *graph, const struct model_config *config,
                        const struct model_job *job)
{
    hf_decoder_build(graph, config, job, &way);
}
