/* bloom.c - BLOOM as Hugging Face's transformers writes it.
 *
 *     h = r + dense(attention(norm x)),  z = r' + down(gelu(up(norm' h)))
 *
 * where r and r' are x and h, or what the norms make of them. The product for q, k and v has a
 * head's three beside each other. Attention is in single ops whatever the kernel is asked for:
 * scores begin as ALiBi's bias, and weights are returned beside a block's output, so that they live
 * until the next block has returned. gelu is a function of Python's. */
#include "families/family.h"
#include "hf/scored.h"
#include "model/count.h"

#include <math.h>

struct block {
    struct norm input, after;
    struct linear qkv, dense, up, down;
};

static struct block declare_block(struct graph *graph, const struct model_config *c,
                                  const char *prefix)
{
    const uint32_t h = c->hidden, f = c->ffn;
    struct block block = {.input =
                              build_norm(graph, prefix, ".input_layernorm", h, true, c->norm_eps)};
    block.qkv = build_linear(graph, prefix, ".self_attention.query_key_value", 3 * h, h, true);
    block.dense = build_linear(graph, prefix, ".self_attention.dense", h, h, true);
    block.after = build_norm(graph, prefix, ".post_attention_layernorm", h, true, c->norm_eps);
    block.up = build_linear(graph, prefix, ".mlp.dense_h_to_4h", f, h, true);
    block.down = build_linear(graph, prefix, ".mlp.dense_4h_to_h", h, f, true);
    return block;
}

/* Whether heads of the product are batches (b·a, s, d) by a copy: not where strides say so. */
static bool copies_heads(const struct model_config *c, const struct model_job *job)
{
    return job->batch > 1 && job->seq > 1 && c->heads > 1;
}

static uint32_t as_batches(struct graph *graph, const struct model_config *c,
                           const struct model_job *job, uint32_t heads)
{
    const uint32_t turned = graph_transpose(graph, heads, 1, 2);
    return graph_view(graph, copies_heads(c, job) ? op_unary(graph, OP_CLONE, turned) : turned,
                      SHAPE(job->batch * c->heads, job->seq, c->head_dim));
}

/* softmax of q kᵀ / the root of d + bias + mask, and its dropout: (b, a, s, s). held[2]: scores
 * without the mask and with it, Python's until attention returns. */
static uint32_t weigh(struct graph *graph, const struct model_config *c, const struct block *block,
                      uint32_t q, uint32_t k, const struct hf_scored_inputs *in, uint32_t held[2])
{
    const struct shape rows = graph->tensors[q].shape;
    const uint32_t a = c->heads, s = rows.dim[1];
    const enum dtype dtype = (enum dtype)graph->tensors[q].dtype;
    held[0] = op_baddbmm(graph, in->bias, q, graph_transpose(graph, k, 1, 2),
                         1 / sqrtf((float)c->head_dim));
    held[1] = op_add(graph, graph_view(graph, held[0], SHAPE(rows.dim[0] / a, a, s, s)), in->mask);
    const uint32_t upcast = op_to(graph, held[1], DTYPE_FP32), wide = op_softmax(graph, upcast);
    if (upcast != held[1])
        graph_drop(graph, upcast);
    const uint32_t narrow = op_to(graph, wide, dtype);
    if (narrow != wide)
        graph_drop(graph, wide);
    return hf_dropout_beside(graph, narrow, c->attention_dropout, block->qkv.weight,
                             "attention_dropout");
}

/* residual + x behind dropout, which is a function, in the place of x. */
static uint32_t dropped_sum(struct graph *graph, const struct model_config *c, uint32_t x,
                            uint32_t residual)
{
    const uint32_t kept = op_dropout(graph, x, c->dropout), sum = op_add(graph, residual, kept);
    if (kept != x)
        graph_drop(graph, kept);
    return sum;
}

/* Both modules are called with what is added to them, too. */
static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t y,
                          uint32_t residual, const struct hf_scored_inputs *in, uint32_t *weights)
{
    const uint32_t b = job->batch, s = job->seq, a = c->heads, d = c->head_dim;
    uint32_t part[3], held[2];
    hf_call_outer(graph, block->qkv.weight);
    const uint32_t qkv = apply_linear(graph, y, block->qkv);
    const uint32_t all = graph_view(graph, qkv, SHAPE(b, s, a, 3, d));
    for (uint32_t i = 0; i < 3; i++)
        part[i] = graph_view(graph, op_select(graph, all, 3, i), SHAPE(b, s, a, d));
    for (uint32_t i = 0; i < 3; i++)
        part[i] = as_batches(graph, c, job, part[i]);
    *weights = weigh(graph, c, block, part[0], part[1], in, held);
    const uint32_t mixed = op_bmm(graph, graph_view(graph, *weights, SHAPE(b * a, s, s)), part[2]);
    const uint32_t rows = hf_scored_merged(graph, op_reshape(graph, mixed, SHAPE(b, a, s, d)));
    const uint32_t projected = apply_linear(graph, rows, block->dense);
    const uint32_t out = dropped_sum(graph, c, projected, residual);
    graph_drop(graph, projected);
    graph_drop(graph, qkv);
    for (uint32_t i = 0; i < 3 && copies_heads(c, job); i++)
        graph_drop(graph, part[i]);
    graph_drop(graph, held[0]);
    graph_drop(graph, held[1]);
    graph_drop(graph, rows);
    graph_call_end(graph);
    return out;
}

