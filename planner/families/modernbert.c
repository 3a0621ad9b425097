/* modernbert.c - ModernBERT with its masked language model head, as Hugging Face's transformers
 * writes it.
 *
 *     h = x + Wo(attention(rope(q y), rope(k y), v y))       y = norm(x), in the first layer x
 *     z = h + Wo(act(a) · g),  [a g] = Wi(norm(h))
 *     logits = words · norm(act(dense(norm z))) + bias        the head shares the embedding
 *
 * LayerNorms have no bias. Of some layers the first sees all tokens and the others a window that
 * ends as far behind a token as it begins before it; each kind has a RoPE of its own, whose factors
 * meet q and k in fp32. */
#include "families/family.h"
#include "hf/classify.h"
#include "hf/hf.h"
#include "model/count.h"

#include <math.h>

enum kind { FULL, WINDOW, KINDS }; /* of a layer */

struct block {
    struct norm attn_norm, mlp_norm;
    struct linear qkv, out, wi, wo;
    const char *name;
    bool first;
    uint32_t window; /* tokens on either side, the query's own among them; 0: all */
};

static struct norm declare_norm(struct graph *graph, const struct model_config *c,
                                const char *prefix, const char *name)
{
    return build_norm(graph, prefix, name, c->hidden, c->norm_bias, c->norm_eps);
}

static uint32_t normed_by(struct graph *graph, uint32_t x, struct norm norm)
{
    return op_layer_norm(graph, x, norm.weight, norm.bias, norm.eps);
}

/* Weights of what adds to the residual are drawn closer to 0. */
static struct linear draw_closer(struct graph *graph, const struct model_config *c,
                                 struct linear linear)
{
    const double std = (double)c->init_std / sqrt(2.0 * c->layers);
    graph_init_param(graph, linear.weight, init_normal(std, std * (double)c->init_cutoff));
    return linear;
}

static struct block declare_block(struct graph *graph, const struct model_config *c, uint32_t index,
                                  const char *prefix)
{
    const uint32_t h = c->hidden;
    struct block block = {.name = prefix, .first = index == 0};
    if (!block.first)
        block.attn_norm = declare_norm(graph, c, prefix, ".attn_norm");
    block.qkv = build_linear(graph, prefix, ".attn.Wqkv", 3 * h, h, c->attention_bias);
    block.out =
        draw_closer(graph, c, build_linear(graph, prefix, ".attn.Wo", h, h, c->attention_bias));
    block.mlp_norm = declare_norm(graph, c, prefix, ".mlp_norm");
    block.wi = build_linear(graph, prefix, ".mlp.Wi", 2 * c->ffn, h, c->mlp_bias);
    block.wo =
        draw_closer(graph, c, build_linear(graph, prefix, ".mlp.Wo", h, c->ffn, c->mlp_bias));
    return block;
}

/* x (b, a, s, d) cos + rotate_half(x) sin, in fp32, for which x is cast twice; cast back. */
static uint32_t rotated(struct graph *graph, uint32_t x, struct hf_rope rope)
{
    const struct graph_tensor t = graph->tensors[x];
    const uint32_t s = t.shape.dim[2], d = t.shape.dim[3];
    const uint32_t cos = graph_view(graph, rope.cos, SHAPE(1, 1, s, d));
    const uint32_t sin = graph_view(graph, rope.sin, SHAPE(1, 1, s, d));
    const uint32_t first = op_to(graph, x, DTYPE_FP32);
    const uint32_t straight = op_mul(graph, first, cos);
    if (first != x)
        graph_drop(graph, first);
    const uint32_t second = op_to(graph, x, DTYPE_FP32);
    const uint32_t low = op_slice_last(graph, second, 0, d / 2);
    const uint32_t minus = op_unary(graph, OP_NEG, op_slice_last(graph, second, d / 2, d / 2));
    const uint32_t turned = op_cat_last(graph, minus, low);
    graph_drop(graph, minus);
    if (second != x)
        graph_drop(graph, second);
    const uint32_t crossed = op_mul(graph, turned, sin);
    graph_drop(graph, turned);
    const uint32_t out = op_add(graph, straight, crossed);
    graph_drop(graph, straight);
    graph_drop(graph, crossed);
    return out;
}

