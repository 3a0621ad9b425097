/* cohere.h - what Command R and Command R7B have in common: for the files of this folder only. */
#ifndef SHARDPLAN_FAMILIES_COHERE_H
#define SHARDPLAN_FAMILIES_COHERE_H

#include "families/llama.h"
#include "hf/decoder.h"

/* clang-format off */
#define HF_COHERE_LAYER HF_COHERE_NORM(hf_layer_norm_wide)
#define HF_COHERE_NORM(as)                                                                         \
    .norm = (as), .norms = {{".input_layernorm", HF_BEFORE_ATTENTION}}, .locals_last = true,       \
    .rotary = HF_ROTARY_NEIGHBOURS_CAST
#define COHERE_KEYS(theta)                                                                         \
    SIZE_KEYS,                                                                                     \
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},                             \
    HEAD_DIM_KEY,                                                                                  \
    {POSITIONS("max_position_embeddings", 8192)},                                                  \
    EPS("layer_norm_eps", 1e-5),                                                                   \
    STD("initializer_range", 0.02),                                                                \
    THETA("rope_theta", theta),                                                                    \
    TIED(true),                                                                                    \
    {CHOICE("hidden_act", gated, "silu", key_silu_only)},                                          \
    {ALWAYS("use_parallel_residual", parallel_residual)},                                          \
    {NUMBER("logit_scale", logits_multiplier, 0.0625, 1e-9, 1e9)},                                 \
    DROPOUT("attention_dropout", attention_dropout, 0),                                            \
    ATTENTION_BIASES(false)
/* clang-format on */

/* Llama's, where one norm is all that a layer has, and perhaps factors of each head of q and k. */
double count_cohere(const struct model_config *config);

#endif
