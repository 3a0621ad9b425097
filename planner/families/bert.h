/* bert.h - what BERT and its kin have in common: for the files of this folder only. */
#ifndef SHARDPLAN_FAMILIES_BERT_H
#define SHARDPLAN_FAMILIES_BERT_H

#include "families/family.h"
#include "hf/bert.h"

/* With the masked language model head: Linear, LayerNorm and a decoder with a bias. */
double count_bert(const struct model_config *config);

extern const struct choice bert_absolute_only[];

/* clang-format off */
/* classifier_dropout, which is another's where there is none. */
#define CLASS_DROPOUT(otherwise, value)                                                            \
    DROPOUT(otherwise, class_dropout, value),                                                      \
    {                                                                                              \
        .name = "classifier_dropout", .type = KEY_NUMBER, AT(class_dropout), .max = 1,             \
        .absent = RULE_KEEP, .null = RULE_KEEP                                                     \
    }

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
    CLASS_DROPOUT("hidden_dropout_prob", 0.1),                                                     \
    {ALWAYS("attention_bias", attention_bias)},                                                    \
    {ALWAYS("mlp_bias", mlp_bias)},                                                                \
    {CHOICE("position_embedding_type", gated, "absolute", bert_absolute_only)},                    \
    {ONLY("add_cross_attention", false)},                                                          \
    {ONLY("is_decoder", false)},                                                                   \
    NEUTRAL("chunk_size_feed_forward", 0)

/* NOLINTBEGIN(bugprone-macro-parentheses) */
#define BERT_PRESET(kind, title, count, h, l, a, v, positions, types, pads, eps)                   \
    BERT_PRESET_DROPPING(0.1F, kind, title, count, h, l, a, v, positions, types, pads, eps)
#define BERT_PRESET_DROPPING(dropped, kind, title, count, h, l, a, v, positions, types, pads, eps) \
    {title, count,                                                                                 \
     {.arch = kind, .hidden = h, .layers = l, .heads = a, .kv_heads = a, .head_dim = h / a,        \
      .ffn = 4 * h, .vocab = v, .max_positions = positions, .type_vocab = types, .padding = pads,  \
      .tied = true, .attention_bias = true, .mlp_bias = true, .activation = "gelu",                \
      .dropout = 0.1F, .attention_dropout = 0.1F, .class_dropout = dropped, .norm_eps = eps, .init_std = 0.02F}}
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

#endif
