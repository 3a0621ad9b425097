/* gpt2.h - what GPT-2 and GPT-BigCode have in common: for the files of this folder only. */
#ifndef SHARDPLAN_FAMILIES_GPT2_H
#define SHARDPLAN_FAMILIES_GPT2_H

#include "families/family.h"

/* clang-format off */
#define GPT2_KEYS(act)                                                                             \
    {SIZE("vocab_size", vocab, VOCAB_MAX)},                                                        \
    {SIZE("n_embd", hidden, HIDDEN_MAX), .other = "hidden_size"},                                  \
    {SIZE("n_layer", layers, LAYERS_MAX), .other = "num_hidden_layers"},                           \
    {SIZE("n_head", heads, HEADS_MAX), .other = "num_attention_heads"},                            \
    {DERIVED("n_inner", ffn, RULE_FOUR_HIDDEN, FFN_MAX)},                                          \
    {POSITIONS("n_positions", 1024), .other = "max_position_embeddings"},                          \
    EPS("layer_norm_epsilon", 1e-5),                                                               \
    STD("initializer_range", 0.02),                                                                \
    TIED(true),                                                                                    \
    {CHOICE("activation_function", gated, act, key_activations)},                                  \
    DROPOUT("resid_pdrop", dropout, 0.1),                                                          \
    DROPOUT("embd_pdrop", embedding_dropout, 0.1),                                                 \
    DROPOUT("attn_pdrop", attention_dropout, 0.1),                                                 \
    {ALWAYS("attention_bias", attention_bias)},                                                    \
    {ALWAYS("mlp_bias", mlp_bias)}
/* clang-format on */

#endif
