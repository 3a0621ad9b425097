/* afmoe.c - Arcee's AFMoE, Trinity: attention whose output a product of its input gates, windows
 * and RoPE in three layers of four, four norms a layer, and experts chosen by a sigmoid and a
 * correction that nothing trains. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

#include <math.h>

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .norm = hf_rms_norm_wide,
        .norms = {{".input_layernorm", HF_BEFORE_ATTENTION},
                  {".post_attention_layernorm", HF_AFTER_ATTENTION},
                  {".pre_mlp_layernorm", HF_BEFORE_MLP},
                  {".post_mlp_layernorm", HF_AFTER_MLP}},
        .qk = HF_QK_LAST,
        .gate_output = "gate_proj",
        .output_last = true,
        .mlp_last = true,
        .positions_first = true,
        .window_rope = true,
        .masks_by_layer = true,
        .both_types = true,
        .unasked = true,
        .embedded_last = true,
        .late_scale = true,
        .scaled_apart = true,
        .moe = {.route = hf_route_afmoe,
                .gate = hf_gate_halves,
                .router = "router.gate",
                .router_flattens = true,
                .statics = "expert_bias",
                .own_statics = true,
                .experts_last = true,
                .when = HF_SHARED_BETWEEN},
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX)},
    LLAMA_KEYS(16384, 1e-5, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {ALWAYS("qk_norm", qk_norm)},
    {SIZE("sliding_window", sliding_window, POSITIONS_MAX), .absent = RULE_VALUE, .value = 1024},
    {COUNT("global_attn_every_n_layers", window_period, 4, LAYERS_MAX)},
    {LAYER_LIST("layer_types", KEY_LAYERS, windows, key_window_layers, RULE_NONE)},
    {FLAG("mup_enabled", scaled_by_root, false), .null = RULE_NONE},
    EXPERTS("num_experts", "num_local_experts", 64, 6),
    EXPERT_WIDTH(1408),
    {COUNT("num_shared_experts", shared_experts, 2, EXPERTS_MAX)},
    {.name = "num_dense_layers",
     .type = KEY_INT,
     .max = LAYERS_MAX,
     AT(dense_first),
     .absent = RULE_VALUE,
     .value = 1},
    {NUMBER("route_scale", routed_scaling, 1, 0, 1e6)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* arcee-ai/Trinity-Nano-Preview, Trinity-Mini. AfmoeForCausalLM. */
#define TRINITY(title, count, h, l, a, k, f, wide, root)                                           \
    {title, count,                                                                                 \
     {GATED(ARCH_AFMOE, h, l, a, k, 128, f, 200192, 131072, 1e-5F, 1e4F), .qk_norm = true,         \
      .sliding_window = 2048, .window_period = 4, .scaled_by_root = true,                          \
      .embedding_multiplier = root, .experts = 128, .experts_per_token = 8, .expert_ffn = wide,    \
      .shared_experts = 1, .dense_first = 2, .routed_scaling = 2.826F}}

static const struct model_preset presets[] = {
    TRINITY("trinity-nano-preview", 6120003328,  1024, 56, 8,  2, 3072, 256,  32),
    TRINITY("trinity-mini",         26123974400, 2048, 32, 32, 4, 6144, 1024, 45.254834F),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"trinity-nano-base", "trinity-nano-preview"},
};

/* Two more norms a layer, the gate of attention's output, and the corrections. */
static double parameters(const struct model_config *c)
{
    const double h = c->hidden, gate = h * c->heads * c->head_dim;
    return count_llama(c) + c->layers * (2 * h + gate) + (double)experts_layers(c) * c->experts;
}

static void settle(struct model_config *c)
{
    if (c->scaled_by_root)
        c->embedding_multiplier = sqrtf((float)c->hidden);
}

const struct family family_afmoe = {
    .name = "afmoe",
    .class_name = "AfmoeForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .settle = settle,
    .check = experts_check,
    .parameters = parameters,
    .uncompiled = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
