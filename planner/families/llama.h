/* llama.h - what Llama, Mistral, Qwen and Mixtral have in common: for the files of this folder
 * only. */
#ifndef SHARDPLAN_FAMILIES_LLAMA_H
#define SHARDPLAN_FAMILIES_LLAMA_H

#include "families/family.h"

/* ---- rows of keys ---- */

/* clang-format off */
#define WINDOW(rule)                                                                               \
    .name = "sliding_window", .type = KEY_INT, .max = POSITIONS_MAX, AT(sliding_window),           \
    .absent = (rule), .null = RULE_NONE, .value = 4096
#define HEAD_DIM_KEY {DERIVED("head_dim", head_dim, RULE_HEAD_SIZE, HEAD_DIM_MAX)}
/* Absent, it is a number that the class has; null means heads. */
#define KV_HEADS(number)                                                                           \
    {COUNT("num_key_value_heads", kv_heads, number, HEADS_MAX), .null = RULE_HEADS}
#define LLAMA_KEYS(positions, eps, theta)                                                          \
    {POSITIONS("max_position_embeddings", positions)},                                             \
    EPS("rms_norm_eps", eps),                                                                      \
    STD("initializer_range", 0.02),                                                                \
    THETA("rope_theta", theta),                                                                    \
    TIED(false),                                                                                   \
    {CHOICE("hidden_act", gated, "silu", key_silu_only)}
/* Of so many layers the last has no window: the class's, where the file has no list. */
#define WINDOW_PERIOD(number)                                                                      \
    {.name = "layer_types", .type = KEY_INT, .fixed = true, .min = 1, .max = LAYERS_MAX,           \
     AT(window_period), .absent = RULE_VALUE, .value = (number)}
#define PARTIAL_ROTARY(share)                                                                      \
    {REAL("partial_rotary_factor", KEY_SHARE, rotary_dim, share, 0.001, 1),                        \
     .other = "rope_parameters.partial_rotary_factor"}
#define QWEN_WINDOW QWEN_WINDOW_FROM(28)
#define QWEN_WINDOW_FROM(layer)                                                                    \
    {WINDOW(RULE_VALUE)},                                                                          \
    {.name = "max_window_layers", .type = KEY_INT, .max = LAYERS_MAX, AT(full_layers),             \
     .absent = RULE_VALUE, .value = (layer)},                                                      \
    {BOOL("use_sliding_window", KEY_GATE, false), AT(sliding_window)},                             \
    {BOOL("use_sliding_window", KEY_GATE, false), AT(full_layers)},                                \
    LAYER_TYPES

/* ---- fields of presets ---- */

/* NOLINTBEGIN(bugprone-macro-parentheses) */
#define DECODER(kind, h, l, a, k, d, f, v, positions, eps, base)                                   \
    STRETCHED(kind, h, l, a, k, d, f, v, positions, eps, base, 1)
#define GATED(kind, h, l, a, k, d, f, v, positions, eps, base)                                     \
    DECODER(kind, h, l, a, k, d, f, v, positions, eps, base), .activation = "silu"
/* Of RoPE that is stretched: cos and sin times `by`. */
#define STRETCHED(kind, h, l, a, k, d, f, v, positions, eps, base, by)                             \
    DRAWN(kind, h, l, a, k, d, f, v, positions, eps, base, by, 0.02F)
/* Of weights that are drawn within `std`. */
#define DRAWN(kind, h, l, a, k, d, f, v, positions, eps, base, by, std)                            \
    .arch = kind, .hidden = h, .layers = l, .heads = a, .kv_heads = k, .head_dim = d, .ffn = f,    \
    .vocab = v, .max_positions = positions, .norm_eps = eps, .init_std = std, .rope.theta = base,  \
    .rope.attention_factor = by
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

#endif
