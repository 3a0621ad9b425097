/* gpt_neo.c - GPT-Neo as Hugging Face's transformers writes it.
 *
 *     h = x + attention(ln_1 x),  z = h + mlp(ln_2 h)
 *
 * Scores are in fp32 and not scaled. Each block has a table of bools for all positions, of which
 * those of every other block allow a window only; what it masks gets the least number, and the
 * causal mask is added behind it. */
#include "families/family.h"
#include "hf/scored.h"
#include "model/count.h"

struct block {
    struct norm ln_1, ln_2;
    struct linear q, k, v, out, fc, proj;
    uint32_t allowed; /* (1, 1, n, n) */
};

static struct block declare_block(struct graph *graph, const struct model_config *c, uint32_t index,
                                  const char *prefix)
{
    const uint32_t h = c->hidden, n = c->max_positions;
    const float window = model_has_window(c, index) ? (float)c->sliding_window : 0;
    struct block block = {.ln_1 = build_norm(graph, prefix, ".ln_1", h, true, c->norm_eps)};
    block.allowed = graph_buffer(graph, DTYPE_BOOL, SHAPE(1, 1, n, n),
                                 &(struct buffer_values){.kind = VALUES_WINDOW, .number = window});
    block.k = build_linear(graph, prefix, ".attn.attention.k_proj", h, h, false);
    block.v = build_linear(graph, prefix, ".attn.attention.v_proj", h, h, false);
    block.q = build_linear(graph, prefix, ".attn.attention.q_proj", h, h, false);
    block.out = build_linear(graph, prefix, ".attn.attention.out_proj", h, h, true);
    block.ln_2 = build_norm(graph, prefix, ".ln_2", h, true, c->norm_eps);
    block.fc = build_linear(graph, prefix, ".mlp.c_fc", c->ffn, h, true);
    block.proj = build_linear(graph, prefix, ".mlp.c_proj", h, c->ffn, true);
    return block;
}

/* softmax(q kᵀ where allowed, + mask) v of heads (b, a, s, d): (b, a, s, d); *weights is Python's.
 */
static uint32_t attend(struct graph *graph, const struct model_config *c, const struct block *block,
                       uint32_t q, uint32_t k, uint32_t v, uint32_t mask, uint32_t *weights)
{
    const uint32_t s = graph->tensors[q].shape.dim[2];
    const uint32_t q_wide = op_to(graph, q, DTYPE_FP32), k_wide = op_to(graph, k, DTYPE_FP32);
    const uint32_t product = op_matmul(graph, q_wide, graph_transpose(graph, k_wide, 2, 3));
    const uint32_t allowed =
        op_slice_last(graph, op_slice_dim(graph, block->allowed, 2, 0, s), 0, s);
    const enum dtype dtype = (enum dtype)graph->tensors[product].dtype;
    const uint32_t least =
        op_fill(graph, ATEN_LIFT_FRESH, dtype, (struct shape){.rank = 0}, hf_least(dtype));
    const uint32_t chosen = op_where_else(graph, allowed, product, least);
    graph_drop(graph, product);
    const uint32_t scores = op_add(graph, chosen, mask);
    graph_drop(graph, chosen);
    *weights = hf_scored_weights(graph, scores, (enum dtype)graph->tensors[v].dtype,
                                 c->attention_dropout, block->q.weight);
    const uint32_t out = op_matmul(graph, *weights, v);
    if (q_wide != q) {
        graph_drop(graph, q_wide);
        graph_drop(graph, k_wide);
    }
    graph_drop(graph, least);
    return out;
}

static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t y,
                          uint32_t mask, uint32_t *weights)
{
    const struct shape heads = SHAPE(job->batch, job->seq, c->heads, c->head_dim);
    hf_call_outer(graph, block->q.weight);
    const uint32_t q = apply_linear(graph, y, block->q);
    const uint32_t k = apply_linear(graph, y, block->k);
    const uint32_t v = apply_linear(graph, y, block->v);
    uint32_t part[3] = {q, k, v};
    for (int i = 0; i < 3; i++)
        part[i] = graph_transpose(graph, op_reshape(graph, part[i], heads), 1, 2);
    const uint32_t o = attend(graph, c, block, part[0], part[1], part[2], mask, weights);
    const uint32_t merged = hf_scored_merged(graph, o);
    const uint32_t projected = apply_linear(graph, merged, block->out);
    graph_drop(graph, merged);
    const uint32_t out =
        hf_dropout_beside(graph, projected, c->dropout, block->q.weight, "resid_dropout");
    graph_drop(graph, q);
    graph_drop(graph, k);
    graph_drop(graph, v);
    graph_call_end(graph);
    return out;
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, uint32_t index, const char *prefix,
                          uint32_t x, const struct hf_scored_inputs *in, uint32_t *weights)
{
    const struct block block = declare_block(graph, c, index, prefix);
    const uint32_t y1 = apply_norm(graph, x, block.ln_1);
    const uint32_t attended = attention(graph, c, job, &block, y1, in->mask, weights);
    const uint32_t h = op_add(graph, attended, x);
    graph_drop(graph, y1);
    const uint32_t y2 = apply_norm(graph, h, block.ln_2);
    const uint32_t fed = hf_scored_mlp(graph, c, block.fc, block.proj, y2);
    const uint32_t z = op_add(graph, h, fed);
    graph_drop(graph, y2);
    graph_drop(graph, h);
    graph_drop(graph, attended);
    graph_drop(graph, fed);
    return z;
}

