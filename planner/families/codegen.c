/* codegen.c - CodeGen as Hugging Face's transformers writes it: GPT-J whose q, v and k come in one
 * product, in four parts as four devices once had them.
 *
 * RoPE's factors stay in fp32, and so do q and k, which the scores are of. */
#include "families/gptj.h"
#include "hf/scored.h"
#include "model/count.h"

#include <math.h>

enum { PARTS = 4 }; /* mp_num */

struct block {
    struct norm ln;
    struct linear qkv, out, fc_in, fc_out;
    uint32_t table; /* (n, r) */
};

static struct block declare_block(struct graph *graph, const struct model_config *c,
                                  const struct model_job *job, const char *prefix)
{
    const uint32_t h = c->hidden;
    struct block block = {.ln = build_norm(graph, prefix, ".ln_1", h, true, c->norm_eps)};
    block.table = build_rope(graph, c, job, ROPE_SINES, c->rotary_dim);
    block.qkv = build_linear(graph, prefix, ".attn.qkv_proj", 3 * h, h, false);
    block.out = build_linear(graph, prefix, ".attn.out_proj", h, h, false);
    block.fc_in = build_linear(graph, prefix, ".mlp.fc_in", c->ffn, h, true);
    block.fc_out = build_linear(graph, prefix, ".mlp.fc_out", h, c->ffn, true);
    return block;
}

/* Heads (b, s, a, d) of what each part of the product has of them (b, s, 4, h/4): a copy, unless a
 * part has one head. */
static uint32_t split_heads(struct graph *graph, const struct model_config *c,
                            const struct model_job *job, uint32_t x)
{
    const uint32_t b = job->batch, s = job->seq, a = c->heads, d = c->head_dim;
    const struct shape heads = SHAPE(b, s, a, d);
    if (a == PARTS)
        return op_reshape(graph, x, heads);
    const uint32_t parts = op_reshape(graph, x, SHAPE(b, s, PARTS, a / PARTS, d));
    return op_reshape(graph, op_unary(graph, OP_CLONE, parts), heads);
}

/* softmax((q kᵀ + mask) / root d) v of heads (b, a, s, d): (b, a, s, d); *weights is Python's. */
static uint32_t attend(struct graph *graph, const struct model_config *c, const struct block *block,
                       uint32_t q, uint32_t k, uint32_t v, uint32_t mask, uint32_t *weights)
{
    const uint32_t q_wide = op_to(graph, q, DTYPE_FP32), k_wide = op_to(graph, k, DTYPE_FP32);
    const uint32_t product = op_matmul(graph, q_wide, graph_transpose(graph, k_wide, 2, 3));
    const uint32_t masked = op_add(graph, product, mask);
    graph_drop(graph, product);
    const uint32_t scores = op_scalar(graph, OP_DIV_SCALAR, masked, sqrtf((float)c->head_dim));
    graph_drop(graph, masked);
    *weights = hf_scored_weights(graph, scores, (enum dtype)graph->tensors[v].dtype,
                                 c->attention_dropout, block->qkv.weight);
    const uint32_t out = op_matmul(graph, *weights, v);
    if (q_wide != q) {
        graph_drop(graph, q_wide);
        graph_drop(graph, k_wide);
    }
    return out;
}

