/* glm_ocr.c - GLM-OCR's text model: GLM-4.1V's without biases, whose heads have a size of their
 * own.
 */
#include "families/glm.h"
#include "families/qwen_vl.h"
#include "model/count.h"

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    HEAD_DIM_KEY,
    LLAMA_KEYS(131072, 1e-5, 1e4),
    PARTIAL_ROTARY(1),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {ALWAYS("mrope", grids)},
};

const struct family family_glm_ocr = {
    .name = "glm_ocr_text",
    .class_name = "GlmOcrForConditionalGeneration",
    .block_class = "GlmOcrTextDecoderLayer",
    .outer = "glm_ocr",
    .keys = KEY_TABLE(keys),
    .rope_lacks = "{\"mrope_section\": [8, 12, 12]}",
    .parameters = count_glm4,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_glm4v},
};
