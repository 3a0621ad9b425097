/* glm.h - what both GLM-4 have in common: for the files of this folder only. */
#ifndef SHARDPLAN_FAMILIES_GLM_H
#define SHARDPLAN_FAMILIES_GLM_H

#include "families/llama.h"
#include "hf/decoder.h"

/* clang-format off */
#define HF_GLM_LAYER .fused_gate_up = true, .rotary = HF_ROTARY_PAIRS
#define GLM_KEYS                                                                                   \
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX)},                                              \
    LLAMA_KEYS(131072, 1.5625e-7, 1e4),                                                            \
    PARTIAL_ROTARY(0.5),                                                                           \
    DROPOUT("attention_dropout", attention_dropout, 0),                                            \
    {FLAG("attention_bias", attention_bias, true)}
/* clang-format on */

#endif