static uint32_t feed_forward(struct graph *graph, const struct model_config *c,
                             const struct block *block, uint32_t y, uint32_t residual)
{
    hf_call_outer(graph, block->up.weight);
    const uint32_t up = apply_linear(graph, y, block->up);
    hf_call_beside(graph, block->up.weight, "gelu_impl");
    const uint32_t active = op_gelu_in_python(graph, up);
    graph_call_end(graph);
    graph_drop(graph, up);
    const uint32_t down = apply_linear(graph, active, block->down);
    const uint32_t out = dropped_sum(graph, c, down, residual);
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
    const uint32_t y = hf_scored_normed(graph, x, block.input);
    const uint32_t h = attention(graph, c, job, &block, y, c->post_norm ? y : x, in, weights);
    const uint32_t y2 = hf_scored_normed(graph, h, block.after);
    graph_drop(graph, y);
    const uint32_t z = feed_forward(graph, c, &block, y2, c->post_norm ? y2 : h);
    graph_drop(graph, y2);
    graph_drop(graph, h);
    return z;
}

/* ---- ALiBi ---- */

/* base to the powers 1, 1 + step ... (n) in fp32; what it is made of stays Python's: names[2]. */
static uint32_t powers(struct graph *graph, double base, uint32_t step, uint32_t n,
                       uint32_t names[2])
{
    names[0] = op_fill(graph, ATEN_FULL, DTYPE_FP32, (struct shape){.rank = 0}, (float)base);
    names[1] =
        step == 1 ? op_arange_from(graph, ATEN_ARANGE_START, DTYPE_INT32, 1, n)
                  : op_no_grad(graph, WORK_OTHER, ATEN_ARANGE_STEP, DTYPE_INT32, SHAPE(n), 0, NULL);
    return op_number(graph, WORK_POWER_OF, ATEN_POW_TENSORS, DTYPE_FP32, SHAPE(n), names[1],
                     (float)base);
}

/* Each head's slope (a): powers of 2^(-8/p) for p heads, the largest power of 2; for others between
 * these, of twice as many. */
static uint32_t slopes(struct graph *graph, uint32_t a)
{
    uint32_t p = 1, names[2], more[2];
    while (2 * p <= a)
        p *= 2;
    uint32_t out = powers(graph, pow(2, -8.0 / p), 1, p, names);
    if (p < a) {
        const uint32_t first = out, second = powers(graph, pow(2, -4.0 / p), 2, a - p, more);
        out = op_no_grad(graph, WORK_CAT, ATEN_CAT, DTYPE_FP32, SHAPE(a), 2,
                         (uint32_t[]){first, second});
        graph_drop(graph, second);
        graph_drop(graph, first);
    }
    graph_drop(graph, names[0]);
    graph_drop(graph, names[1]);
    for (int i = 0; i < 2 && p < a; i++)
        graph_drop(graph, more[i]);
    return out;
}

struct alibi {
    uint32_t bias,
        slopes; /* (b·a, 1, s); (a), Python's where a batch has no mask, else GRAPH_NONE */
};

/* Slopes times places of keys. */
static struct alibi alibi(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, enum dtype dtype)
{
    const uint32_t b = job->batch, s = job->seq, a = c->heads;
    const uint32_t slope = slopes(graph, a), column = graph_view(graph, slope, SHAPE(a, 1, 1));
    const bool padded = graph->attention_mask != GRAPH_NONE;
    const uint32_t places =
        padded ? hf_alibi_places(graph, graph->attention_mask) : op_arange(graph, s);
    const uint32_t row = graph_view(graph, places, padded ? SHAPE(b, 1, s) : SHAPE(1, 1, s));
    uint32_t bias =
        op_no_grad(graph, WORK_MUL, ATEN_MUL, DTYPE_FP32, padded ? SHAPE(b, a, s) : SHAPE(a, 1, s),
                   2, (uint32_t[]){padded ? graph_view(graph, slope, SHAPE(a, 1)) : column, row});
    if (padded) {
        const uint32_t flat = graph_view(graph, bias, SHAPE(b * a, 1, s));
        const uint32_t out = op_to(graph, flat, dtype);
        graph_drop(graph, slope);
        graph_drop(graph, places);
        if (out != flat)
            graph_drop(graph, bias);
        return (struct alibi){out, GRAPH_NONE};
    }
    graph_drop(graph, places);
    const uint32_t each = op_repeat_no_grad(
        graph, ATEN_REPEAT, graph_view(graph, bias, SHAPE(a, s)), SHAPE(b, a, s), 0);
    const uint32_t flat = graph_view(graph, each, SHAPE(b * a, 1, s));
    graph->storages[graph->tensors[each].storage].shape = SHAPE(b * a, 1, s); /* as it is born */
    const uint32_t out = op_to(graph, flat, dtype);
    if (out != flat)
        graph_drop(graph, each);
    graph_drop(graph, bias);
    return (struct alibi){out, slope};
}

