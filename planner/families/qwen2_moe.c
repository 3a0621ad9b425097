/* qwen2_moe.c - Qwen2 (and Qwen1.5) with mixtures of experts, and one that every token passes. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(16),
    HEAD_DIM_KEY,
    LLAMA_KEYS(32768, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("qkv_bias", attention_bias, true)},
    {ONLY("use_sliding_window", false)},
    LAYER_TYPES, /* none has a window then */
    EXPERTS("num_experts", "num_local_experts", 60, 4),
    EXPERT_WIDTH(1408),
    {COUNT("shared_expert_intermediate_size", shared_ffn, 5632, FFN_MAX)},
    {ALWAYS("shared_expert_gate", shared_gate)},
    SPARSE_LAYERS,
    {FLAG("norm_topk_prob", norm_topk, false)},
};

/* Qwen/Qwen1.5-MoE-A2.7B. Qwen2MoeForCausalLM. */
static const struct model_preset presets[] = {
    {"qwen1.5-moe-a2.7b",
     14315784192,
     {GATED(ARCH_QWEN2_MOE, 2048, 24, 16, 16, 128, 5632, 151936, 8192, 1e-6F, 1e6F),
      .attention_bias = true, .experts = 60, .experts_per_token = 4, .expert_ffn = 1408,
      .shared_ffn = 5632, .shared_gate = true, .sparse_step = 1}},
};

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .masks_by_layer = true,
        .both_masks = true,
        .positions_first = true,
        HF_LLAMA_NORMS,
        .moe = {.route = hf_route_qwen,
                .gate = hf_gate_halves,
                .router = "gate",
                .leaf = "Qwen2MoeSparseMoeBlock",
                .when = HF_SHARED_ROWS},
    };
    hf_decoder_build(graph, config, job, &way);
}

const struct family family_qwen2_moe = {
    .name = "qwen2_moe",
    .class_name = "Qwen2MoeForCausalLM",
    .classifier = "Qwen2MoeForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .check = experts_check,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
