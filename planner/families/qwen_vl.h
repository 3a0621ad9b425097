/* qwen_vl.h - what the text models of Qwen-VL have in common: for the files of this folder only.
 *
 * Their class is the whole, called by text alone: its vision tower is left out. */
#ifndef SHARDPLAN_FAMILIES_QWEN_VL_H
#define SHARDPLAN_FAMILIES_QWEN_VL_H

#include "families/llama.h"
#include "hf/decoder.h"

#define HF_QWEN_VL HF_LLAMA_NORMS, .model = "model.language_model", .nested = true

/* clang-format off */
/* Qwen2-VL and Qwen2.5-VL. */
#define QWEN2_VL_KEYS                                                                              \
    SIZE_KEYS,                                                                                     \
    KV_HEADS(8),                                                                                   \
    {FIXED("head_dim", head_dim, RULE_HEAD_SIZE, HIDDEN_MAX)},                                     \
    LLAMA_KEYS(32768, 1e-5, 1e6),                                                                  \
    DROPOUT("attention_dropout", attention_dropout, 0),                                            \
    {ALWAYS("attention_bias", attention_bias)},                                                    \
    {ALWAYS("mrope", grids)},                                                                      \
    QWEN_WINDOW_FROM(80)

/* ---- fields of presets ---- */

/* NOLINTBEGIN(bugprone-macro-parentheses) */
#define QWEN2_VL(kind, title, count, h, l, a, k, f, v, positions, shared)                          \
    {title, count,                                                                                 \
     {GATED(kind, h, l, a, k, h / a, f, v, positions, 1e-6F, 1e6F), .attention_bias = true,        \
      .tied = shared, .grids = true, .rope_sections = {16, 24, 24}}}
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

/* All of a row but its names. */
#define QWEN2_VL_ROW                                                                               \
    .traced = true, .keys = KEY_TABLE(keys), PRESETS(presets), .rope = true,                       \
    .rope_lacks = "{\"mrope_section\": [16, 24, 24]}", .parameters = count_llama, .code = CODE_HF, \
    .builder = {[CODE_HF] = build_hf_qwen2_vl}

model_builder build_hf_qwen2_vl, build_hf_qwen3_vl_moe;

#endif
