/* hy_v3.c - HY 3: Qwen3's attention with experts chosen by a sigmoid and a correction, in fp32, and
 * one that all tokens pass. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .qk = HF_QK_TURNED,
        .positions_first = true,
        .moe = {.route = hf_route_hy_v3,
                .gate = hf_gate_halves,
                .router = "gate",
                .correction = HF_CORRECTION_AS_MADE,
                .when = HF_SHARED_BEHIND},
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    {COUNT("num_key_value_heads", kv_heads, 8, HEADS_MAX)},
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX)},
    {POSITIONS("max_position_embeddings", 131072)},
    EPS("rms_norm_eps", 1e-5),
    STD("initializer_range", 0.006),
    THETA("rope_theta", 11158840.0),
    TIED(false),
    {CHOICE("hidden_act", gated, "silu", key_silu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {FLAG("mlp_bias", mlp_bias, false)},
    {ALWAYS("qk_norm", qk_norm)},
    EXPERTS("num_experts", "num_local_experts", 192, 8),
    EXPERT_WIDTH(1536),
    {COUNT("num_shared_experts", shared_experts, 1, EXPERTS_MAX)},
    {.name = "mlp_layer_types",
     .type = KEY_INT,
     .fixed = true,
     .max = LAYERS_MAX,
     AT(dense_first),
     .absent = RULE_VALUE,
     .value = 1},
    {LAYER_LIST("mlp_layer_types", KEY_LAYERS, dense, key_dense_layers, RULE_NONE)},
    {NUMBER("router_scaling_factor", routed_scaling, 2.826, 0, 1e6)},
    {FLAG("enable_moe_fp32_combine", wide_sum, true)},
};

const struct family family_hy_v3 = {
    .name = "hy_v3",
    .class_name = "HYV3ForCausalLM",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .check = experts_check,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
