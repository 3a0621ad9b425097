/* ernie4_5.h - what ERNIE 4.5 with and without experts has in common: for the files of this folder
 * only. */
#ifndef SHARDPLAN_FAMILIES_ERNIE4_5_H
#define SHARDPLAN_FAMILIES_ERNIE4_5_H

#include "families/llama.h"

/* clang-format off */
/* Behind the sizes of heads. */
#define ERNIE_KEYS                                                                                 \
    {POSITIONS("max_position_embeddings", 131072)},                                                \
    EPS("rms_norm_eps", 1e-5),                                                                     \
    STD("initializer_range", 0.02),                                                                \
    THETA("rope_theta", 5e5),                                                                      \
    TIED(true),                                                                                    \
    {CHOICE("hidden_act", gated, "silu", key_silu_only)},                                          \
    {FLAG("use_bias", attention_bias, false)},                                                     \
    {FLAG("use_bias", output_bias, false)},                                                        \
    {FLAG("use_bias", mlp_bias, false)}
/* clang-format on */

#endif
