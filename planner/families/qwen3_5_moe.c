/* qwen3_5_moe.c - Qwen 3.5 with mixtures of experts, and one that every token passes. */
#include "families/qwen3_5.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_GATED_LAYER,
        .tables_first = true,
        .grids = HF_GRIDS_WOVEN,
        .moe = {.route = hf_route_qwen,
                .gate = hf_gate_halves,
                .router = "gate",
                .leaf = "Qwen3_5MoeSparseMoeBlock",
                .when = HF_SHARED_ROWS},
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    DELTA_KEYS(2),
    DELTA_EXPERTS(256, 8),
    {ALWAYS("norm_topk_prob", norm_topk)},
    {ALWAYS("mrope", grids)},
};

/* clang-format off */
/* Text model of Qwen/Qwen3.5-35B-A3B: what Qwen3_5MoeTextConfig is by default. */
static const struct model_preset presets[] = {
    {"qwen3.5-35b-a3b-text", 34660610688,
     {GATED(ARCH_QWEN3_5_MOE, 2048, 40, 16, 2, 256, 0, 248320, 262144, 1e-6F, 1e7F), DELTA_SIZES,
      QWEN3_5_GRIDS, .experts = 256, .experts_per_token = 8, .expert_ffn = 512,
      .shared_ffn = 512, .shared_gate = true, .norm_topk = true}},
};
/* clang-format on */

const struct family family_qwen3_5_moe = {
    .name = "qwen3_5_moe_text",
    .class_name = "Qwen3_5MoeForCausalLM",
    .outer = "qwen3_5_moe",
    .part_absent = "{\"hidden_size\": 2048, \"num_hidden_layers\": 40, "
                   "\"num_attention_heads\": 16, \"vocab_size\": 248320}",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope_lacks = QWEN3_5_ROPE_LACKS,
    .woven_grids = true,
    .check = delta_check_experts,
    .parameters = count_delta,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
