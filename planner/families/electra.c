/* electra.c - ELECTRA with its masked language model head: BERT whose embedding may be narrower
 * than its layers. */
#include "families/bert.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct bert_way way = {
        .root = "electra",
        .head = "generator_predictions",
        .dense = "dense",
        .norm = "LayerNorm",
        .act = "activation",
        .decoder = "generator_lm_head",
        .projection = "embeddings_project",
        .classifier = {.head = "classifier",
                       .whole = true,
                       .dense = "dense",
                       .activation = OP_GELU,
                       .act = "activation",
                       .dropout = "dropout",
                       .drops_first = true,
                       .out = "out_proj"},
    };
    bert_build(graph, config, job, &way);
}

static const struct key keys[] = {
    BERT_KEYS,
    {COUNT("embedding_size", word_embed, 128, HIDDEN_MAX)},
};

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab, e = c->word_embed;
    return c->layers * count_classic_block(c) + (v + (double)c->max_positions + c->type_vocab) * e +
           2 * e + (c->word_embed != c->hidden ? count_linear(h, e, true) : 0) +
           count_linear(e, h, true) + 2 * e + v + (c->tied ? 0 : v * e);
}

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* google/electra-{small,base,large}-discriminator, as ElectraForMaskedLM. */
#define ELECTRA(title, count, h, l, a, f, width)                                                   \
    {title, count,                                                                                 \
     {.arch = ARCH_ELECTRA, .hidden = h, .layers = l, .heads = a, .kv_heads = a,                   \
      .head_dim = h / a, .ffn = f, .vocab = 30522, .max_positions = 512, .type_vocab = 2,          \
      .word_embed = width, .padding = 1, .tied = true, .attention_bias = true, .mlp_bias = true,   \
      .activation = "gelu", .dropout = 0.1F, .attention_dropout = 0.1F, .class_dropout = 0.1F, .norm_eps = 1e-12F, \
      .init_std = 0.02F}}

static const struct model_preset presets[] = {
    ELECTRA("electra-small", 13546682,  256,  12, 4,  1024, 128),
    ELECTRA("electra-base",  109514298, 768,  12, 12, 3072, 768),
    ELECTRA("electra-large", 335174458, 1024, 24, 16, 4096, 1024),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_electra = {
    .name = "electra",
    .class_name = "ElectraForMaskedLM",
    .classifier = "ElectraForSequenceClassification",
    .block_class = "ElectraLayer",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .encoder = true,
    .heads_divide_hidden = true,
    .learned_positions = true,
    .parameters = parameters,
    .padding = 0 + 1,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
