/* glm4v_moe.c - GLM-4.5V's text model: GLM-4.5's with RoPE by places in three grids. */
#include "families/glm4_moe.h"
#include "families/qwen_vl.h"
#include "model/count.h"

static const struct key keys[] = {
    SIZE_KEYS,           KV_HEADS(8),
    HEAD_DIM_KEY,        LLAMA_KEYS(65536, 1e-5, 1e4),
    GLM4_MOE_KEYS(true), {ALWAYS("mrope", grids)},
};

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_QWEN_VL,
        .qk = HF_QK_LAST,
        .rotary = HF_ROTARY_BOTH,
        .unasked = true,
        .tables_first = true,
        .last_named = true,
        .grids = HF_GRIDS_PARTS,
        .moe = HF_DEEPSEEK_V3_MOE(HF_CORRECTION_FP32),
    };
    hf_decoder_build(graph, config, job, &way);
}

const struct family family_glm4v_moe = {
    .name = "glm4v_moe_text",
    .class_name = "Glm4vMoeForConditionalGeneration",
    .block_class = "Glm4vMoeTextDecoderLayer",
    .outer = "glm4v_moe",
    .keys = KEY_TABLE(keys),
    .rope_lacks = "{\"mrope_section\": [8, 12, 12]}",
    .check = glm4_moe_check,
    .parameters = count_llama,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
