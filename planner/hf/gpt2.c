/* gpt2.c - GPT-2 and its kin as Hugging Face's transformers writes them: Conv1D or Linear, gelu_new
 * in eight ops of Python arithmetic, dropouts, and positions that are asked whether sequences are
 * packed. */
#include "hf/gpt2.h"
#include "hf/classify.h"
#include "hf/hf.h"

#include <math.h>

struct block {
    const struct hf_gpt2 *way; /* lent */
    struct norm ln_1, ln_2;
    struct linear c_attn, c_proj, c_fc, m_proj; /* weights (in, out), of Linear (out, in) */
    uint32_t positions;                         /* (s), or GRAPH_NONE: it is called without */
};

static struct linear declare(struct graph *graph, const struct hf_gpt2 *way, const char *prefix,
                             const char *name, uint32_t in, uint32_t out)
{
    return way->linear ? build_linear(graph, prefix, name, out, in, true)
                       : build_conv1d(graph, prefix, name, in, out);
}

static uint32_t apply(struct graph *graph, const struct block *block, uint32_t x,
                      struct linear linear)
{
    return block->way->linear ? apply_linear(graph, x, linear) : apply_conv1d(graph, x, linear);
}

static struct block declare_block(struct graph *graph, const struct model_config *c,
                                  const struct hf_gpt2 *way, const char *prefix)
{
    const uint32_t h = c->hidden, h_kv = c->kv_heads * c->head_dim;
    struct block block = {.way = way,
                          .ln_1 = build_norm(graph, prefix, ".ln_1", h, true, c->norm_eps)};
    block.c_attn = declare(graph, way, prefix, ".attn.c_attn", h, h + 2 * h_kv);
    block.c_proj = declare(graph, way, prefix, ".attn.c_proj", h, h);
    block.ln_2 = build_norm(graph, prefix, ".ln_2", h, true, c->norm_eps);
    block.c_fc = declare(graph, way, prefix, ".mlp.c_fc", h, c->ffn);
    block.m_proj = declare(graph, way, prefix, ".mlp.c_proj", c->ffn, h);
    const struct param_init last = init_normal((double)c->init_std / sqrt(2.0 * c->layers), 0);
    graph_init_param(graph, block.c_proj.weight, last);
    graph_init_param(graph, block.m_proj.weight, last);
    return block;
}

/* q, k and v as heads (b, s, a or k, d) of one product: all of q first, or head by head. */
static void cut_heads(struct graph *graph, const struct model_config *c,
                      const struct model_job *job, const struct block *block, uint32_t qkv,
                      bool masked, uint32_t part[3])
{
    const uint32_t b = job->batch, s = job->seq, a = c->heads, k = c->kv_heads, d = c->head_dim;
    if (block->way->head_by_head && a == k) {
        const uint32_t heads = hf_heads(graph, qkv, SHAPE(b, s, a, 3 * d), true);
        op_split_by(graph, graph_transpose(graph, heads, 1, 2), 3, (uint32_t[]){d, d, d}, part);
        for (uint32_t i = 0; i < 3; i++)
            part[i] = graph_transpose(graph, part[i], 1, 2);
        return;
    }
    const uint32_t widths[] = {a * d, k * d, k * d};
    const bool copied = hf_copies_gradients(graph, c, masked);
    if (block->way->head_by_head) /* unsqueeze(1) */
        op_split_by(graph, graph_view(graph, qkv, SHAPE(b, 1, s, (a + 2 * k) * d)), 3, widths,
                    part);
    else
        op_parts(graph, qkv, 3, widths, part);
    part[0] = hf_heads(graph, part[0], SHAPE(b, s, a, d),
                       a == k ? copied : hf_copies_query_gradient(graph, c, masked));
    for (uint32_t i = 1; i < 3; i++)
        part[i] = hf_heads(graph, part[i], SHAPE(b, s, k, d), copied);
}

static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t y,
                          uint32_t mask)
{
    uint32_t part[3];
    const uint32_t qkv = apply(graph, block, y, block->c_attn);
    cut_heads(graph, c, job, block, qkv, mask != GRAPH_NONE, part);
    const uint32_t o = hf_attention(graph, &(struct hf_attention){
                                               .q = part[0],
                                               .k = part[1],
                                               .v = part[2],
                                               .mask = mask,
                                               .dropout = c->attention_dropout,
                                               .positions = block->positions,
                                           });
    const uint32_t projected = apply(graph, block, o, block->c_proj);
    graph_drop(graph, o);
    const uint32_t out =
        hf_dropout_beside(graph, projected, c->dropout, block->c_proj.weight, "resid_dropout");
    graph_drop(graph, qkv);
    return out;
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t x,
                          uint32_t mask)
{
    const uint32_t y1 = apply_norm(graph, x, block->ln_1);
    const uint32_t attended = attention(graph, c, job, block, y1, mask);
    const uint32_t h = op_add(graph, attended, x);
    graph_drop(graph, y1);

    const uint32_t y2 = apply_norm(graph, h, block->ln_2);
    const uint32_t fc = apply(graph, block, y2, block->c_fc);
    const uint32_t active =
        hf_activation_beside(graph, c->activation, fc, block->c_fc.weight, "act");
    graph_drop(graph, fc);
    const uint32_t projected = apply(graph, block, active, block->m_proj);
    graph_drop(graph, active);
    const uint32_t fed =
        hf_dropout_beside(graph, projected, c->dropout, block->m_proj.weight, "dropout");
    const uint32_t z = op_add(graph, h, fed);
    graph_drop(graph, y2);
    graph_drop(graph, h);
    graph_drop(graph, attended); /* a local of the block until it returns */
    graph_drop(graph, fed);
    return z;
}

