/* glm4_moe.h - what GLM-4.5 and GLM-4.5V have in common: for the files of this folder only. */
#ifndef SHARDPLAN_FAMILIES_GLM4_MOE_H
#define SHARDPLAN_FAMILIES_GLM4_MOE_H

#include "families/llama.h"
#include "hf/decoder.h"
#include "model/experts.h"

/* clang-format off */
/* Behind Llama's; whether q, k and v have biases where the file has no word of it. */
#define GLM4_MOE_KEYS(biased)                                                                      \
    DROPOUT("attention_dropout", attention_dropout, 0),                                            \
    {FLAG("attention_bias", attention_bias, biased)},                                              \
    {REAL("partial_rotary_factor", KEY_SHARE, rotary_dim, 0.5, 0, 1),                              \
     .other = "rope_parameters.partial_rotary_factor"},                                            \
    EXPERTS("n_routed_experts", "num_local_experts", 128, 8),                                      \
    EXPERT_WIDTH(1408),                                                                            \
    EXPERT_GROUPS(1, 1, 1),                                                                        \
    SHARED_EXPERTS(1, 1),                                                                          \
    {FLAG("norm_topk_prob", norm_topk, true)}
/* clang-format on */

/* A family's: RoPE turns an even part of a head, and groups divide the experts. */
enum err_code glm4_moe_check(const struct key_table *table, const struct model_config *c,
                             const char *where, struct err *err);

#endif
