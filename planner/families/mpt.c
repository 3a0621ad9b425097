/* mpt.c - MPT as Hugging Face's transformers writes it.
 *
 *     h = x + attention(norm_1 x),  z = h + down(gelu(up(norm_2 h)))
 *
 * No bias anywhere, and no dropout: its share is an integer in the config class. Attention is in
 * single ops whatever the kernel is asked for, with ALiBi for as many keys as a sequence may have,
 * of which each block takes the last; scores are returned beside its output, so that they live
 * until the next block has returned. */
#include "families/family.h"
#include "hf/scored.h"
#include "model/count.h"

#include <math.h>

struct block {
    struct norm norm_1, norm_2;
    struct linear qkv, out, up, down;
};

static struct block declare_block(struct graph *graph, const struct model_config *c,
                                  const char *prefix)
{
    const uint32_t h = c->hidden;
    struct block block = {.norm_1 = build_norm(graph, prefix, ".norm_1", h, false, c->norm_eps)};
    block.qkv = build_linear(graph, prefix, ".attn.Wqkv", 3 * h, h, false);
    block.out = build_linear(graph, prefix, ".attn.out_proj", h, h, false);
    block.norm_2 = build_norm(graph, prefix, ".norm_2", h, false, c->norm_eps);
    block.up = build_linear(graph, prefix, ".ffn.up_proj", c->ffn, h, false);
    block.down = build_linear(graph, prefix, ".ffn.down_proj", h, c->ffn, false);
    return block;
}

/* A tensor outside autograd from another of its shape, which goes. */
static uint32_t next(struct graph *graph, enum work_kind work, enum aten aten, uint32_t x,
                     float number)
{
    const struct shape shape = graph->tensors[x].shape;
    const uint32_t out = op_number(graph, work, aten, DTYPE_FP32, shape, x, number);
    graph_drop(graph, x);
    return out;
}

/* Each head's slope, 2^(-8 i / a) of the i-th, times 1 - n ... 0: (1, a, 1, n) in fp32. */
static uint32_t alibi(struct graph *graph, const struct model_config *c)
{
    const uint32_t a = c->heads, n = c->max_positions;
    const uint32_t places = op_arange_from(graph, ATEN_ARANGE_START, DTYPE_INT32, 1 - n, n);
    const uint32_t range = op_arange_from(graph, ATEN_ARANGE_START, DTYPE_INT64, 1, a);
    const uint32_t cast = next(graph, WORK_CAST, ATEN_TO_COPY, range, 0);
    const uint32_t base = next(graph, WORK_MUL_NUMBER, ATEN_MUL, cast, 8.0F / (float)a);
    const uint32_t power =
        op_number(graph, WORK_POWER_OF, ATEN_POW_SCALAR, DTYPE_FP32, SHAPE(a), base, 2.0F);
    const uint32_t inverse =
        op_number(graph, WORK_POW, ATEN_RECIPROCAL, DTYPE_FP32, SHAPE(a), power, -1.0F);
    const uint32_t slopes =
        op_number(graph, WORK_MUL_NUMBER, ATEN_MUL, DTYPE_FP32, SHAPE(a), inverse, 1.0F);
    graph_drop(graph, inverse);
    graph_drop(graph, power);
    const uint32_t bias = op_no_grad(graph, WORK_MUL, ATEN_MUL, DTYPE_FP32, SHAPE(1, a, 1, n), 2,
                                     (uint32_t[]){graph_view(graph, places, SHAPE(1, 1, 1, n)),
                                                  graph_view(graph, slopes, SHAPE(1, a, 1, 1))});
    graph_drop(graph, places);
    graph_drop(graph, slopes);
    graph_drop(graph, base);
    return bias;
}

/* Heads (b, s, a, d) of a third of the product. */
static uint32_t heads_of(struct graph *graph, const struct model_config *c,
                         const struct model_job *job, uint32_t part)
{
    return op_reshape(graph, part, SHAPE(job->batch, job->seq, c->heads, c->head_dim));
}

