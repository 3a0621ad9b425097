/* distilbert.c - DistilBERT with its masked language model head, as Hugging Face transformers
 * writes it: BERT's layers under names of their own, without token types, and without dropout
 * behind attention.
 *
 *     x = norm(words + positions)
 *     h = norm(attention(q x, k x, v x) + x),  z = norm(lin2(gelu(lin1 h)) + h)
 *     logits = words · norm(gelu(transform z)) + bias      the head shares the word embedding */
#include "families/bert.h"
#include "hf/classify.h"
#include "hf/hf.h"
#include "model/count.h"

struct block {
    struct linear q, k, v, out, lin1, lin2;
    struct norm attention_norm, output_norm;
};

static struct block declare_block(struct graph *graph, const struct model_config *c,
                                  const char *prefix)
{
    const uint32_t h = c->hidden;
    struct block block;
    block.q = build_linear(graph, prefix, ".attention.q_lin", h, h, true);
    block.k = build_linear(graph, prefix, ".attention.k_lin", h, h, true);
    block.v = build_linear(graph, prefix, ".attention.v_lin", h, h, true);
    block.out = build_linear(graph, prefix, ".attention.out_lin", h, h, true);
    block.attention_norm = build_norm(graph, prefix, ".sa_layer_norm", h, true, c->norm_eps);
    block.lin1 = build_linear(graph, prefix, ".ffn.lin1", c->ffn, h, true);
    block.lin2 = build_linear(graph, prefix, ".ffn.lin2", h, c->ffn, true);
    block.output_norm = build_norm(graph, prefix, ".output_layer_norm", h, true, c->norm_eps);
    return block;
}

static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t mask,
                          uint32_t x)
{
    const struct shape heads = SHAPE(job->batch, job->seq, c->heads, c->head_dim);
    const uint32_t y = op_call_input(graph, x);
    const uint32_t q = build_heads(graph, apply_linear(graph, y, block->q), heads);
    const uint32_t k = build_heads(graph, apply_linear(graph, y, block->k), heads);
    const uint32_t v = build_heads(graph, apply_linear(graph, y, block->v), heads);
    const uint32_t attended = bert_attention(graph, c, job, mask, q, k, v);
    const uint32_t out = apply_linear(graph, attended, block->out);
    graph_drop(graph, attended);
    graph_drop(graph, q);
    graph_drop(graph, k);
    graph_drop(graph, v);
    return out;
}

/* norm(y + residual), which is called with the sum alone. */
static uint32_t add_norm(struct graph *graph, uint32_t y, uint32_t residual, struct norm norm)
{
    const uint32_t sum = op_add(graph, y, residual);
    const uint32_t out = apply_norm(graph, sum, norm);
    graph_drop(graph, sum);
    return out;
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t mask,
                          uint32_t x)
{
    const uint32_t attended = attention(graph, c, job, block, mask, x);
    const uint32_t h = add_norm(graph, attended, x, block->attention_norm);
    graph_drop(graph, attended);
    const uint32_t wide = apply_linear(graph, h, block->lin1);
    const uint32_t active =
        hf_activation_beside(graph, c->activation, wide, block->lin1.weight, "activation");
    graph_drop(graph, wide);
    const uint32_t narrow = apply_linear(graph, active, block->lin2);
    graph_drop(graph, active);
    const uint32_t fed =
        hf_dropout_beside(graph, narrow, c->dropout, block->lin1.weight, "dropout");
    const uint32_t z = add_norm(graph, fed, h, block->output_norm);
    graph_rebind(graph, fed, z);
    graph_drop(graph, h);
    return z;
}

static uint32_t embed(struct graph *graph, const struct model_config *c,
                      const struct model_job *job, uint32_t tokens, uint32_t *words)
{
    static const char prefix[] = "distilbert.embeddings.";
    const uint32_t s = job->seq, h = c->hidden;
    const struct buffer_values range = {.kind = VALUES_RANGE};
    const uint32_t ids = graph_buffer(graph, DTYPE_INT64, SHAPE(1, c->max_positions), &range);
    *words =
        graph_param(graph, PARAM_WEIGHT, SHAPE(c->vocab, h), "%sword_embeddings.weight", prefix);
    const uint32_t places = graph_param(graph, PARAM_WEIGHT, SHAPE(c->max_positions, h),
                                        "%sposition_embeddings.weight", prefix);
    const struct norm norm = build_norm(graph, prefix, "LayerNorm", h, true, c->norm_eps);
    const uint32_t word = op_embedding(graph, tokens, *words);
    op_embedding_padding(graph, word, c->padding);
    const uint32_t place = op_embedding(graph, graph_view(graph, ids, SHAPE(1, s)), places);
    const uint32_t sum = op_add(graph, word, place);
    const uint32_t normed = apply_norm(graph, sum, norm);
    graph_drop(graph, sum);
    const uint32_t x = hf_dropout_beside(graph, normed, c->dropout, norm.weight, "dropout");
    graph_drop(graph, word);
    graph_drop(graph, place);
    return x;
}

