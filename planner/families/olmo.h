/* olmo.h - what OLMo 2 and OLMo 3 have in common: for the files of this folder only. */
#ifndef SHARDPLAN_FAMILIES_OLMO_H
#define SHARDPLAN_FAMILIES_OLMO_H

#include "families/llama.h"
#include "hf/decoder.h"

/* Llama's, and the factors of the norms of q and k, which are as wide as those. */
double count_olmo(const struct model_config *config);

/* clang-format off */
#define HF_OLMO_LAYER                                                                              \
    .norm = hf_rms_norm_wide, .qk = HF_QK_WIDE, .fp32_tables = true,                               \
    .norms = {{".post_attention_layernorm", HF_AFTER_ATTENTION},                                   \
              {".post_feedforward_layernorm", HF_AFTER_MLP}}
#define OLMO_KEYS                                                                                  \
    SIZE_KEYS,                                                                                     \
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},                             \
    HEAD_DIM_KEY,                                                                                  \
    {POSITIONS("max_position_embeddings", 2048)},                                                  \
    EPS("rms_norm_eps", 1e-5),                                                                     \
    STD("initializer_range", 0.02),                                                                \
    TIED(false),                                                                                   \
    {CHOICE("hidden_act", gated, "silu", key_silu_only)},                                          \
    DROPOUT("attention_dropout", attention_dropout, 0),                                            \
    ATTENTION_BIASES(false)
/* clang-format on */

#endif
