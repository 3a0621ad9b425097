/* build_bert.h - BERT and RoBERTa: what their files share, and where they differ; for the files of
 * this folder only. */
#ifndef SHARDPLAN_BUILD_BERT_H
#define SHARDPLAN_BUILD_BERT_H

#include "model/family.h"

struct bert_way {
    const char *root, *head;        /* modules: of all but the head, "bert"; "cls.predictions" */
    const char *dense, *norm, *act; /* the head's; act NULL: a function */
    const char *decoder; /* ELECTRA: a module beside the head, whose activation is GELU; NULL:
                            it is in the head, which has its bias */
    const char
        *projection; /* of an embedding of another width (c->word_embed); NULL: it has none */
    bool head_first; /* it is declared first */
    bool counted_positions; /* from the padding's id + 1 on, by those tokens that pad nothing */
};
void bert_build(struct graph *graph, const struct model_config *config, const struct model_job *job,
                const struct bert_way *way);

/* Attention of all tokens to all: (b, s, h), of heads that stay the caller's. */
uint32_t bert_attention(struct graph *graph, const struct model_config *config,
                        const struct model_job *job, uint32_t q, uint32_t k, uint32_t v);

/* With the masked language model head: Linear, LayerNorm and a decoder with a bias. */
double count_bert(const struct model_config *config);

extern const struct choice bert_absolute_only[];

/* clang-format off */
#define BERT_KEYS                                                                                  \
    SIZE_KEYS,                                                                                     \
    PLAIN_HEADS,                                                                                   \
    {POSITIONS("max_position_embeddings", 512)},                                                   \
    {COUNT("type_vocab_size", type_vocab, 2, BUCKETS_MAX)},                                        \
    EPS("layer_norm_eps", 1e-12),                                                                  \
    STD("initializer_range", 0.02),                                                                \
    TIED(true),                                                                                    \
    {CHOICE("hidden_act", gated, "gelu", key_activations)},                                        \
    DROPOUT("hidden_dropout_prob", dropout, 0.1),                                                  \
    DROPOUT("attention_probs_dropout_prob", attention_dropout, 0.1),                               \
    {ALWAYS("attention_bias", attention_bias)},                                                    \
    {ALWAYS("mlp_bias", mlp_bias)},                                                                \
    {CHOICE("position_embedding_type", gated, "absolute", bert_absolute_only)},                    \
    {ONLY("add_cross_attention", false)},                                                          \
    {ONLY("is_decoder", false)},                                                                   \
    NEUTRAL("chunk_size_feed_forward", 0)

/* NOLINTBEGIN(bugprone-macro-parentheses) */
#define BERT_PRESET(kind, title, count, h, l, a, v, positions, types, pads, eps)                   \
    {title, count,                                                                                 \
     {.arch = kind, .hidden = h, .layers = l, .heads = a, .kv_heads = a, .head_dim = h / a,        \
      .ffn = 4 * h, .vocab = v, .max_positions = positions, .type_vocab = types, .padding = pads,  \
      .tied = true, .attention_bias = true, .mlp_bias = true, .activation = "gelu",                \
      .dropout = 0.1F, .attention_dropout = 0.1F, .norm_eps = eps, .init_std = 0.02F}}
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

#endif
