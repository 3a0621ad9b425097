/* gptj.c - GPT-J as Hugging Face's transformers writes it.
 *
 *     z = x + attention(ln x) + mlp(ln x)
 *
 * Attention is in single ops whatever the kernel is asked for: scores in fp32, which each block
 * returns beside its output, so that they live until the next block has returned. Each block reads
 * its RoPE out of a table of its own; a number's partner is the next one. */
#include "families/gptj.h"
#include "hf/scored.h"
#include "model/count.h"

#include <math.h>

struct block {
    struct norm ln;
    struct linear q, k, v, out, fc_in, fc_out;
    uint32_t table; /* (n, r) */
};

static struct block declare_block(struct graph *graph, const struct model_config *c,
                                  const struct model_job *job, const char *prefix)
{
    const uint32_t h = c->hidden;
    struct block block = {.ln = build_norm(graph, prefix, ".ln_1", h, true, c->norm_eps)};
    block.table = build_rope(graph, c, job, ROPE_SINES, c->rotary_dim);
    block.k = build_linear(graph, prefix, ".attn.k_proj", h, h, false);
    block.v = build_linear(graph, prefix, ".attn.v_proj", h, h, false);
    block.q = build_linear(graph, prefix, ".attn.q_proj", h, h, false);
    block.out = build_linear(graph, prefix, ".attn.out_proj", h, h, false);
    block.fc_in = build_linear(graph, prefix, ".mlp.fc_in", c->ffn, h, true);
    block.fc_out = build_linear(graph, prefix, ".mlp.fc_out", h, c->ffn, true);
    return block;
}

struct sincos {
    uint32_t table, ids, rows; /* Python's until attention returns */
};

/* Rows (1, s, r) of the table, in a dtype: gathered by positions that are repeated for it. */
static struct sincos look_up(struct graph *graph, const struct model_config *c,
                             const struct block *block, uint32_t positions, enum dtype dtype)
{
    const uint32_t n = c->max_positions, r = c->rotary_dim;
    const uint32_t s = graph->tensors[positions].shape.dim[0];
    struct sincos at;
    at.table =
        op_no_grad(graph, WORK_COPY, ATEN_REPEAT, DTYPE_FP32, SHAPE(1, n, r), 1, &block->table);
    at.ids = op_repeat_no_grad(graph, ATEN_REPEAT, graph_view(graph, positions, SHAPE(1, s)),
                               SHAPE(1, s, r), 2);
    const uint32_t gathered =
        op_no_grad(graph, WORK_EMBEDDING, ATEN_GATHER, DTYPE_FP32, SHAPE(1, s, r), 2,
                   (uint32_t[]){graph_view(graph, positions, SHAPE(1, s)),
                                graph_view(graph, at.table, SHAPE(n, r))});
    at.rows = op_to(graph, gathered, dtype);
    if (at.rows != gathered)
        graph_drop(graph, gathered);
    return at;
}

/* _attn of heads (b, a, s, d): softmax(q kᵀ / root d + mask) v, (b, a, s, d); *weights is
 * Python's. */
static uint32_t attend(struct graph *graph, const struct model_config *c, const struct block *block,
                       uint32_t q, uint32_t k, uint32_t v, uint32_t mask, uint32_t *weights)
{
    const uint32_t q_wide = op_to(graph, q, DTYPE_FP32), k_wide = op_to(graph, k, DTYPE_FP32);
    const uint32_t product = op_matmul(graph, q_wide, graph_transpose(graph, k_wide, 2, 3));
    const uint32_t scores = op_scalar(graph, OP_DIV_SCALAR, product, sqrtf((float)c->head_dim));
    graph_drop(graph, product);
    const uint32_t masked = op_add(graph, scores, mask);
    graph_drop(graph, scores);
    const enum dtype dtype = (enum dtype)graph->tensors[v].dtype;
    *weights = hf_scored_weights(graph, masked, dtype, c->attention_dropout, block->k.weight);
    const uint32_t out = op_matmul(graph, *weights, v);
    if (q_wide != q) {
        graph_drop(graph, q_wide);
        graph_drop(graph, k_wide);
    }
    return out;
}