/* softmax of the scores q kᵀ · scale + bias, masked: (b, a, s, s). *scores is Python's until
 * attention returns. */
static uint32_t weigh(struct graph *graph, const struct model_config *c, uint32_t q, uint32_t k,
                      uint32_t bias, uint32_t mask, uint32_t *scores)
{
    const uint32_t n = c->max_positions, s = graph->tensors[q].shape.dim[2];
    const uint32_t product = op_matmul(graph, q, graph_transpose(graph, k, 2, 3));
    const uint32_t scaled = op_scalar(graph, OP_MUL_SCALAR, product, 1 / sqrtf((float)c->head_dim));
    graph_drop(graph, product);
    const uint32_t biased = op_add(graph, scaled, graph_slice(graph, bias, n - s, s));
    graph_drop(graph, scaled);
    *scores = op_masked_number(graph, biased, mask, hf_least((enum dtype)graph->tensors[q].dtype));
    graph_drop(graph, biased);
    const uint32_t upcast = op_to(graph, *scores, DTYPE_FP32);
    const uint32_t wide = op_softmax(graph, upcast);
    if (upcast != *scores)
        graph_drop(graph, upcast);
    const uint32_t weights = op_to(graph, wide, (enum dtype)graph->tensors[q].dtype);
    if (weights != wide)
        graph_drop(graph, wide);
    return weights;
}

static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t y,
                          const struct hf_scored_inputs *in, uint32_t *weights)
{
    uint32_t part[3], scores;
    const uint32_t qkv = apply_linear(graph, y, block->qkv);
    op_chunk(graph, qkv, 3, part);
    for (int i = 0; i < 3; i++)
        part[i] = graph_transpose(graph, heads_of(graph, c, job, part[i]), 1, 2);
    *weights = weigh(graph, c, part[0], part[1], in->bias, in->mask, &scores);
    const uint32_t mixed = hf_scored_merged(graph, op_matmul(graph, *weights, part[2]));
    const uint32_t out = apply_linear(graph, mixed, block->out);
    graph_drop(graph, qkv);
    graph_drop(graph, scores);
    graph_drop(graph, mixed);
    return out;
}

/* The module is called with what is added to it, too. */
static uint32_t feed_forward(struct graph *graph, const struct block *block, uint32_t y,
                             uint32_t residual)
{
    hf_call_outer(graph, block->up.weight);
    const uint32_t up = apply_linear(graph, y, block->up);
    const uint32_t active = hf_activation_beside(graph, "gelu", up, block->up.weight, "act");
    graph_drop(graph, up);
    const uint32_t down = apply_linear(graph, active, block->down);
    const uint32_t out = op_add(graph, down, residual);
    graph_drop(graph, active);
    graph_drop(graph, down);
    graph_call_end(graph);
    return out;
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, uint32_t index, const char *prefix,
                          uint32_t x, const struct hf_scored_inputs *in, uint32_t *weights)
{
    (void)index;
    const struct block block = declare_block(graph, c, prefix);
    const uint32_t y1 = hf_scored_normed(graph, x, block.norm_1);
    const uint32_t attended = attention(graph, c, job, &block, y1, in, weights);
    const uint32_t same =
        hf_dropout_beside(graph, attended, 0, block.norm_1.weight, "resid_attn_dropout");
    const uint32_t h = op_add(graph, same, x);
    const uint32_t y2 = hf_scored_normed(graph, h, block.norm_2);
    graph_drop(graph, y1);
    const uint32_t z = feed_forward(graph, &block, y2, h);
    graph_drop(graph, y2);
    graph_drop(graph, h);
    graph_drop(graph, same);
    return z;
}

