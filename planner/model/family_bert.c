/* family_bert.c - BERT with its masked language model head, as Hugging Face transformers writes it.
 *
 *     x = norm(words + types + positions)
 *     h = norm(dense(attention(q x, k x, v x)) + x)        norms follow the residual
 *     z = norm(output(gelu(intermediate h)) + h)
 *     logits = words · norm(gelu(dense z)) + bias          the head shares the word embedding
 *
 * The loss is inside the model and stays in the compute dtype: logits are not upcast. Token types
 * are not given, so zeros are gathered from a buffer. The head's bias belongs to a module that
 * also has a child, which is why it comes before the child's parameters in parameters() and after
 * them in FSDP's group (group_order in graph.h). */
#include "graph/autocast.h"
#include "model/build_hf.h"
#include "model/count.h"
#include "model/family.h"

#include <stdio.h>

struct bert_block {
    struct linear query, key, value, dense, intermediate, output;
    struct norm attention_norm, output_norm;
};

static struct bert_block declare_block(struct graph *graph, const struct model_config *c,
                                       const char *prefix)
{
    const uint32_t h = c->hidden;
    struct bert_block block;
    block.query = build_linear(graph, prefix, ".attention.self.query", h, h, true);
    block.key = build_linear(graph, prefix, ".attention.self.key", h, h, true);
    block.value = build_linear(graph, prefix, ".attention.self.value", h, h, true);
    block.dense = build_linear(graph, prefix, ".attention.output.dense", h, h, true);
    block.attention_norm =
        build_norm(graph, prefix, ".attention.output.LayerNorm", h, true, c->norm_eps);
    block.intermediate = build_linear(graph, prefix, ".intermediate.dense", c->ffn, h, true);
    block.output = build_linear(graph, prefix, ".output.dense", h, c->ffn, true);
    block.output_norm = build_norm(graph, prefix, ".output.LayerNorm", h, true, c->norm_eps);
    return block;
}

static uint32_t embed(struct graph *graph, const struct model_config *c,
                      const struct model_job *job, uint32_t tokens, uint32_t words)
{
    const uint32_t b = job->batch, s = job->seq;
    const struct shape ids_shape = SHAPE(1, c->max_positions);
    const struct buffer_values range = {.kind = VALUES_RANGE}, zeros = {.kind = VALUES_ZEROS};
    const uint32_t position_ids = graph_buffer(graph, DTYPE_INT64, ids_shape, &range);
    const uint32_t type_ids = graph_buffer(graph, DTYPE_INT64, ids_shape, &zeros);
    const uint32_t positions = graph_param(graph, PARAM_WEIGHT, SHAPE(c->max_positions, c->hidden),
                                           "bert.embeddings.position_embeddings.weight");
    const uint32_t types = graph_param(graph, PARAM_WEIGHT, SHAPE(c->type_vocab, c->hidden),
                                       "bert.embeddings.token_type_embeddings.weight");
    const struct norm norm =
        build_norm(graph, "bert.embeddings.", "LayerNorm", c->hidden, true, c->norm_eps);

    graph_call_begin(graph, "bert.embeddings");
    const uint32_t ids = graph_view(graph, position_ids, SHAPE(1, s));
    const uint32_t type = op_no_grad(graph, WORK_GATHER, ATEN_GATHER, DTYPE_INT64, SHAPE(1, s), 2,
                                     (uint32_t[]){type_ids, ids});
    const uint32_t word = op_embedding(graph, tokens, words);
    op_embedding_padding(graph, word, c->padding);
    const uint32_t kind = op_embedding(graph, graph_expand(graph, type, SHAPE(b, s)), types);
    const uint32_t typed = op_add(graph, word, kind);
    const uint32_t place = op_embedding(graph, ids, positions);
    const uint32_t sum = op_add(graph, typed, place);
    graph_drop(graph, typed);
    const uint32_t normed = apply_norm(graph, sum, norm);
    graph_drop(graph, sum);
    const uint32_t x = hf_dropout_beside(graph, normed, c->dropout, norm.weight, "dropout");
    graph_call_end(graph);
    graph_drop(graph, word);
    graph_drop(graph, kind);
    graph_drop(graph, place);
    graph_drop(graph, type);
    return x;
}

