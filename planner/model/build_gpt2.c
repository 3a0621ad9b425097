/* build_gpt2.c - GPT-2 as nanoGPT writes it, without dropout: learned positions, one c_attn, the
 * activation as one op, biases everywhere but in the head, the head usually tied. */
#include "model/build.h"
#include "model/builder.h"

#include <math.h>

struct gpt2_block {
    struct norm ln_1, ln_2;
    struct linear c_attn, c_proj, c_fc, m_proj;
};

static struct gpt2_block declare_block(struct graph *graph, const struct model_config *c,
                                       const struct model_job *job, const char *prefix)
{
    static const char *const names[2][4] = {
        {".attn.c_attn", ".attn.c_proj", ".mlp.c_fc", ".mlp.c_proj"},
        {".c_attn", ".c_proj", ".c_fc", ".c_out"}};
    const char *const *name = names[job->flat];
    struct gpt2_block block;
    block.ln_1 = build_norm(graph, prefix, ".ln_1", c->hidden, true, c->norm_eps);
    block.ln_2 = build_norm(graph, prefix, ".ln_2", c->hidden, true, c->norm_eps);
    block.c_attn = build_linear(graph, prefix, name[0], 3 * c->hidden, c->hidden, true);
    block.c_proj = build_linear(graph, prefix, name[1], c->hidden, c->hidden, true);
    block.c_fc = build_linear(graph, prefix, name[2], c->ffn, c->hidden, true);
    block.m_proj = build_linear(graph, prefix, name[3], c->hidden, c->ffn, true);
    const struct param_init last = init_normal(0.02 / sqrt(2.0 * c->layers), 0);
    graph_init_param(graph, block.c_proj.weight, last);
    graph_init_param(graph, block.m_proj.weight, last);
    return block;
}

static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct gpt2_block *block, uint32_t y)
{
    const struct shape heads = SHAPE(job->batch, job->seq, c->heads, c->head_dim);
    const uint32_t qkv = apply_linear(graph, y, block->c_attn);
    uint32_t part[3];
    op_chunk(graph, qkv, 3, part);
    for (uint32_t i = 0; i < 3; i++)
        part[i] = build_heads(graph, part[i], heads);
    const uint32_t o = op_attention(graph, part[0], part[1], part[2], true, 0);
    const uint32_t out = apply_linear(
        graph, graph_view(graph, o, SHAPE(job->batch, job->seq, c->hidden)), block->c_proj);
    graph_drop(graph, o);
    graph_drop(graph, qkv);
    graph_drop(graph, y);
    return out;
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct gpt2_block *block, uint32_t x)
{
    const uint32_t y1 = apply_norm(graph, x, block->ln_1);
    const uint32_t attended = attention(graph, c, job, block, y1);
    const uint32_t h = op_add(graph, x, attended);
    graph_drop(graph, attended);

    const uint32_t y2 = apply_norm(graph, h, block->ln_2);
    const uint32_t fc = apply_linear(graph, y2, block->c_fc);
    graph_drop(graph, y2);
    const uint32_t active = apply_activation(graph, c->activation, fc);
    graph_drop(graph, fc);
    const uint32_t fed = apply_linear(graph, active, block->m_proj);
    graph_drop(graph, active);
    const uint32_t z = op_add(graph, h, fed);
    graph_drop(graph, fed);
    graph_drop(graph, h);
    return z;
}

void build_gpt2(struct graph *graph, const struct model_config *c, const struct model_job *job)
{
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t targets = build_input(graph, c, INPUT_TARGETS, SHAPE(job->batch * job->seq));
    graph_init_weights(graph, init_normal(0.02, 0));
    const uint32_t wte = graph_param(graph, PARAM_WEIGHT, SHAPE(c->vocab, c->hidden), "wte.weight");
    const uint32_t wpe =
        graph_param(graph, PARAM_WEIGHT, SHAPE(c->max_positions, c->hidden), "wpe.weight");

    const uint32_t token = op_embedding(graph, tokens, wte);
    const uint32_t positions = op_arange(graph, job->seq);
    const uint32_t position = op_embedding(graph, positions, wpe);
    graph_drop(graph, positions);
    uint32_t x = op_add(graph, token, position);
    graph_drop(graph, token);
    graph_drop(graph, position);

    for (uint32_t i = 0; i < c->layers; i++) {
        const uint32_t module = graph_module(graph, ROLE_BLOCK, "h.%u", i);
        const struct gpt2_block block = declare_block(graph, c, job, graph->modules[module].name);
        graph_enter(graph, module, x);
        const uint32_t z = run_block(graph, c, job, &block, x);
        graph_exit(graph, module, z);
        graph_drop(graph, x);
        x = z;
    }

    const struct norm final = build_norm(graph, "", "ln_f", c->hidden, true, c->norm_eps);
    graph_mark(graph, MARK_FRAME); /* nanoGPT's LayerNorm is a class of its own */
    const uint32_t normed = apply_norm(graph, x, final);
    graph_mark(graph, MARK_FRAME_END);
    struct linear head = {wte, GRAPH_NONE};
    if (!c->tied)
        head = build_linear(graph, "", "lm_head", c->vocab, c->hidden, false);
    build_head(graph, GRAPH_NONE, normed, x, head, targets);
}
