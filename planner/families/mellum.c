/* mellum.c - Mellum 2: Qwen3 with mixtures of experts, windows in some layers and RoPE by type of
 * layer. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .masks_by_layer = true,
        .masks_of_types = true,
        .tables_by_layer = true,
        .moe = {.route = hf_route_qwen,
                .gate = hf_gate_halves,
                .router = "gate",
                .experts_first = true},
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SHAPE_KEYS,
    {SIZE("num_attention_heads", heads, HEADS_MAX)},
    {COUNT("intermediate_size", ffn, 7168, FFN_MAX)},
    {COUNT("num_key_value_heads", kv_heads, 4, HEADS_MAX)},
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX)},
    {POSITIONS("max_position_embeddings", 131072)},
    EPS("rms_norm_eps", 1e-6),
    STD("initializer_range", 0.02),
    {NUMBER("rope_parameters.full_attention.rope_theta", rope.theta, 5e5, 1, 1e12)},
    {NUMBER("rope_parameters.sliding_attention.rope_theta", window_theta, 1e4, 1, 1e12)},
    TIED(false),
    {CHOICE("hidden_act", gated, "silu", key_silu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {ALWAYS("qk_norm", qk_norm)},
    {.name = "sliding_window",
     .type = KEY_INT,
     .max = POSITIONS_MAX,
     AT(sliding_window),
     .absent = RULE_VALUE,
     .null = RULE_NONE,
     .value = 1024},
    WINDOW_PERIOD(1),
    LAYER_TYPES,
    EXPERTS("num_experts", "num_local_experts", 64, 8),
    EXPERT_WIDTH(896),
    {LAYER_LIST("mlp_layer_types", KEY_LAYERS, dense, key_dense_layers, RULE_NONE)},
    {FLAG("norm_topk_prob", norm_topk, true)},
};

const struct family family_mellum = {
    .name = "mellum",
    .class_name = "MellumForCausalLM",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .check = experts_check,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