/* norm(dropout(dense(y)) + residual) */
static uint32_t dense_add_norm(struct graph *graph, const struct model_config *c, uint32_t y,
                               struct linear dense, struct norm norm, uint32_t residual)
{
    const uint32_t projected = apply_linear(graph, y, dense);
    const uint32_t dropped =
        hf_dropout_beside(graph, projected, c->dropout, dense.weight, "dropout");
    const uint32_t sum = op_add(graph, dropped, residual);
    const uint32_t out = apply_norm(graph, sum, norm);
    graph_drop(graph, sum);
    graph_drop(graph, dropped);
    return out;
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct bert_block *block, uint32_t x)
{
    const struct shape heads = SHAPE(job->batch, job->seq, c->heads, c->head_dim);
    const uint32_t y = op_call_input(graph, x);
    const uint32_t q = build_heads(graph, apply_linear(graph, y, block->query), heads);
    const uint32_t k = build_heads(graph, apply_linear(graph, y, block->key), heads);
    const uint32_t v = build_heads(graph, apply_linear(graph, y, block->value), heads);
    const uint32_t o =
        autocast_product(graph) == DTYPE_FP32 && graph->attention != ATTENTION_MATH
            ? op_efficient_attention(graph, q, k, v, GRAPH_NONE, false, c->attention_dropout)
            : op_attention(graph, q, k, v, false, c->attention_dropout);
    graph_drop(graph, v);
    graph_drop(graph, k);
    graph_drop(graph, q);
    const uint32_t attended = graph_view(graph, o, SHAPE(job->batch, job->seq, c->hidden));
    const uint32_t h = dense_add_norm(graph, c, attended, block->dense, block->attention_norm, x);
    graph_drop(graph, o);

    const uint32_t wide = apply_linear(graph, h, block->intermediate);
    const uint32_t active = hf_activation_beside(graph, c->activation, wide,
                                                 block->intermediate.weight, "intermediate_act_fn");
    graph_drop(graph, wide);
    const uint32_t z = dense_add_norm(graph, c, active, block->output, block->output_norm, h);
    graph_drop(graph, active);
    graph_drop(graph, h);
    return z;
}

static uint32_t head(struct graph *graph, const struct model_config *c, uint32_t x, uint32_t words)
{
    const char *const prefix = "cls.predictions.";
    const uint32_t bias = graph->param_count;
    struct linear decoder = {words, GRAPH_NONE};
    decoder.bias = graph_param(graph, PARAM_BIAS, SHAPE(c->vocab), "%sbias", prefix);
    const struct linear dense =
        build_linear(graph, prefix, "transform.dense", c->hidden, c->hidden, true);
    const struct norm norm =
        build_norm(graph, prefix, "transform.LayerNorm", c->hidden, true, c->norm_eps);
    if (!c->tied) { /* of its own; nobody uses the bias above, so it gets no gradient */
        graph->tensors[decoder.bias].requires_grad = false;
        graph->params[bias].trainable = false;
        decoder = build_linear(graph, prefix, "decoder", c->vocab, c->hidden, true);
    }

    const uint32_t y = apply_linear(graph, x, dense);
    const uint32_t active =
        hf_activation_beside(graph, c->activation, y, dense.weight, "transform_act_fn");
    graph_drop(graph, y);
    const uint32_t normed = apply_norm(graph, active, norm);
    graph_drop(graph, active);
    graph_call_begin(graph, "cls.predictions.decoder");
    const uint32_t logits = apply_linear(graph, normed, decoder);
    graph_call_end(graph);
    graph_drop(graph, normed);
    return logits;
}

