/* qwen3_vl.c - Qwen3-VL's text model: Qwen3 with RoPE by places in three grids. */
#include "families/qwen_vl.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){HF_QWEN_VL, .grids = HF_GRIDS_WOVEN, .last_named = true,
                                          .positions_first = true});
}

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(32),
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX)},
    {POSITIONS("max_position_embeddings", 128000)},
    EPS("rms_norm_eps", 1e-6),
    STD("initializer_range", 0.02),
    THETA("rope_theta", 5e5),
    {CHOICE("hidden_act", gated, "silu", key_silu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {ALWAYS("qk_norm", qk_norm)},
    {ALWAYS("mrope", grids)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* Text models of Qwen/Qwen3-VL-2B-Instruct ... -32B. */
#define QWEN3_VL(title, count, h, l, a, f, shared)                                                 \
    {title, count,                                                                                 \
     {GATED(ARCH_QWEN3_VL, h, l, a, 8, 128, f, 151936, 262144, 1e-6F, 5e6F), .qk_norm = true,      \
      .tied = shared, .grids = true, .rope_sections = {24, 20, 20}}}

static const struct model_preset presets[] = {
    QWEN3_VL("qwen3-vl-2b-text",  1720574976,  2048, 28, 16, 6144,  true),
    QWEN3_VL("qwen3-vl-4b-text",  4022468096,  2560, 36, 32, 9728,  true),
    QWEN3_VL("qwen3-vl-8b-text",  8190735360,  4096, 36, 32, 12288, false),
    QWEN3_VL("qwen3-vl-32b-text", 32762123264, 5120, 64, 64, 25600, false),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_qwen3_vl = {
    .name = "qwen3_vl_text",
    .class_name = "Qwen3VLForConditionalGeneration",
    .block_class = "Qwen3VLTextDecoderLayer",
    .outer = "qwen3_vl",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .rope_lacks = "{\"mrope_section\": [24, 20, 20]}",
    .woven_grids = true,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
