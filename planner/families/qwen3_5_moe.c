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
/* NOLINTBEGIN(bugprone-macro-parentheses) */
/* Text models of Qwen/Qwen3.5-35B-A3B (what Qwen3_5MoeTextConfig is by default), -122B-A10B,
 * -397B-A17B. */
#define QWEN3_5_MOE(title, count, h, l, a, values, e, k, wide)                                     \
    {title, count,                                                                                 \
     {GATED(ARCH_QWEN3_5_MOE, h, l, a, 2, 256, 0, 248320, 262144, 1e-6F, 1e7F),                    \
      DELTA_SIZES(values), QWEN3_5_GRIDS, .experts = e, .experts_per_token = k,                    \
      .expert_ffn = wide, .shared_ffn = wide, .shared_gate = true, .norm_topk = true}}

static const struct model_preset presets[] = {
    QWEN3_5_MOE("qwen3.5-35b-a3b-text",   34660610688,  2048, 40, 16, 32, 256, 8,  512),
    QWEN3_5_MOE("qwen3.5-122b-a10b-text", 122111526912, 3072, 48, 32, 64, 256, 8,  1024),
    QWEN3_5_MOE("qwen3.5-397b-a17b-text", 396346350336, 4096, 60, 32, 64, 512, 10, 1024),
};
/* NOLINTEND(bugprone-macro-parentheses) */
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