struct inputs { /* of layers, by kind */
    struct hf_rope rope[KINDS];
    uint32_t mask[KINDS];
};

static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t y,
                          uint32_t mask, struct hf_rope rope)
{
    const struct shape heads = SHAPE(job->batch, job->seq, c->heads, c->head_dim);
    uint32_t part[3], wide[2], turned[2];
    const uint32_t qkv = apply_linear(graph, y, block->qkv);
    const enum dtype own = (enum dtype)graph->tensors[qkv].dtype;
    op_unbind(graph, qkv, 3, heads, part);
    for (int i = 0; i < 3; i++)
        part[i] = graph_transpose(graph, part[i], 1, 2);
    for (int i = 0; i < 2; i++)
        wide[i] = rotated(graph, part[i], rope);
    for (int i = 0; i < 2; i++)
        turned[i] = op_to(graph, wide[i], own);
    for (int i = 0; i < 2; i++)
        if (turned[i] != wide[i])
            graph_drop(graph, wide[i]);
    const uint32_t o = hf_attention(graph, &(struct hf_attention){
                                               .q = graph_transpose(graph, turned[0], 1, 2),
                                               .k = graph_transpose(graph, turned[1], 1, 2),
                                               .v = graph_transpose(graph, part[2], 1, 2),
                                               .mask = mask,
                                               .both_ways = true,
                                               .window = block->window,
                                               .dropout = c->attention_dropout,
                                           });
    const uint32_t projected = apply_linear(graph, o, block->out);
    const uint32_t out =
        hf_dropout_beside(graph, projected, c->attention_dropout, block->out.weight, "out_drop");
    graph_drop(graph, o);
    graph_drop(graph, turned[0]);
    graph_drop(graph, turned[1]);
    graph_drop(graph, qkv); /* v is a view of it */
    return out;
}

static uint32_t feed_forward(struct graph *graph, const struct model_config *c,
                             const struct block *block, uint32_t y)
{
    uint32_t half[2];
    const uint32_t both = apply_linear(graph, y, block->wi);
    op_chunk(graph, both, 2, half);
    const uint32_t active =
        hf_activation_beside(graph, c->activation, half[0], block->wi.weight, "act");
    const uint32_t product = op_mul(graph, active, half[1]);
    graph_drop(graph, active);
    const uint32_t dropped =
        hf_dropout_beside(graph, product, c->dropout, block->wi.weight, "drop");
    const uint32_t out = apply_linear(graph, dropped, block->wo);
    graph_drop(graph, dropped);
    graph_drop(graph, both);
    return out;
}

/* The input of attention: the first layer has no norm, but a module that returns what it gets. */
static uint32_t attention_input(struct graph *graph, const struct block *block, uint32_t x)
{
    if (!block->first)
        return normed_by(graph, x, block->attn_norm);
    graph_call_begin(graph, "%s.attn_norm", block->name);
    const uint32_t y = op_called_alone(graph, x);
    graph_call_end(graph);
    return y;
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t x,
                          uint32_t mask, struct hf_rope rope)
{
    const uint32_t y = attention_input(graph, block, x);
    const uint32_t attended = attention(graph, c, job, block, y, mask, rope);
    if (!block->first)
        graph_drop(graph, y);
    const uint32_t h = op_add(graph, x, attended);
    const uint32_t y2 = normed_by(graph, h, block->mlp_norm);
    const uint32_t fed = feed_forward(graph, c, block, y2);
    graph_drop(graph, y2);
    const uint32_t z = op_add(graph, h, fed);
    graph_drop(graph, fed);
    graph_drop(graph, h);
    graph_drop(graph, attended);
    return z;
}

struct embedding {
    uint32_t words;
    struct norm norm;
};

static struct embedding declare_embedding(struct graph *graph, const struct model_config *c)
{
    return (struct embedding){
        .words = graph_param(graph, PARAM_WEIGHT, SHAPE(c->vocab, c->hidden),
                             "model.embeddings.tok_embeddings.weight"),
        .norm = declare_norm(graph, c, "model.embeddings.", "norm"),
    };
}