static uint32_t run_head(struct graph *graph, const struct model_config *c, uint32_t words,
                         uint32_t x)
{
    const uint32_t h = c->hidden;
    const struct linear transform = build_linear(graph, "", "vocab_transform", h, h, true);
    const struct norm norm = build_norm(graph, "", "vocab_layer_norm", h, true, c->norm_eps);
    struct linear projector = {.weight = words};
    if (!c->tied)
        projector = build_linear(graph, "", "vocab_projector", c->vocab, h, true);
    else
        projector.bias = graph_param(graph, PARAM_BIAS, SHAPE(c->vocab), "vocab_projector.bias");
    const uint32_t y = apply_linear(graph, x, transform);
    const uint32_t active =
        hf_activation_beside(graph, c->activation, y, transform.weight, "activation");
    graph_drop(graph, y);
    const uint32_t normed = apply_norm(graph, active, norm);
    graph_drop(graph, active);
    graph_call_begin(graph, "vocab_projector");
    const uint32_t logits = apply_linear(graph, normed, projector);
    graph_call_end(graph);
    graph_drop(graph, normed);
    return logits;
}

static const struct hf_classifier classifier = {
    .dense = "pre_classifier",
    .activation = OP_RELU,
    .dropout = "dropout",
    .out = "classifier",
};

static void build(struct graph *graph, const struct model_config *c, const struct model_job *job)
{
    uint32_t words;
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t labels =
        hf_targets(graph, c, job, INPUT_MASKED_TARGETS, SHAPE(job->batch * job->seq));
    graph_init_weights(graph, init_normal((double)c->init_std, 0));
    const uint32_t embedded = embed(graph, c, job, tokens, &words);
    const uint32_t mask = hf_mask_both_ways(graph, job, HF_NO_WINDOW);
    uint32_t x = embedded;
    for (uint32_t i = 0; i < c->layers; i++) {
        const uint32_t module =
            graph_module(graph, ROLE_BLOCK, "distilbert.transformer.layer.%u", i);
        const struct block block = declare_block(graph, c, graph->modules[module].name);
        graph_enter(graph, module, x);
        if (mask != GRAPH_NONE)
            graph_also_argument(graph, module, mask);
        const uint32_t z = run_block(graph, c, job, &block, mask, x);
        graph_exit(graph, module, z);
        if (x != embedded)
            graph_drop(graph, x);
        x = z;
    }
    if (mask != GRAPH_NONE) /* an argument */
        graph_drop(graph, mask);
    graph_drop(graph, embedded);
    if (job->task == TASK_SEQUENCE_CLASSIFICATION) {
        hf_classify(graph, c, job, &classifier, NULL, x, GRAPH_NONE, labels);
        return;
    }
    const uint32_t logits = run_head(graph, c, words, x);
    const uint32_t flat = graph_view(graph, logits, SHAPE(job->batch * job->seq, c->vocab));
    graph->loss = build_cross_entropy(graph, flat, labels);
    graph_drop(graph, x);
    hf_return(graph, logits, GRAPH_NONE);
}

static const struct key keys[] = {
    {SIZE("vocab_size", vocab, VOCAB_MAX)},
    {SIZE("dim", hidden, HIDDEN_MAX), .other = "hidden_size"},
    {SIZE("n_layers", layers, LAYERS_MAX), .other = "num_hidden_layers"},
    {SIZE("n_heads", heads, HEADS_MAX), .other = "num_attention_heads"},
    {SIZE("hidden_dim", ffn, FFN_MAX)},
    PLAIN_HEADS,
    {POSITIONS("max_position_embeddings", 512)},
    {NUMBER("eps", norm_eps, 1e-12, 0, 1), .fixed = true},
    STD("initializer_range", 0.02),
    TIED(true),
    {CHOICE("activation", gated, "gelu", key_activations)},
    DROPOUT("dropout", dropout, 0.1),
    DROPOUT("attention_dropout", attention_dropout, 0.1),
    DROPOUT("seq_classif_dropout", class_dropout, 0.2),
    {ALWAYS("attention_bias", attention_bias)},
    {ALWAYS("mlp_bias", mlp_bias)},
    {ONLY("sinusoidal_pos_embds", false)},
    NEUTRAL("chunk_size_feed_forward", 0),
};

/* clang-format off */
/* distilbert/distilbert-base-uncased, -cased, -multilingual-cased. DistilBertForMaskedLM. */
static const struct model_preset presets[] = {
    BERT_PRESET_DROPPING(0.2F, ARCH_DISTILBERT, "distilbert-base",       66985530,  768, 6, 12, 30522,  512, 0, 1, 1e-12F),
    BERT_PRESET_DROPPING(0.2F, ARCH_DISTILBERT, "distilbert-base-cased", 65812036,  768, 6, 12, 28996,  512, 0, 1, 1e-12F),
    BERT_PRESET_DROPPING(0.2F, ARCH_DISTILBERT, "distilbert-base-multilingual-cased",
                                                          135445755, 768, 6, 12, 119547, 512, 0, 1, 1e-12F),
};
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"distilbert-base-uncased", "distilbert-base"},
};

/* A decoder of its own has the bias that a shared one has. */
static double parameters(const struct model_config *c)
{
    return count_bert(c) - (c->tied ? 0 : c->vocab);
}

const struct family family_distilbert = {
    .name = "distilbert",
    .class_name = "DistilBertForMaskedLM",
    .classifier = "DistilBertForSequenceClassification",
    .block_class = "TransformerBlock",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .encoder = true,
    .heads_divide_hidden = true,
    .learned_positions = true,
    .parameters = parameters,
    .padding = 0 + 1,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
