/* block.c - the parameters of a layer that layer.c runs, in the order in which transformers'
 * modules declare them: see decoder.h. */
#include "hf/decoder.h"
#include "model/experts.h"

#include <stdio.h>

struct norm hf_decoder_norm(struct graph *graph, const struct model_config *c,
                            const struct hf_decoder *way, const char *prefix, const char *name,
                            uint32_t h)
{
    if (way->bare_norms)
        return build_bare_norm(graph, prefix, name, c->norm_eps);
    const struct norm norm = build_norm(graph, prefix, name, h, way->biased_norms, c->norm_eps);
    if (way->norms_at_zero)
        graph_init_param(graph, norm.weight, (struct param_init){.kind = INIT_ZEROS});
    return norm;
}

static void declare_qk_norms(struct graph *graph, const struct model_config *c, const char *prefix,
                             struct hf_block *block)
{
    const struct hf_decoder *way = block->way;
    const bool wide = way->qk == HF_QK_WIDE;
    const char *q = way->q_norm ? way->q_norm : "q_norm", *k = way->k_norm ? way->k_norm : "k_norm";
    const uint32_t d = c->head_dim;
    if (way->qk == HF_QK_BARE) {
        block->q_norm = block->k_norm = build_bare_norm(graph, prefix, "qk_norm", c->norm_eps);
        return;
    }
    if (way->qk_by_head) {
        block->q_norm = build_head_norm(graph, prefix, q, c->heads, d, c->norm_eps);
        block->k_norm = build_head_norm(graph, prefix, k, c->kv_heads, d, c->norm_eps);
        return;
    }
    block->q_norm = hf_decoder_norm(graph, c, way, prefix, q, wide ? c->heads * d : d);
    block->k_norm = hf_decoder_norm(graph, c, way, prefix, k, wide ? c->kv_heads * d : d);
}

static void declare_attention(struct graph *graph, const struct model_config *c, uint32_t index,
                              const char *prefix, struct hf_block *block)
{
    const uint32_t h = c->hidden, h_q = c->heads * c->head_dim, h_kv = c->kv_heads * c->head_dim;
    if (c->kv_lora) {
        block->mla = hf_mla_declare(graph, c, index, prefix);
        return;
    }
    if (c->sinks)
        block->sinks = graph_param(graph, PARAM_WEIGHT, SHAPE(c->heads), "%ssinks", prefix);
    if (block->way->fused_qkv) {
        block->o = build_linear(graph, prefix, "o_proj", h, h_q, c->output_bias);
        block->q = build_linear(graph, prefix, "qkv_proj", h_q + 2 * h_kv, h, c->attention_bias);
        return;
    }
    block->q = build_linear(graph, prefix, "q_proj", c->gated_output ? 2 * h_q : h_q, h,
                            c->attention_bias);
    block->k = build_linear(graph, prefix, "k_proj", h_kv, h, c->attention_bias);
    block->v = build_linear(graph, prefix, "v_proj", h_kv, h, c->attention_bias);
    const char *output = block->way->output ? block->way->output : "o_proj";
    block->o = build_linear(graph, prefix, output, h, h_q, c->output_bias);
    if (block->way->qk == HF_QK_WIDE || c->qk_norm)
        declare_qk_norms(graph, c, prefix, block);
    if (block->way->gate_output)
        block->gate = build_linear(graph, prefix, block->way->gate_output, h_q, h, false);
}

/* Attention, or what is in its place. */
static void declare_mixer(struct graph *graph, const struct model_config *c, uint32_t index,
                          const char *prefix, struct hf_block *block)
{
    if (block->mixes && !block->way->apart) /* those call theirs with what it reads in front */
        graph->by_name = block->way->mixer->module;
    if (block->mixes)
        block->mixing = block->way->mixer->declare(graph, c, prefix);
    else
        declare_attention(graph, c, index, prefix, block);
}

