/* qwen3_5.h - what Qwen 3.5 and its mixture of experts have in common, each as AutoModelForCausalLM
 * makes it, without what it sees with: for the files of this folder only. */
#ifndef SHARDPLAN_FAMILIES_QWEN3_5_H
#define SHARDPLAN_FAMILIES_QWEN3_5_H

#include "families/llama.h"
#include "hf/decoder.h"

/* Attention whose output is gated, in each layer or in the last of so many, and linear attention
 * in the others; norms times 1 + weight. */
#define HF_GATED_LAYER                                                                             \
    .norm = hf_rms_norm_plus_one, HF_NORM_NAMES, .norms_at_zero = true, .rotary = HF_ROTARY_BOTH,  \
    .masks_by_layer = true, .mixer = &hf_mixer_delta

extern const struct choice delta_layers[];

/* clang-format off */
/* With heads of keys and values by default. */
#define DELTA_KEYS(kv)                                                                             \
    SHAPE_KEYS,                                                                                    \
    {SIZE("num_attention_heads", heads, HEADS_MAX)},                                               \
    KV_HEADS(kv),                                                                                  \
    {COUNT("head_dim", head_dim, 256, HEAD_DIM_MAX)},                                              \
    LLAMA_KEYS(32768, 1e-6, 1e4),                                                                  \
    PARTIAL_ROTARY(0.25),                                                                          \
    DROPOUT("attention_dropout", attention_dropout, 0),                                            \
    ATTENTION_BIASES(false),                                                                       \
    {ALWAYS("qk_norm", qk_norm)},                                                                  \
    {ALWAYS("attn_output_gate", gated_output)},                                                    \
    {COUNT("linear_num_key_heads", delta_key_heads, 16, HEADS_MAX)},                               \
    {COUNT("linear_key_head_dim", delta_key_dim, 128, DELTA_KEY_MAX)},                            \
    {COUNT("linear_num_value_heads", delta_value_heads, 32, HEADS_MAX)},                           \
    {COUNT("linear_value_head_dim", delta_value_dim, 128, HEAD_DIM_MAX)},                          \
    {REAL("linear_conv_kernel_dim", KEY_INT, conv_width, 4, CONV_WIDTH_MIN, CONV_WIDTH_MAX)},      \
    {COUNT("full_attention_interval", linear_period, 4, LAYERS_MAX)},                              \
    {LAYER_LIST("layer_types", KEY_LAYERS, linear, delta_layers, RULE_NONE)}
#define DELTA_EXPERTS(number, k)                                                                   \
    EXPERTS("num_experts", "num_local_experts", number, k),                                        \
    EXPERT_WIDTH(512),                                                                             \
    {COUNT("shared_expert_intermediate_size", shared_ffn, 512, FFN_MAX)},                          \
    {ALWAYS("shared_expert_gate", shared_gate)}
/* clang-format on */

/* Fields of presets: all have linear attention in three layers of four, of so many heads of
 * values. */
#define DELTA_SIZES(values)                                                                        \
    .rotary_dim = 64, .qk_norm = true, .gated_output = true, .linear_period = 4,                   \
    .delta_key_heads = 16, .delta_key_dim = 128, .delta_value_heads = (values),                    \
    .delta_value_dim = 128, .conv_width = 4
#define QWEN3_5_GRIDS .grids = true, .rope_sections = {11, 11, 10}
#define QWEN3_5_ROPE_LACKS "{\"mrope_section\": [11, 11, 10]}"

/* ERR_INVALID unless heads of keys divide those of values and causal-conv1d has kernels for so many
 * channels; the second asks experts_check, too. */
enum err_code delta_check(const struct key_table *table, const struct model_config *config,
                          const char *where, struct err *err);
enum err_code delta_check_experts(const struct key_table *table, const struct model_config *config,
                                  const char *where, struct err *err);

/* Llama's parameters, with a gate in each layer with attention, and the others' own in its place.
 */
double count_delta(const struct model_config *config);

#endif
