/* qwen3_vl_moe.c - the text model of Qwen3-VL with mixtures of experts, whose weights are always
 * divided by their sum. */
#include "families/qwen_vl.h"
#include "model/count.h"
#include "model/experts.h"

void build_hf_qwen3_vl_moe(struct graph *graph, const struct model_config *config,
                           const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_QWEN_VL,
        .grids = HF_GRIDS_WOVEN,
        .last_named = true,
        .positions_first = true,
        .moe = {.route = hf_route_qwen,
                .gate = hf_gate_halves,
                .router = "gate",
                .experts_first = true},
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(16),
    HEAD_DIM_KEY,
    {POSITIONS("max_position_embeddings", 128000)},
    EPS("rms_norm_eps", 1e-6),
    STD("initializer_range", 0.02),
    THETA("rope_theta", 5e5),
    {CHOICE("hidden_act", gated, "silu", key_silu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {ALWAYS("qk_norm", qk_norm)},
    {ALWAYS("mrope", grids)},
    EXPERTS("num_experts", "num_local_experts", 60, 4),
    EXPERT_WIDTH(1408),
    SPARSE_LAYERS,
    {ALWAYS("norm_topk_prob", norm_topk)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* Text models of Qwen/Qwen3-VL-30B-A3B-Instruct and -235B-A22B-Instruct. */
#define QWEN3_VL_MOE(title, count, h, l, a, f, wide)                                               \
    {title, count,                                                                                 \
     {GATED(ARCH_QWEN3_VL_MOE, h, l, a, 4, 128, f, 151936, 262144, 1e-6F, 5e6F), .qk_norm = true,  \
      .grids = true, .rope_sections = {24, 20, 20}, .experts = 128, .experts_per_token = 8,        \
      .expert_ffn = wide, .sparse_step = 1, .norm_topk = true}}

static const struct model_preset presets[] = {
    QWEN3_VL_MOE("qwen3-vl-30b-a3b-text",   30532122624,  2048, 48, 32, 6144,  768),
    QWEN3_VL_MOE("qwen3-vl-235b-a22b-text", 235093634560, 4096, 94, 64, 12288, 1536),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_qwen3_vl_moe = {
    .name = "qwen3_vl_moe_text",
    .class_name = "Qwen3VLMoeForConditionalGeneration",
    .block_class = "Qwen3VLMoeTextDecoderLayer",
    .outer = "qwen3_vl_moe",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .rope_lacks = "{\"mrope_section\": [24, 20, 20]}",
    .woven_grids = true,
    .check = experts_check,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_qwen3_vl_moe},
};