static void build_bert(struct graph *graph, const struct model_config *c,
                       const struct model_job *job)
{
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t labels =
        build_input(graph, c, INPUT_MASKED_TARGETS, SHAPE(job->batch * job->seq));
    graph_init_weights(graph, init_normal((double)c->init_std, 0));
    const uint32_t words = graph_param(graph, PARAM_WEIGHT, SHAPE(c->vocab, c->hidden),
                                       "bert.embeddings.word_embeddings.weight");
    const uint32_t embedded =
        embed(graph, c, job, tokens, words); /* BertModel's until it returns */
    uint32_t x = embedded;
    for (uint32_t i = 0; i < c->layers; i++) {
        const uint32_t module = graph_module(graph, ROLE_BLOCK, "bert.encoder.layer.%u", i);
        const struct bert_block block = declare_block(graph, c, graph->modules[module].name);
        graph_enter(graph, module, x);
        const uint32_t z = run_block(graph, c, job, &block, x);
        graph_exit(graph, module, z);
        if (x != embedded)
            graph_drop(graph, x);
        x = z;
    }
    graph_drop(graph, embedded);
    const uint32_t logits = head(graph, c, x, words);
    const uint32_t flat = graph_view(graph, logits, SHAPE(job->batch * job->seq, c->vocab));
    graph->loss = build_cross_entropy(graph, flat, labels);
    graph_drop(graph, x);
    hf_return(graph, logits, GRAPH_NONE);
}

static const struct choice absolute_only[] = {{"absolute", NULL, false}, {NULL, NULL, false}};

static const struct key keys[] = {
    SIZE_KEYS,
    PLAIN_HEADS,
    {POSITIONS("max_position_embeddings", 512)},
    {COUNT("type_vocab_size", type_vocab, 2, BUCKETS_MAX)},
    EPS("layer_norm_eps", 1e-12),
    STD("initializer_range", 0.02),
    TIED(true),
    {CHOICE("hidden_act", gated, "gelu", key_activations)},
    DROPOUT("hidden_dropout_prob", dropout, 0.1),
    DROPOUT("attention_probs_dropout_prob", attention_dropout, 0.1),
    {ALWAYS("attention_bias", attention_bias)},
    {ALWAYS("mlp_bias", mlp_bias)},
    {CHOICE("position_embedding_type", gated, "absolute", absolute_only)},
    {ONLY("add_cross_attention", false)},
    {ONLY("is_decoder", false)},
    NEUTRAL("chunk_size_feed_forward", 0),
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* BERT: google-bert/bert-{base,large}-uncased. BertForMaskedLM. */
#define BERT(title, count, h, l, a)                                                                \
    {title, count,                                                                                 \
     {.arch = ARCH_BERT, .hidden = h, .layers = l, .heads = a, .kv_heads = a, .head_dim = h / a,   \
      .ffn = 4 * h, .vocab = 30522, .max_positions = 512, .type_vocab = 2, .tied = true,           \
      .attention_bias = true, .mlp_bias = true, .activation = "gelu", .dropout = 0.1F,             \
      .attention_dropout = 0.1F, .norm_eps = 1e-12F, .init_std = 0.02F}}

static const struct model_preset presets[] = {
    BERT("bert-base",  109514298, 768,  12, 12),
    BERT("bert-large", 335174458, 1024, 24, 16),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"bert-base-uncased", "bert-base"},
    {"bert-large-uncased", "bert-large"},
};

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab, positions = c->max_positions;
    /* the masked LM head: Linear, LayerNorm and a decoder with a bias, tied too */
    return c->layers * count_classic_block(c) + (v + positions + c->type_vocab) * h + 2 * h +
           count_linear(h, h, true) + 2 * h + v + (c->tied ? 0 : v * h + v);
}

const struct family family_bert = {
    .name = "bert",
    .class_name = "BertForMaskedLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .heads_divide_hidden = true,
    .learned_positions = true,
    .parameters = parameters,
    .padding = 0 + 1,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_bert},
};
