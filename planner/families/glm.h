/* glm.h - what both GLM-4 have in common: for the files of this folder only. */
#ifndef SHARDPLAN_FAMILIES_GLM_H
#define SHARDPLAN_FAMILIES_GLM_H

#include "families/llama.h"
#include "hf/decoder.h"

/* clang-format off */
#define HF_GLM_LAYER .fused_gate_up = true, .rotary = HF_ROTARY_PAIRS
/* GLM-4-0414's, and RoPE's grids of those that see: an angle is twice in the tables themselves. */
#define HF_GLM4_NORMS                                                                              \
    .norm = hf_rms_norm,                                                                           \
    .norms = {{".input_layernorm", HF_BEFORE_ATTENTION},                                           \
              {".post_attention_layernorm", HF_BEFORE_MLP},                                        \
              {".post_self_attn_layernorm", HF_AFTER_ATTENTION},                                   \
              {".post_mlp_layernorm", HF_AFTER_MLP}}
#define HF_GLM_GRIDS                                                                               \
    .qk = HF_QK_NONE, .unplaced = true, .last_named = true, .grids = HF_GRIDS_NEIGHBOURS,          \
    .model = "model.language_model", .nested = true
#define GLM_KEYS                                                                                   \
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX)},                                              \
    LLAMA_KEYS(131072, 1.5625e-7, 1e4),                                                            \
    PARTIAL_ROTARY(0.5),                                                                           \
    DROPOUT("attention_dropout", attention_dropout, 0),                                            \
    {FLAG("attention_bias", attention_bias, true)}
/* clang-format on */

/* A family's builder: GLM-4.1V's text model, and GLM-OCR's. */
model_builder build_hf_glm4v;
/* A family's count: Llama's with two more norms a layer. */
double count_glm4(const struct model_config *config);

#endif
