/* qwen3_omni_moe.c - the text model of Qwen3-Omni's thinker, which is Qwen3-VL's with experts. */
#include "families/qwen_vl.h"
#include "model/count.h"
#include "model/experts.h"

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(4),
    HEAD_DIM_KEY,
    {POSITIONS("max_position_embeddings", 32768)},
    EPS("rms_norm_eps", 1e-6),
    STD("initializer_range", 0.02),
    THETA("rope_theta", 1e6),
    {CHOICE("hidden_act", gated, "silu", key_silu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {ALWAYS("qk_norm", qk_norm)},
    {ALWAYS("mrope", grids)},
    EXPERTS("num_experts", "num_local_experts", 128, 8),
    EXPERT_WIDTH(768),
    SPARSE_LAYERS,
    {FLAG("norm_topk_prob", norm_topk, true)},
};

const struct family family_qwen3_omni_moe = {
    .name = "qwen3_omni_moe_text",
    .class_name = "Qwen3OmniMoeThinkerForConditionalGeneration",
    .block_class = "Qwen3OmniMoeThinkerTextDecoderLayer",
    .outer = "qwen3_omni_moe_thinker",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .rope_lacks = "{\"mrope_section\": [24, 20, 20]}",
    .woven_grids = true,
    .check = experts_check,
    .parameters = count_llama,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_qwen3_vl_moe},
};