static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t y,
                          const struct hf_scored_inputs *in, uint32_t *weights)
{
    enum { Q, V, K };
    const uint32_t s = job->seq, r = c->rotary_dim;
    uint32_t part[3];
    const uint32_t qkv = apply_linear(graph, y, block->qkv);
    op_chunk(graph, op_reshape(graph, qkv, SHAPE(job->batch, s, PARTS, 3 * c->hidden / PARTS)), 3,
             part);
    const uint32_t q0 = split_heads(graph, c, job, part[Q]);
    const uint32_t k0 = split_heads(graph, c, job, part[K]);
    const uint32_t v = split_heads(graph, c, job, part[V]);
    const uint32_t rows =
        op_no_grad(graph, WORK_EMBEDDING, ATEN_INDEX, DTYPE_FP32, SHAPE(1, s, r), 2,
                   (uint32_t[]){graph_view(graph, in->positions, SHAPE(1, s)), block->table});
    const struct hf_cut k_cut = hf_cut_heads(graph, k0, r), q_cut = hf_cut_heads(graph, q0, r);
    const uint32_t k_turned = hf_scored_rotated(graph, k_cut.turned, rows);
    const uint32_t q_turned = hf_scored_rotated(graph, q_cut.turned, rows);
    const uint32_t k = op_cat_last(graph, k_turned, k_cut.passed);
    const uint32_t q = op_cat_last(graph, q_turned, q_cut.passed);
    const uint32_t o =
        attend(graph, c, block, graph_transpose(graph, q, 1, 2), graph_transpose(graph, k, 1, 2),
               graph_transpose(graph, v, 1, 2), in->mask, weights);
    const uint32_t merged = hf_scored_merged(graph, o);
    const uint32_t projected = apply_linear(graph, merged, block->out);
    graph_drop(graph, merged);
    const uint32_t out =
        hf_dropout_beside(graph, projected, c->dropout, block->qkv.weight, "resid_dropout");
    const bool copied = c->heads != PARTS;
    if (copied)
        graph_drop(graph, qkv);
    graph_drop(graph, q);
    if (copied)
        graph_drop(graph, v);
    graph_drop(graph, k);
    graph_drop(graph, rows);
    graph_drop(graph, k_turned);
    if (copied)
        graph_drop(graph, k0);
    graph_drop(graph, q_turned);
    graph_drop(graph, copied ? q0 : qkv); /* which all heads are views of */
    return out;
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, uint32_t index, const char *prefix,
                          uint32_t x, const struct hf_scored_inputs *in, uint32_t *weights)
{
    (void)index;
    const struct block block = declare_block(graph, c, job, prefix);
    const uint32_t y = apply_norm(graph, x, block.ln);
    const uint32_t attended = attention(graph, c, job, &block, y, in, weights);
    const uint32_t fed = hf_scored_mlp(graph, c, block.fc_in, block.fc_out, y);
    return hf_scored_sum(graph, x, y, attended, fed);
}

static void build(struct graph *graph, const struct model_config *c, const struct model_job *job)
{
    hf_scored_gptj(graph, c, job, run_block);
}

static const struct key keys[] = {GPTJ_KEYS};

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    if (c->heads % PARTS)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u: expected a multiple of %d", where,
                       NAME_OF(table, heads), c->heads, PARTS);
    return ERR_OK;
}

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab;
    return c->layers *
               (4 * h * h + count_linear(c->ffn, h, true) + count_linear(h, c->ffn, true) + 2 * h) +
           (c->tied ? 1 : 2) * v * h + v + 2 * h;
}

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* Salesforce/codegen-{350M,2B,6B,16B}-mono, whose heads share out the hidden size. */
#define CODEGEN(title, count, h, l, a, r)                                                          \
    {title, count,                                                                                 \
     {.arch = ARCH_CODEGEN, .hidden = h, .layers = l, .heads = a, .kv_heads = a,                   \
      .head_dim = h / a, .ffn = 4 * h, .vocab = 51200, .max_positions = 2048, .rotary_dim = r,     \
      .mlp_bias = true, .activation = "gelu_new", .norm_eps = 1e-5F, .init_std = 0.02F,            \
      .rope.theta = 1e4F, .rope.attention_factor = 1}}

static const struct model_preset presets[] = {
    CODEGEN("codegen-350m-mono", 356712448,   1024, 20, 16, 32),
    CODEGEN("codegen-2b-mono",   2779356160,  2560, 32, 32, 64),
    CODEGEN("codegen-6b-mono",   7064213504,  4096, 33, 16, 64),
    CODEGEN("codegen-16b-mono",  16032155648, 6144, 34, 24, 64),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_codegen = {
    .name = "codegen",
    .class_name = "CodeGenForCausalLM",
    .block_class = "CodeGenBlock",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .heads_divide_hidden = true,
    .learned_positions = true,
    .check = check,
    .parameters = parameters,
    .newer = GPTJ_NEWER,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