static uint32_t embed(struct graph *graph, const struct model_config *c, const struct embedding *e,
                      uint32_t tokens)
{
    graph_call_begin(graph, "model.embeddings");
    const uint32_t rows = op_embedding(graph, tokens, e->words);
    op_embedding_padding(graph, rows, c->padding);
    const uint32_t normed = normed_by(graph, rows, e->norm);
    graph_drop(graph, rows);
    const uint32_t x =
        hf_dropout_beside(graph, normed, c->embedding_dropout, e->norm.weight, "drop");
    graph_call_end(graph);
    return x;
}

/* Frequencies of each kind of layer that the model has. */
static void make_frequencies(struct graph *graph, const struct model_config *c,
                             const struct model_job *job, struct hf_frequencies frequencies[KINDS])
{
    struct model_config of = *c;
    frequencies[FULL] = hf_rope_buffers(graph, &of, job, c->head_dim);
    of.rope.theta = c->window_theta;
    frequencies[WINDOW] = hf_rope_buffers(graph, &of, job, c->head_dim);
}

static uint32_t run_blocks(struct graph *graph, const struct model_config *c,
                           const struct model_job *job, const struct inputs *in, uint32_t embedded)
{
    uint32_t x = embedded;
    for (uint32_t i = 0; i < c->layers; i++) {
        const uint32_t module = graph_module(graph, ROLE_BLOCK, "model.layers.%u", i);
        struct block block = declare_block(graph, c, i, graph->modules[module].name);
        const enum kind kind = model_has_window(c, i) ? WINDOW : FULL;
        block.window = kind == WINDOW ? c->sliding_window / 2 + 1 : 0;
        const uint32_t mask = in->mask[kind];
        struct hf_rope rope = in->rope[kind];
        if (job->casts_inputs) {
            rope.cos = op_to(graph, rope.cos, graph->compute);
            rope.sin = op_to(graph, rope.sin, graph->compute);
        }
        graph_enter(graph, module, x);
        graph_also_input(graph, module, rope.sin);
        graph_also_input(graph, module, rope.cos);
        if (mask != GRAPH_NONE)
            graph_also_input(graph, module, mask);
        const uint32_t z = run_block(graph, c, job, &block, x, mask, rope);
        graph_exit(graph, module, z);
        if (rope.cos != in->rope[kind].cos) {
            graph_drop(graph, rope.cos);
            graph_drop(graph, rope.sin);
        }
        if (i > 0)
            graph_drop(graph, x); /* the first one is an argument of the masks, too */
        x = z;
    }
    return x;
}

/* The head's Linear, activation and norm, the decoder, and the loss of logits in fp32. */
static void run_head(struct graph *graph, const struct model_config *c, uint32_t x, uint32_t words,
                     uint32_t labels)
{
    const struct linear dense = draw_closer(
        graph, c, build_linear(graph, "head.", "dense", c->hidden, c->hidden, c->dense_bias));
    const struct norm norm = declare_norm(graph, c, "head.", "norm");
    struct linear decoder = {words, GRAPH_NONE};
    if (!c->tied)
        decoder = draw_closer(
            graph, c, build_linear(graph, "", "decoder", c->vocab, c->hidden, c->head_bias));
    else if (c->head_bias)
        decoder.bias = graph_param(graph, PARAM_BIAS, SHAPE(c->vocab), "decoder.bias");
    const uint32_t y = apply_linear(graph, x, dense);
    const uint32_t active = hf_activation_beside(graph, "gelu", y, dense.weight, "act");
    graph_drop(graph, y);
    const uint32_t normed = normed_by(graph, active, norm);
    graph_drop(graph, active);
    graph_call_begin(graph, "decoder");
    const uint32_t logits = apply_linear(graph, normed, decoder);
    graph_call_end(graph);
    graph_drop(graph, normed);
    hf_masked_loss(graph, x, logits, labels);
}