static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t y,
                          uint32_t mask, uint32_t positions, uint32_t *weights)
{
    const uint32_t b = job->batch, s = job->seq, r = c->rotary_dim;
    const struct shape heads = SHAPE(b, s, c->heads, c->head_dim);
    const uint32_t q0 = apply_linear(graph, y, block->q);
    const uint32_t k0 = apply_linear(graph, y, block->k);
    const uint32_t v0 = apply_linear(graph, y, block->v);
    const uint32_t q1 = op_reshape(graph, q0, heads), k1 = op_reshape(graph, k0, heads);
    const uint32_t v = op_reshape(graph, v0, heads);
    const struct sincos at =
        look_up(graph, c, block, positions, (enum dtype)graph->tensors[k0].dtype);
    const struct hf_cut k_cut = hf_cut_heads(graph, k1, r), q_cut = hf_cut_heads(graph, q1, r);
    const uint32_t k_turned = hf_scored_rotated(graph, k_cut.turned, at.rows);
    const uint32_t q_turned = hf_scored_rotated(graph, q_cut.turned, at.rows);
    const uint32_t k = op_cat_last(graph, k_turned, k_cut.passed);
    const uint32_t q = op_cat_last(graph, q_turned, q_cut.passed);
    const uint32_t o =
        attend(graph, c, block, graph_transpose(graph, q, 1, 2), graph_transpose(graph, k, 1, 2),
               graph_transpose(graph, v, 1, 2), mask, weights);
    const uint32_t merged = hf_scored_merged(graph, o);
    const uint32_t projected = apply_linear(graph, merged, block->out);
    graph_drop(graph, merged);
    const uint32_t out =
        hf_dropout_beside(graph, projected, c->dropout, block->k.weight, "resid_dropout");
    graph_drop(graph, q);
    graph_drop(graph, k);
    graph_drop(graph, v0);
    graph_drop(graph, at.table);
    graph_drop(graph, at.ids);
    graph_drop(graph, at.rows);
    graph_drop(graph, k_turned);
    graph_drop(graph, k0);
    graph_drop(graph, q_turned);
    graph_drop(graph, q0);
    return out;
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, uint32_t index, const char *prefix,
                          uint32_t x, const struct hf_scored_inputs *in, uint32_t *weights)
{
    (void)index;
    const struct block block = declare_block(graph, c, job, prefix);
    const uint32_t y = apply_norm(graph, x, block.ln);
    const uint32_t attended = attention(graph, c, job, &block, y, in->mask, in->positions, weights);
    const uint32_t fed = hf_scored_mlp(graph, c, block.fc_in, block.fc_out, y);
    return hf_scored_sum(graph, x, y, attended, fed);
}

static void build(struct graph *graph, const struct model_config *c, const struct model_job *job)
{
    hf_scored_gptj(graph, c, job, run_block);
}

static const struct key keys[] = {GPTJ_KEYS};

/* EleutherAI/gpt-j-6b. GPTJForCausalLM. */
static const struct model_preset presets[] = {
    {"gpt-j-6b",
     6050882784,
     {.arch = ARCH_GPTJ,
      .hidden = 4096,
      .layers = 28,
      .heads = 16,
      .kv_heads = 16,
      .head_dim = 256,
      .ffn = 16384,
      .vocab = 50400,
      .max_positions = 2048,
      .rotary_dim = 64,
      .mlp_bias = true,
      .activation = "gelu_new",
      .norm_eps = 1e-5F,
      .init_std = 0.02F,
      .rope.theta = 1e4F,
      .rope.attention_factor = 1}},
};

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab;
    return c->layers *
               (4 * h * h + count_linear(c->ffn, h, true) + count_linear(h, c->ffn, true) + 2 * h) +
           (c->tied ? 1 : 2) * v * h + v + 2 * h;
}

const struct family family_gptj = {
    .name = "gptj",
    .class_name = "GPTJForCausalLM",
    .classifier = "GPTJForSequenceClassification",
    .block_class = "GPTJBlock",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .heads_divide_hidden = true,
    .learned_positions = true,
    .parameters = parameters,
    .newer = GPTJ_NEWER,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