/* ---- the model ---- */

static uint32_t embed(struct graph *graph, const struct model_config *c, uint32_t tokens,
                      uint32_t *table)
{
    static const char name[] = "transformer.word_embeddings";
    const uint32_t module = graph_module(graph, ROLE_EMBEDDING, "%s", name);
    *table = graph_param(graph, PARAM_WEIGHT, SHAPE(c->vocab, c->hidden), "%s.weight", name);
    graph_enter(graph, module, tokens);
    const uint32_t rows = op_embedding(graph, tokens, *table);
    graph_exit(graph, module, rows);
    return rows;
}

static void build(struct graph *graph, const struct model_config *c, const struct model_job *job)
{
    static const struct hf_scored way = {
        .blocks = "transformer.h", .norm = "ln_f", .block = run_block};
    uint32_t last[2], table;
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t labels = hf_targets(graph, c, job, INPUT_LABELS, SHAPE(job->batch, job->seq));
    graph_init_weights(graph, init_normal((double)c->init_std, 0));
    const uint32_t embedded = embed(graph, c, tokens, &table);
    const struct norm norm = build_norm(graph, "transformer.", "word_embeddings_layernorm",
                                        c->hidden, true, c->norm_eps);
    const uint32_t first = hf_scored_normed(graph, embedded, norm);
    const struct alibi bias = alibi(graph, c, job, (enum dtype)graph->tensors[first].dtype);
    graph_mark(graph, MARK_FRAME);
    const struct hf_scored_inputs in = {
        .mask = hf_added_mask(graph, job), .bias = bias.bias, .positions = GRAPH_NONE};
    graph_mark(graph, MARK_FRAME_END);
    const uint32_t normed = hf_scored_run(graph, c, job, &way, &in, first, last);
    graph_drop(graph, embedded);
    if (bias.slopes != GRAPH_NONE)
        graph_drop(graph, bias.slopes);
    graph_drop(graph, bias.bias);
    graph_drop(graph, in.mask);
    graph_drop(graph, last[1]); /* a tuple's last goes first */
    graph_drop(graph, last[0]);
    hf_scored_head(graph, c, job, &(struct hf_scored_head){tokens, labels, table, false}, normed);
}

static const struct key keys[] = {
    {SIZE("vocab_size", vocab, VOCAB_MAX)},
    {SIZE("n_embed", hidden, HIDDEN_MAX), .other = "hidden_size"},
    {SIZE("n_layer", layers, LAYERS_MAX), .other = "num_hidden_layers"},
    {SIZE("n_head", heads, HEADS_MAX), .other = "num_attention_heads"},
    PLAIN_HEADS,
    {FIXED("ffn", ffn, RULE_FOUR_HIDDEN, FFN_MAX)},
    EPS("layer_norm_epsilon", 1e-5),
    STD("initializer_range", 0.02),
    TIED(true),
    {FLAG("apply_residual_connection_post_layernorm", post_norm, false)},
    DROPOUT("hidden_dropout", dropout, 0),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {ONLY("slow_but_exact", false)},
};

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, f = c->ffn, v = c->vocab;
    const double block = count_linear(3 * h, h, true) + count_linear(h, h, true) +
                         count_linear(f, h, true) + count_linear(h, f, true) + 4 * h;
    return c->layers * block + (c->tied ? 1 : 2) * v * h + 4 * h;
}

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* bigscience/bloom-560m, -1b1, -1b7, -3b, -7b1, bloom. BloomForCausalLM. */
#define BLOOM(title, count, h, l, a)                                                               \
    {title, count,                                                                                 \
     {.arch = ARCH_BLOOM, .hidden = h, .layers = l, .heads = a, .kv_heads = a, .head_dim = h / a,  \
      .ffn = 4 * h, .vocab = 250880, .tied = true, .norm_eps = 1e-5F, .init_std = 0.02F}}

static const struct model_preset presets[] = {
    BLOOM("bloom-560m", 559214592,    1024,  24, 16),
    BLOOM("bloom-1b1",  1065314304,   1536,  24, 16),
    BLOOM("bloom-1b7",  1722408960,   2048,  24, 16),
    BLOOM("bloom-3b",   3002557440,   2560,  30, 32),
    BLOOM("bloom-7b1",  7069016064,   4096,  30, 32),
    BLOOM("bloom",      176247271424, 14336, 70, 112),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

/* BLOOMZ is fine-tuned from these. */
static const struct preset_alias aliases[] = {
    {"bloomz-560m", "bloom-560m"}, {"bloomz-1b1", "bloom-1b1"}, {"bloomz-1b7", "bloom-1b7"},
    {"bloomz-3b", "bloom-3b"},     {"bloomz-7b1", "bloom-7b1"}, {"bloomz", "bloom"},
};

const struct family family_bloom = {
    .name = "bloom",
    .class_name = "BloomForCausalLM",
    .block_class = "BloomBlock",
    .classifier = "BloomForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .heads_divide_hidden = true,
    .uncompiled = true,
    .parameters = parameters,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