/* What all tokens pass beside a mixture of experts, in a module of the layer's. */
static struct hf_mlp declare_beside(struct graph *graph, const struct model_config *c,
                                    const char *layer)
{
    const uint32_t h = c->hidden, f = experts_shared_width(c);
    return (struct hf_mlp){
        .gate = build_linear(graph, layer, ".shared_mlp.input_linear", 2 * f, h, false),
        .down = build_linear(graph, layer, ".shared_mlp.output_linear", h, f, false),
    };
}

static void declare_mlp(struct graph *graph, const struct model_config *c, const char *prefix,
                        struct hf_block *block)
{
    const uint32_t h = c->hidden, f = c->ffn;
    if (block->mixed) {
        block->moe = hf_moe_declare(graph, c, &block->way->moe, prefix);
        return;
    }
    if (block->way->gate) {
        block->mlp.function = true;
        block->mlp.gate = build_linear(graph, prefix, block->way->gate, f, h, c->mlp_bias);
    }
    if (block->way->up) {
        block->mlp.up = build_linear(graph, prefix, block->way->up, f, h, c->mlp_bias);
        block->mlp.down = build_linear(graph, prefix, block->way->down, h, f, c->mlp_bias);
        if (block->way->xielu)
            block->xielu = hf_xielu_declare(graph, prefix);
        return;
    }
    if (!block->way->fused_gate_up) {
        block->mlp = hf_mlp_declare(graph, c, prefix, f);
        return;
    }
    const char *halves = block->way->halves ? block->way->halves : "gate_up_proj";
    const char *down = block->way->down ? block->way->down : "down_proj";
    block->mlp.gate = build_linear(graph, prefix, halves, 2 * f, h, c->mlp_bias);
    block->mlp.down = build_linear(graph, prefix, down, h, f, c->mlp_bias);
}

/* Where a feed-forward's parameters are: in modules of the layer's. */
static const char *feed_module(const struct hf_decoder *way, bool mixed)
{
    const char *name = mixed && way->experts ? way->experts : way->mlp;
    return way->apart ? way->apart : name ? name : "mlp";
}

static const char *mixer_module(const struct hf_decoder *way, bool mixes)
{
    return way->apart ? way->apart : mixes ? way->mixer->module + 1 : "self_attn";
}

struct hf_block hf_block_declare(struct graph *graph, const struct model_config *c,
                                 const struct hf_decoder *way, uint32_t index, const char *prefix)
{
    char attention[96], mlp[96];
    struct hf_block block = {.way = way,
                             .sinks = GRAPH_NONE,
                             .mixes = hf_mixes(c, way, index),
                             .mixed = experts_in(c, index),
                             .feeds = way->apart && model_feeds(c, index)};
    const bool both = !way->apart;
    snprintf(attention, sizeof attention, "%s.%s.", prefix, mixer_module(way, block.mixes));
    snprintf(mlp, sizeof mlp, "%s.%s.", prefix, feed_module(way, block.mixed));
    if (!way->attention_last)
        declare_mixer(graph, c, index, attention, &block);
    if (!way->mlp_last)
        declare_mlp(graph, c, mlp, &block);
    for (int i = 0; i < HF_PLACES; i++)
        block.norms[i] = (struct norm){.weight = GRAPH_NONE};
    for (int i = 0; i < HF_PLACES && way->norms[i].name; i++)
        block.norms[way->norms[i].at] =
            hf_decoder_norm(graph, c, way, prefix, way->norms[i].name, c->hidden);
    if (way->mlp_last && (both || block.feeds))
        declare_mlp(graph, c, mlp, &block);
    block.beside = block.mixed && way->moe.when == HF_SHARED_BESIDE;
    if (block.beside && experts_shared_width(c))
        block.mlp = declare_beside(graph, c, prefix);
    if (way->attention_last && (both || !block.feeds))
        declare_mixer(graph, c, index, attention, &block);
    return block;
}
