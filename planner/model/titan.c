/* titan.c - what torchtitan's decoders have in common (titan.h): embedding, blocks, norm, head.
 *
 *     x = x + attention(attention_norm x, table)
 *     x = x + moe(ffn_norm x), or feed_forward
 *
 * Every block is called with the root's table of RoPE, which FSDP's hook casts where it is real. */
#include "model/titan.h"

#include "model/experts.h"

#include <math.h>
#include <stdio.h>

struct titan_block {
    struct titan_attention attention;
    bool sparse;
    struct titan_moe moe;
    struct titan_ffn ffn;
    struct norm attention_norm, ffn_norm;
};

static void declare_norms(struct graph *graph, const struct model_config *c, const char *block,
                          struct titan_block *b)
{
    b->attention_norm = build_norm(graph, block, ".attention_norm", c->hidden, false, c->norm_eps);
    b->ffn_norm = build_norm(graph, block, ".ffn_norm", c->hidden, false, c->norm_eps);
}

static struct titan_block declare_block(struct graph *graph, const struct model_config *c,
                                        const struct titan_way *way, const char *block,
                                        uint32_t index)
{
    char prefix[96];
    const struct param_init last = titan_drawn_last(index);
    struct titan_block b = {.sparse = experts_in(c, index)};
    snprintf(prefix, sizeof prefix, "%s.attention.", block);
    b.attention = way->declare(graph, c, prefix, last);
    if (way->norms_first)
        declare_norms(graph, c, block, &b);
    snprintf(prefix, sizeof prefix, "%s.%s.", block, b.sparse ? "moe" : "feed_forward");
    if (b.sparse)
        b.moe = titan_moe_declare(graph, c, prefix, last);
    else
        b.ffn = titan_ffn_declare(graph, prefix, c->hidden, c->ffn, false, last);
    if (!way->norms_first)
        declare_norms(graph, c, block, &b);
    return b;
}

/* apply_compile: of blocks with experts what they call is compiled, other blocks are whole. */
static void called(struct graph *graph, const struct titan_block *b)
{
    if (b->sparse)
        graph_mark(graph, MARK_CALLED);
}

static void returned(struct graph *graph, const struct titan_block *b)
{
    if (b->sparse)
        graph_mark(graph, MARK_CALLED_END);
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct titan_way *way,
                          const struct titan_block *b, uint32_t x, uint32_t table)
{
    called(graph, b);
    const uint32_t normed = apply_norm(graph, x, b->attention_norm);
    returned(graph, b);
    called(graph, b);
    const uint32_t attended = way->attend(graph, c, job, &b->attention, normed, table);
    returned(graph, b);
    graph_drop(graph, normed);
    const uint32_t h = op_add(graph, x, attended);
    graph_drop(graph, attended);
    called(graph, b);
    const uint32_t y = apply_norm(graph, h, b->ffn_norm);
    returned(graph, b);
    const uint32_t fed = b->sparse ? titan_moe(graph, c, &b->moe, way->scores, y)
                                   : titan_ffn(graph, c->activation, &b->ffn, y);
    graph_drop(graph, y);
    const uint32_t z = op_add(graph, h, fed);
    graph_drop(graph, fed);
    graph_drop(graph, h);
    return z;
}

static uint32_t call_block(struct graph *graph, const struct model_config *c,
                           const struct model_job *job, const struct titan_way *way, uint32_t index,
                           uint32_t x, uint32_t table)
{
    const uint32_t module = graph_module(graph, ROLE_BLOCK, "layers.%u", index);
    const struct titan_block block =
        declare_block(graph, c, way, graph->modules[module].name, index);
    const bool real = (enum dtype)graph->tensors[table].dtype != DTYPE_COMPLEX64;
    const uint32_t own = job->casts_inputs && real ? op_to(graph, table, graph->compute) : table;
    graph_enter(graph, module, x);
    graph_also_input(graph, module, own);
    const uint32_t z = run_block(graph, c, job, way, &block, x, own);
    graph_exit(graph, module, z);
    if (own != table)
        graph_drop(graph, own);
    return z;
}

void titan_build(struct graph *graph, const struct model_config *c, const struct model_job *job,
                 const struct titan_way *way)
{
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t targets = build_input(graph, c, INPUT_TARGETS, SHAPE(job->batch * job->seq));
    const uint32_t table = way->table(graph, c, job);
    graph->keeps_mm_alone = true;

    const uint32_t embeddings = graph_module(graph, ROLE_EMBEDDING, "tok_embeddings");
    const uint32_t words =
        graph_param(graph, PARAM_WEIGHT, SHAPE(c->vocab, c->hidden), "tok_embeddings.weight");
    graph_init_param(graph, words, init_normal(1, 0));
    graph_init_weights(graph, titan_drawn(0.02));
    graph_enter(graph, embeddings, tokens);
    uint32_t x = op_embedding(graph, tokens, words);
    graph_exit(graph, embeddings, x);
    for (uint32_t i = 0; i < c->layers; i++) {
        const uint32_t z = call_block(graph, c, job, way, i, x, table);
        graph_drop(graph, x);
        x = z;
    }
    const uint32_t norm = graph_module(graph, ROLE_NORM, "norm");
    const struct norm final = build_norm(graph, "", "norm", c->hidden, false, c->norm_eps);
    graph_enter(graph, norm, x);
    const uint32_t normed = apply_norm(graph, x, final);
    graph_exit(graph, norm, normed);

    const uint32_t head = graph_module(graph, ROLE_HEAD, "output");
    struct linear output = {words, GRAPH_NONE};
    if (!c->tied)
        output = build_linear(graph, "", "output", c->vocab, c->hidden, false);
    const double std = 1 / sqrt(c->hidden);
    graph_init_param(graph, output.weight, init_normal(std, 3 * std));
    build_head(graph, head, normed, x, output, targets);
}
