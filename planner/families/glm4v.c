/* glm4v.c - GLM-4.1V's text model: GLM-4-0414 with RoPE by places in three grids. */
#include "families/glm.h"
#include "families/qwen_vl.h"
#include "model/count.h"

void build_hf_glm4v(struct graph *graph, const struct model_config *config,
                    const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){HF_GLM_LAYER, HF_GLM4_NORMS, HF_GLM_GRIDS});
}

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(2),
    {FIXED("head_dim", head_dim, RULE_HEAD_SIZE, HIDDEN_MAX)},
    LLAMA_KEYS(32768, 1e-5, 1e4),
    PARTIAL_ROTARY(1),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {ALWAYS("attention_bias", attention_bias)},
    {ALWAYS("mrope", grids)},
};

const struct family family_glm4v = {
    .name = "glm4v_text",
    .class_name = "Glm4vForConditionalGeneration",
    .block_class = "Glm4vTextDecoderLayer",
    .outer = "glm4v",
    .keys = KEY_TABLE(keys),
    .rope_lacks = "{\"mrope_section\": [8, 12, 12]}",
    .parameters = count_glm4,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_glm4v},
};
