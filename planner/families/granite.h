/* granite.h - what Granite with and without experts has in common: for the files of this folder
 * only. */
#ifndef SHARDPLAN_FAMILIES_GRANITE_H
#define SHARDPLAN_FAMILIES_GRANITE_H

#include "families/llama.h"

/* clang-format off */
#define MULTIPLIER(key, member) {NUMBER(key, member, 1, 1e-9, 1e9)}
#define GRANITE_KEYS                                                                               \
    SIZE_KEYS,                                                                                     \
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},                             \
    HEAD_DIM_KEY,                                                                                  \
    LLAMA_KEYS(2048, 1e-6, 1e4),                                                                   \
    DROPOUT("attention_dropout", attention_dropout, 0),                                            \
    ATTENTION_BIASES(false),                                                                       \
    MULTIPLIER("embedding_multiplier", embedding_multiplier),                                      \
    MULTIPLIER("attention_multiplier", attention_multiplier),                                      \
    MULTIPLIER("residual_multiplier", residual_multiplier),                                        \
    MULTIPLIER("logits_scaling", logits_scaling)
/* clang-format on */

#endif
