/* t5.h - what T5 and those that are it under other names have in common: for the files of this
 * folder only. */
#ifndef SHARDPLAN_FAMILIES_T5_H
#define SHARDPLAN_FAMILIES_T5_H

#include "families/family.h"

model_builder t5_build;
double t5_parameters(const struct model_config *config);

/* What "feed_forward_proj" may be; ends with a NULL. */
extern const struct choice t5_feed_forwards[];

/* clang-format off */
#define T5_KEYS(feed_forward)                                                                      \
    {SIZE("vocab_size", vocab, VOCAB_MAX)},                                                        \
    {SIZE("d_model", hidden, HIDDEN_MAX), .other = "hidden_size"},                                 \
    {SIZE("num_layers", layers, LAYERS_MAX), .other = "num_hidden_layers"},                        \
    {SIZE("num_heads", heads, HEADS_MAX), .other = "num_attention_heads"},                         \
    {SIZE("d_ff", ffn, FFN_MAX)},                                                                  \
    {COUNT("d_kv", head_dim, 64, HEAD_DIM_MAX), .other = "head_dim"},                              \
    {FIXED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},                               \
    {DERIVED("num_decoder_layers", decoder_layers, RULE_LAYERS, LAYERS_MAX)},                      \
    {COUNT("relative_attention_num_buckets", relative_buckets, 32, BUCKETS_MAX)},                  \
    EPS("layer_norm_epsilon", 1e-6),                                                               \
    NEUTRAL("initializer_factor", 1),                                                              \
    {CHOICE("feed_forward_proj", gated, feed_forward, t5_feed_forwards)},                          \
    DROPOUT("dropout_rate", dropout, 0.1),                                                         \
    DROPOUT("dropout_rate", attention_dropout, 0.1)

/* As many blocks in the encoder as in the decoder. What it holds is a row: no expression. */
/* NOLINTBEGIN(bugprone-macro-parentheses) */
#define T5_MODEL(family, h, l, a, d, f, words)                                                     \
    .arch = family, .hidden = h, .layers = l, .decoder_layers = l, .heads = a, .kv_heads = a,      \
    .head_dim = d, .ffn = f, .vocab = words, .relative_buckets = 32, .dropout = 0.1F,              \
    .attention_dropout = 0.1F, .norm_eps = 1e-6F
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

#endif