/* warn_if_padding_and_no_attention_mask: id in tokens[:, [-1, 0]]. The list is the host's, which
 * puts it into the kernel's arguments. */
static void padding_test(struct graph *graph, const struct model_job *job, uint32_t tokens,
                         uint32_t id)
{
    const uint32_t b = job->batch;
    const uint32_t list = op_fill(graph, ATEN_LIFT_FRESH, DTYPE_INT64, SHAPE(2), -1.0F);
    const uint32_t ends = op_no_grad(graph, WORK_CAT, ATEN_INDEX, DTYPE_INT64, SHAPE(b, 2), 2,
                                     (uint32_t[]){graph_slice(graph, tokens, job->seq - 1, 1),
                                                  graph_slice(graph, tokens, 0, 1)});
    graph_drop(graph, list);
    const uint32_t pads =
        op_number(graph, WORK_EQUAL_NUMBER, ATEN_EQ, DTYPE_BOOL, SHAPE(b, 2), ends, (float)id);
    const uint32_t any =
        op_no_grad(graph, WORK_ANY, ATEN_ANY, DTYPE_BOOL, (struct shape){.rank = 0}, 1, &pads);
    graph_drop(graph, pads);
    graph_drop(graph, any);
    graph_drop(graph, ends);
}

void hf_gpt2_build(struct graph *graph, const struct model_config *c, const struct model_job *job,
                   const struct hf_gpt2 *way)
{
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t labels = hf_targets(graph, c, job, INPUT_LABELS, SHAPE(job->batch, job->seq));
    if (way->triangle) /* nobody reads it */
        graph_buffer(graph, DTYPE_BOOL, SHAPE(c->max_positions, c->max_positions),
                     &(struct buffer_values){.kind = VALUES_ZEROS});
    graph_init_weights(graph, init_normal((double)c->init_std, 0));
    const uint32_t pad = hf_pad_token(c, job);
    if (way->asks_padding && pad && !job->traced && graph->attention_mask == GRAPH_NONE)
        padding_test(graph, job, tokens, pad - 1);
    uint32_t wte;
    const uint32_t token = hf_wte(graph, c, tokens, &wte);
    const uint32_t wpe = graph_param(graph, PARAM_WEIGHT, SHAPE(c->max_positions, c->hidden),
                                     "transformer.wpe.weight");
    const uint32_t positions = hf_positions(graph, job);
    uint32_t mask = way->asks_first ? hf_causal_mask(graph, job, positions) : GRAPH_NONE;
    const uint32_t position =
        op_embedding(graph, graph_view(graph, positions, SHAPE(1, job->seq)), wpe);
    uint32_t x = op_add(graph, token, position);
    if (!way->asks_first)
        mask = hf_causal_mask(graph, job, positions);
    x = hf_dropout_beside(graph, x, c->embedding_dropout, wte, "drop");

    for (uint32_t i = 0; i < c->layers; i++) {
        const uint32_t module = graph_module(graph, ROLE_BLOCK, "transformer.h.%u", i);
        struct block block = declare_block(graph, c, way, graph->modules[module].name);
        block.positions = way->asks_first ? GRAPH_NONE : positions;
        graph_enter(graph, module, x);
        if (mask != GRAPH_NONE && way->asks_first)
            graph_also_input(graph, module, mask);
        else if (mask != GRAPH_NONE)
            graph_also_argument(graph, module, mask);
        if (!way->asks_first)
            graph_also_input(graph, module, positions);
        const uint32_t z = run_block(graph, c, job, &block, x, mask);
        graph_exit(graph, module, z);
        graph_drop(graph, x);
        x = z;
    }
    const uint32_t last = graph_module(graph, ROLE_NORM, "transformer.ln_f");
    const struct norm final =
        build_norm(graph, "transformer.", "ln_f", c->hidden, true, c->norm_eps);
    graph_enter(graph, last, x);
    const uint32_t normed = apply_norm(graph, x, final);
    graph_exit(graph, last, normed);
    graph_drop(graph, x);
    graph_drop(graph, positions);
    graph_drop(graph, token);
    if (mask != GRAPH_NONE && way->asks_first) /* local variables go in the order they were set */
        graph_drop(graph, mask);
    graph_drop(graph, position);
    if (mask != GRAPH_NONE && !way->asks_first)
        graph_drop(graph, mask);
    if (job->task == TASK_SEQUENCE_CLASSIFICATION) {
        hf_score(graph, c, job, normed, tokens, labels);
        return;
    }
    const uint32_t module = graph_module(graph, ROLE_HEAD, "lm_head");
    const struct linear head = c->tied
                                   ? (struct linear){wte, GRAPH_NONE}
                                   : build_linear(graph, "", "lm_head", c->vocab, c->hidden, false);
    hf_head(graph, module, normed, head, labels);
}

void build_hf_gpt2(struct graph *graph, const struct model_config *c, const struct model_job *job)
{
    graph->loss_breaks = true; /* GPT2LMHeadModel: LOSS_MAPPING has no such name */
    hf_gpt2_build(graph, c, job, &(struct hf_gpt2){.asks_padding = true});
}