static void build(struct graph *graph, const struct model_config *c, const struct model_job *job)
{
    const struct hf_scored way = {.blocks = "transformer.h", .norm = "ln_f", .block = run_block};
    struct hf_scored_inputs in = {.bias = GRAPH_NONE, .positions = GRAPH_NONE};
    uint32_t last[2], wte;
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t labels = hf_targets(graph, c, job, INPUT_LABELS, SHAPE(job->batch, job->seq));
    graph_init_weights(graph, init_normal((double)c->init_std, 0));
    const uint32_t embedded = hf_wte(graph, c, tokens, &wte);
    const uint32_t wpe = graph_param(graph, PARAM_WEIGHT, SHAPE(c->max_positions, c->hidden),
                                     "transformer.wpe.weight");
    graph_call_begin(graph, "transformer");
    const uint32_t positions = hf_positions(graph, job);
    in.mask = hf_scored_mask(graph, job, positions);
    graph_call_end(graph);
    const uint32_t places =
        op_embedding(graph, graph_view(graph, positions, SHAPE(1, job->seq)), wpe);
    const uint32_t sum = op_add(graph, embedded, places);
    const uint32_t first = hf_dropout_beside(graph, sum, c->embedding_dropout, wte, "drop");
    const uint32_t normed = hf_scored_run(graph, c, job, &way, &in, first, last);
    graph_drop(graph, positions);
    graph_drop(graph, embedded);
    graph_drop(graph, in.mask);
    graph_drop(graph, places);
    graph_drop(graph, last[1]); /* a tuple of the last block's: its last element goes first */
    graph_drop(graph, last[0]);
    hf_scored_head(graph, c, job, &(struct hf_scored_head){tokens, labels, wte, false}, normed);
}

static const struct choice layer_kinds[] = {
    {"global", NULL, false}, {"local", NULL, true}, {NULL, NULL, false}};

static const struct key keys[] = {
    {SIZE("vocab_size", vocab, VOCAB_MAX)},
    {SIZE("hidden_size", hidden, HIDDEN_MAX)},
    {SIZE("num_layers", layers, LAYERS_MAX), .other = "num_hidden_layers"},
    {SIZE("num_heads", heads, HEADS_MAX), .other = "num_attention_heads"},
    PLAIN_HEADS,
    {DERIVED("intermediate_size", ffn, RULE_FOUR_HIDDEN, FFN_MAX)},
    {POSITIONS("max_position_embeddings", 2048)},
    {SIZE("window_size", sliding_window, POSITIONS_MAX), .absent = RULE_VALUE, .value = 256},
    {LAYER_LIST("attention_types", KEY_PATTERN, windows, layer_kinds, RULE_NONE)},
    EPS("layer_norm_epsilon", 1e-5),
    STD("initializer_range", 0.02),
    TIED(true),
    {CHOICE("activation_function", gated, "gelu_new", key_activations)},
    DROPOUT("resid_dropout", dropout, 0),
    DROPOUT("embed_dropout", embedding_dropout, 0),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {ALWAYS("mlp_bias", mlp_bias)},
};

/* Where nothing is said every other layer has a window. ("attention_layers", which published files
 * have besides, is read by nobody.) */
static void settle(struct model_config *c)
{
    for (uint32_t i = 1; i < c->layers && !c->windows.listed; i += 2)
        layer_put(&c->windows, i, true);
    c->windows.listed = true;
}

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab, n = c->max_positions;
    return c->layers * (4 * h * h + h + count_linear(c->ffn, h, true) +
                        count_linear(h, c->ffn, true) + 4 * h) +
           (c->tied ? 1 : 2) * v * h + n * h + 2 * h;
}

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* EleutherAI/gpt-neo-{125m,1.3B,2.7B}. GPTNeoForCausalLM. */
#define GPT_NEO(title, count, h, l, a, layers_with_a_window)                                       \
    {title, count,                                                                                 \
     {.arch = ARCH_GPT_NEO, .hidden = h, .layers = l, .heads = a, .kv_heads = a,                   \
      .head_dim = h / a, .ffn = 4 * h, .vocab = 50257, .max_positions = 2048,                      \
      .sliding_window = 256, .windows = {.listed = true, .bits = {layers_with_a_window}},          \
      .tied = true, .mlp_bias = true, .activation = "gelu_new", .norm_eps = 1e-5F,                 \
      .init_std = 0.02F}}

static const struct model_preset presets[] = {
    GPT_NEO("gpt-neo-125m", 125198592,  768,  12, 12, 0xAAA),
    GPT_NEO("gpt-neo-1.3b", 1315575808, 2048, 24, 16, 0xAAAAAA),
    GPT_NEO("gpt-neo-2.7b", 2651307520, 2560, 32, 20, 0xAAAAAAAA),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_gpt_neo = {
    .name = "gpt_neo",
    .class_name = "GPTNeoForCausalLM",
    .classifier = "GPTNeoForSequenceClassification",
    .block_class = "GPTNeoBlock",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .heads_divide_hidden = true,
    .learned_positions = true,
    .settle = settle,
    .parameters = parameters,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
