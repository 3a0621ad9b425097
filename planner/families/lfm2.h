/* lfm2.h - what LFM2 and its mixture of experts have in common: for the files of this folder only.
 */
#ifndef SHARDPLAN_FAMILIES_LFM2_H
#define SHARDPLAN_FAMILIES_LFM2_H

#include "families/llama.h"
#include "hf/decoder.h"

/* Members of a struct hf_decoder. */
#define HF_LFM2_LAYER                                                                              \
    .norm = hf_rms_norm,                                                                           \
    .norms = {{".operator_norm", HF_BEFORE_ATTENTION}, {".ffn_norm", HF_BEFORE_MLP}},              \
    .last_norm = "embedding_norm", .q_norm = "q_layernorm", .k_norm = "k_layernorm",               \
    .output = "out_proj", .mlp = "feed_forward", .gate = "w1", .up = "w3", .down = "w2",           \
    .output_last = true, .masks_by_layer = true, .mixer = &hf_mixer_short_conv

extern const struct choice lfm2_layers[];

/* clang-format off */
/* What stands twice has two names, of which the class takes the second where both are there. */
#define LFM2_KEYS                                                                                  \
    {COUNT("vocab_size", vocab, 65536, VOCAB_MAX)},                                                \
    {SIZE("hidden_size", hidden, HIDDEN_MAX)},                                                     \
    {SIZE("num_hidden_layers", layers, LAYERS_MAX)},                                               \
    {SIZE("num_attention_heads", heads, HEADS_MAX)},                                               \
    {COUNT("num_key_value_heads", kv_heads, 8, HEADS_MAX)},                                        \
    HEAD_DIM_KEY,                                                                                  \
    {POSITIONS("max_position_embeddings", 128000)},                                                \
    EPS("norm_eps", 1e-5),                                                                         \
    STD("initializer_range", 0.02),                                                                \
    THETA("rope_theta", 1e6),                                                                      \
    TIED(true),                                                                                    \
    {.name = "tie_embedding", .type = KEY_BOOL, AT(tied), .absent = RULE_KEEP, .max = 1},          \
    {CHOICE("hidden_act", gated, "silu", key_silu_only), .fixed = true},                           \
    {ALWAYS("qk_norm", qk_norm)},                                                                  \
    {FLAG("conv_bias", conv_bias, false)},                                                         \
    {REAL("conv_L_cache", KEY_INT, conv_width, 3, CONV_WIDTH_MIN, CONV_WIDTH_MAX)}
#define LFM2_LAYERS(rule)                                                                          \
    {LAYER_LIST("layer_types", KEY_LAYERS, linear, lfm2_layers, rule)}

/* Fields of presets; behind f bits of layers with a convolution. */
#define LFM2_SIZES(kind, h, l, a, f, ...)                                                          \
    GATED(kind, h, l, a, 8, 64, f, 65536, 128000, 1e-5F, 1e6F),                                    \
        .tied = true, .padding = 1, .qk_norm = true, .conv_width = 3,                              \
        .linear = {true, {__VA_ARGS__}}
/* clang-format on */

/* Of a file without sizes that is part of another model's. */
#define LFM2_ABSENT(h)                                                                             \
    "{\"hidden_size\": " h ", \"num_hidden_layers\": 32, \"num_attention_heads\": 32}"

/* ERR_INVALID unless causal-conv1d has kernels for so many channels. */
enum err_code lfm2_check(const struct key_table *table, const struct model_config *config,
                         const char *where, struct err *err);

/* Llama's parameters, with a convolution for attention in the layers that have it. */
double count_lfm2(const struct model_config *config);

#endif