static void build(struct graph *graph, const struct model_config *c, const struct model_job *job)
{
    uint32_t last[2], wte;
    const struct hf_scored way = {.blocks = "transformer.blocks",
                                  .norm = "norm_f",
                                  .block = run_block,
                                  .keeps_first = true,
                                  .bare_bias = true};
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t labels = hf_targets(graph, c, job, INPUT_LABELS, SHAPE(job->batch, job->seq));
    graph_init_weights(graph, init_normal((double)c->init_std, 0));
    const uint32_t embedded = hf_wte(graph, c, tokens, &wte);
    graph_mark(graph, MARK_FRAME);
    const uint32_t bias = alibi(graph, c);
    graph_mark(graph, MARK_FRAME_END);
    graph_mark(graph, MARK_FRAME);
    const uint32_t added = hf_added_mask(graph, job);
    graph_mark(graph, MARK_FRAME_END);
    const struct hf_scored_inputs in = {
        .mask = op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_BOOL, graph->tensors[added].shape,
                           1, &added),
        .bias = graph_view(graph, bias, SHAPE(c->heads, 1, c->max_positions)), /* squeeze(0) */
        .positions = GRAPH_NONE,
    };
    graph_drop(graph, added);
    const uint32_t normed = hf_scored_run(graph, c, job, &way, &in, embedded, last);
    graph_drop(graph, embedded);
    graph_drop(graph, bias);
    graph_drop(graph, in.mask);
    graph_drop(graph, last[1]); /* a tuple's last goes first */
    graph_drop(graph, last[0]);
    hf_scored_head(graph, c, job, &(struct hf_scored_head){tokens, labels, wte, false}, normed);
}

static const struct key keys[] = {
    {SIZE("vocab_size", vocab, VOCAB_MAX)},
    {SIZE("d_model", hidden, HIDDEN_MAX), .other = "hidden_size"},
    {SIZE("n_layers", layers, LAYERS_MAX), .other = "num_hidden_layers"},
    {SIZE("n_heads", heads, HEADS_MAX), .other = "num_attention_heads"},
    PLAIN_HEADS,
    {FIXED("ffn", ffn, RULE_FOUR_HIDDEN, FFN_MAX)},
    {POSITIONS("max_seq_len", 2048)},
    NEUTRAL("attn_config.clip_qkv", NO_NUMBER),
    NEUTRAL("attn_config.softmax_scale", NO_NUMBER),
    NEUTRAL("attn_config.attn_pdrop", 0),
    EPS("layer_norm_epsilon", 1e-5),
    STD("initializer_range", 0.02),
    TIED(true),
};

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    (void)table;
    if (c->heads & (c->heads - 1))
        return err_set(err, ERR_INVALID,
                       "%s: \"n_heads\": %u: expected a power of 2 (nothing else is planned for)",
                       where, c->heads);
    return ERR_OK;
}

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab;
    return c->layers * (4 * h * h + 2 * h * c->ffn + 2 * h) + (c->tied ? 1 : 2) * v * h + h;
}

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* mosaicml/mpt-7b, mpt-7b-8k, mpt-30b. MptForCausalLM. */
#define MPT(title, count, h, l, a, positions)                                                      \
    {title, count,                                                                                 \
     {.arch = ARCH_MPT, .hidden = h, .layers = l, .heads = a, .kv_heads = a, .head_dim = h / a,    \
      .ffn = 4 * h, .vocab = 50432, .max_positions = positions, .tied = true, .norm_eps = 1e-5F,   \
      .init_std = 0.02F}}

static const struct model_preset presets[] = {
    MPT("mpt-7b",    6649286656,  4096, 32, 32, 2048),
    MPT("mpt-7b-8k", 6649286656,  4096, 32, 32, 8192),
    MPT("mpt-30b",   29957200896, 7168, 48, 64, 8192),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_mpt = {
    .name = "mpt",
    .class_name = "MptForCausalLM",
    .classifier = "MptForSequenceClassification",
    .block_class = "MptBlock",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .heads_divide_hidden = true,
    .learned_positions = true,
    .check = check,
    .parameters = parameters,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
