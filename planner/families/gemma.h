/* gemma.h - what Gemma 2 and 3 have in common: for the files of this folder only. */
#ifndef SHARDPLAN_FAMILIES_GEMMA_H
#define SHARDPLAN_FAMILIES_GEMMA_H

#include "families/llama.h"
#include "hf/decoder.h"

/* Llama's, and two norms more a layer. */
double count_gemma(const struct model_config *config);

/* Gemma 4's and 3n's layers that reuse keys and values: ERR_INVALID unless one of their type is
 * there before them. */
enum err_code gemma4_check_reusing(const struct key_table *table, const struct model_config *config,
                                   const char *where, struct err *err);

/* clang-format off */
#define HF_GEMMA_LAYER                                                                             \
    .norm = hf_rms_norm_plus_one, .norms_at_zero = true, .scaled_rows = true,                      \
    .masks_by_layer = true,                                                                        \
    .norms = {{".input_layernorm", HF_BEFORE_ATTENTION},                                           \
              {".post_attention_layernorm", HF_AFTER_ATTENTION},                                   \
              {".pre_feedforward_layernorm", HF_BEFORE_MLP},                                       \
              {".post_feedforward_layernorm", HF_AFTER_MLP}}
#define SOFTCAP(key, member, value)                                                                \
    {NUMBER(key, member, value, 0, 1e6), .null = RULE_NONE}
#define GEMMA_KEYS(positions)                                                                      \
    {COUNT("num_key_value_heads", kv_heads, 4, HEADS_MAX)},                                        \
    {COUNT("head_dim", head_dim, 256, HEAD_DIM_MAX)},                                              \
    {POSITIONS("max_position_embeddings", positions)},                                             \
    EPS("rms_norm_eps", 1e-6),                                                                     \
    STD("initializer_range", 0.02),                                                                \
    TIED(true),                                                                                    \
    {CHOICE("hidden_activation", gated, "gelu_pytorch_tanh", key_activations)},                    \
    DROPOUT("attention_dropout", attention_dropout, 0),                                            \
    ATTENTION_BIASES(false),                                                                       \
    {NUMBER("query_pre_attn_scalar", query_scalar, 256, 1e-6, 1e9)},                               \
    {COUNT("sliding_window", sliding_window, 4096, POSITIONS_MAX)},                                \
    NEUTRAL("use_bidirectional_attention", NO_NUMBER)
/* clang-format on */

#endif