static const struct hf_classifier classifier = {
    .head = "head",
    .dense = "dense",
    .activation = OP_GELU,
    .act = "act",
    .norm = "norm",
    .masks = true,
    .dropout = "drop",
    .out = "classifier",
};

static void build(struct graph *graph, const struct model_config *c, const struct model_job *job)
{
    struct hf_frequencies frequencies[KINDS];
    struct inputs in = {.mask = {GRAPH_NONE, GRAPH_NONE}};
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t labels =
        hf_targets(graph, c, job, INPUT_MASKED_TARGETS, SHAPE(job->batch * job->seq));
    make_frequencies(graph, c, job, frequencies);
    graph_init_weights(
        graph, init_normal((double)c->init_std, (double)c->init_std * (double)c->init_cutoff));
    const struct embedding e = declare_embedding(graph, c);
    graph_call_begin(graph, "model");
    const uint32_t positions = op_arange(graph, job->seq);
    graph_call_end(graph);
    const uint32_t embedded = embed(graph, c, &e, tokens);
    in.mask[FULL] = hf_mask_both_ways(graph, job, HF_NO_WINDOW);
    in.mask[WINDOW] = hf_mask_both_ways(graph, job, c->sliding_window / 2);
    /* of the embeddings' norm, which under autocast is fp32 whatever parameters are in */
    const enum dtype dtype = (enum dtype)graph->tensors[embedded].dtype;
    graph_call_begin(graph, "model.rotary_emb");
    for (int kind = 0; kind < KINDS; kind++) {
        const struct hf_angles angles = {.positions = positions,
                                         .frequencies = frequencies[kind].now};
        in.rope[kind] =
            hf_rope_tables_in(graph, dtype, c->rope.attention_factor, angles, HF_TABLE_WHOLE);
    }
    graph_call_end(graph);
    const uint32_t last = run_blocks(graph, c, job, &in, embedded);
    const uint32_t module = graph_module(graph, ROLE_NORM, "model.final_norm");
    const struct norm norm = declare_norm(graph, c, "model.", "final_norm");
    graph_enter(graph, module, last);
    const uint32_t normed = normed_by(graph, last, norm);
    graph_exit(graph, module, normed);
    graph_drop(graph, last);
    graph_drop(graph, positions);
    for (int kind = 0; kind < KINDS; kind++)
        if (in.mask[kind] != GRAPH_NONE)
            graph_drop(graph, in.mask[kind]);
    graph_drop(graph, embedded);
    for (int kind = 0; kind < KINDS; kind++) {
        graph_drop(graph, in.rope[kind].cos);
        graph_drop(graph, in.rope[kind].sin);
    }
    if (job->task == TASK_SEQUENCE_CLASSIFICATION)
        hf_classify(graph, c, job, &classifier, NULL, normed, GRAPH_NONE, labels);
    else
        run_head(graph, c, normed, e.words, labels);
}

static const struct choice gelu_only[] = {{"gelu", NULL, false}, {NULL, NULL, false}};

static const struct choice poolings[] = {
    {"cls", NULL, false}, {"mean", NULL, true}, {NULL, NULL, false}};

