/* gptj.h - what GPT-J and CodeGen have in common: for the files of this folder only. */
#ifndef SHARDPLAN_FAMILIES_GPTJ_H
#define SHARDPLAN_FAMILIES_GPTJ_H

#include "families/family.h"

/* clang-format off */
#define GPTJ_KEYS                                                                                  \
    {SIZE("vocab_size", vocab, VOCAB_MAX)},                                                        \
    {SIZE("n_embd", hidden, HIDDEN_MAX), .other = "hidden_size"},                                  \
    {SIZE("n_layer", layers, LAYERS_MAX), .other = "num_hidden_layers"},                           \
    {SIZE("n_head", heads, HEADS_MAX), .other = "num_attention_heads"},                            \
    PLAIN_HEADS,                                                                                   \
    {DERIVED("n_inner", ffn, RULE_FOUR_HIDDEN, FFN_MAX)},                                          \
    {POSITIONS("n_positions", 2048), .other = "max_position_embeddings"},                          \
    {COUNT("rotary_dim", rotary_dim, 64, HEAD_DIM_MAX)},                                           \
    EPS("layer_norm_epsilon", 1e-5),                                                               \
    STD("initializer_range", 0.02),                                                                \
    {NUMBER("theta", rope.theta, 1e4, 1, 1e12), .fixed = true},                                    \
    TIED(false),                                                                                   \
    {CHOICE("activation_function", gated, "gelu_new", key_activations)},                           \
    DROPOUT("resid_pdrop", dropout, 0),                                                            \
    DROPOUT("embd_pdrop", embedding_dropout, 0),                                                   \
    DROPOUT("attn_pdrop", attention_dropout, 0),                                                   \
    {ALWAYS("mlp_bias", mlp_bias)}
/* clang-format on */

/* Recorded beside each other, of one sequence of 2048 on 8 GPUs (FSDP2, bf16): GPT-J-6B 36.05 and
 * 24.12 GB, CodeGen-2B 41.38 and 14.90; checkpointed 15.84 and 15.28, 8.63 and 7.20. */
#define GPTJ_NEWER                                                                                 \
    "attention is planned as transformers up to 5.23 writes it, in single ops; from 5.24 on "      \
    "scaled_dot_product_attention computes it, which takes less memory: recorded 3 to 17 % less "  \
    "where blocks are checkpointed, 33 to 64 % where not"

#endif