static const struct key keys[] = {
    SIZE_KEYS,
    PLAIN_HEADS,
    {POSITIONS("max_position_embeddings", 8192)},
    EPS("norm_eps", 1e-5),
    STD("initializer_range", 0.02),
    {NUMBER("initializer_cutoff_factor", init_cutoff, 2, 0.1, 100)},
    {NUMBER("global_rope_theta", rope.theta, 160000, 1, 1e12),
     .other = "rope_parameters.full_attention.rope_theta"},
    {NUMBER("local_rope_theta", window_theta, 1e4, 1, 1e12),
     .other = "rope_parameters.sliding_attention.rope_theta"},
    {SIZE("local_attention", sliding_window, POSITIONS_MAX), .absent = RULE_VALUE, .value = 128},
    /* a property of the class, which sets the former (configuration_modernbert.py) */
    {.name = "sliding_window",
     .type = KEY_HALF,
     .min = 1,
     .max = POSITIONS_MAX / 2.0,
     .absent = RULE_KEEP,
     AT(sliding_window)},
    {SIZE("global_attn_every_n_layers", window_period, LAYERS_MAX), .absent = RULE_VALUE,
     .value = 3},
    LAYER_TYPES,
    TIED(true),
    {CHOICE("hidden_activation", gated, "gelu", key_activations)},
    {CHOICE("classifier_activation", gated, "gelu", gelu_only)},
    DROPOUT("mlp_dropout", dropout, 0),
    DROPOUT("embedding_dropout", embedding_dropout, 0),
    DROPOUT("attention_dropout", attention_dropout, 0),
    DROPOUT("classifier_dropout", class_dropout, 0),
    {CHOICE("classifier_pooling", pools_mean, "cls", poolings)},
    {FLAG("attention_bias", attention_bias, false)},
    {FLAG("mlp_bias", mlp_bias, false)},
    {FLAG("norm_bias", norm_bias, false)},
    {FLAG("classifier_bias", dense_bias, false)},
    {FLAG("decoder_bias", head_bias, true)},
    {ONLY("sparse_prediction", false)},
};

/* Of so many layers the first sees all tokens, where no list says which. */
static void settle(struct model_config *c)
{
    for (uint32_t i = 0; i < c->layers && !c->windows.listed; i++)
        layer_put(&c->windows, i, i % c->window_period != 0);
    c->windows.listed = true;
}

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    uint32_t windows = 0;
    for (uint32_t i = 0; i < c->layers; i++)
        windows += model_has_window(c, i);
    if (windows == 0 || windows == c->layers)
        return err_set(err, ERR_INVALID,
                       "%s: \"%s\": layers of both kinds are planned for: some that see all "
                       "tokens, and some that see a window",
                       where, NAME_OF(table, window_period));
    if (c->rope.scaling != ROPE_DEFAULT)
        return err_set(err, ERR_INVALID,
                       "%s: RoPE's \"rope_type\": expected \"default\" (nothing "
                       "else is planned for)",
                       where);
    return ERR_OK;
}

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab, norm = c->norm_bias ? 2 * h : h;
    const double layer = count_linear(3 * h, h, c->attention_bias) +
                         count_linear(h, h, c->attention_bias) +
                         count_linear(2.0 * c->ffn, h, c->mlp_bias) +
                         count_linear(h, c->ffn, c->mlp_bias) + 2 * norm;
    return c->layers * layer + v * h + 2 * norm + count_linear(h, h, c->dense_bias) +
           (c->tied ? 0 : v * h) + (c->head_bias ? v : 0);
}

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* answerdotai/ModernBERT-{base,large}. ModernBertForMaskedLM. */
#define MODERNBERT(title, count, h, l, a, f, layers_with_a_window)                                 \
    {title, count,                                                                                 \
     {.arch = ARCH_MODERNBERT, .hidden = h, .layers = l, .heads = a, .kv_heads = a,                \
      .head_dim = h / a, .ffn = f, .vocab = 50368, .max_positions = 8192, .padding = 50283 + 1,    \
      .tied = true, .head_bias = true, .activation = "gelu", .norm_eps = 1e-5F,                    \
      .init_std = 0.02F, .init_cutoff = 2, .rope.theta = 160000, .rope.attention_factor = 1,       \
      .window_theta = 1e4F, .sliding_window = 128, .window_period = 3, .pools_mean = true,         \
      .windows = {.listed = true, .bits = {layers_with_a_window}}}}

static const struct model_preset presets[] = {
    MODERNBERT("modernbert-base",  149655232, 768,  22, 12, 1152, 0x1B6DB6),
    MODERNBERT("modernbert-large", 395881664, 1024, 28, 16, 2624, 0x6DB6DB6),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_modernbert = {
    .name = "modernbert",
    .class_name = "ModernBertForMaskedLM",
    .classifier = "ModernBertForSequenceClassification",
    .block_class = "ModernBertEncoderLayer",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .encoder = true,
    .heads_divide_hidden = true,
    .rope = true,
    .parameters = parameters,
    .settle = settle,
    .check = check,
    .padding = 50283 + 1,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
