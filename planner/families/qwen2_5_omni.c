/* qwen2_5_omni.c - the text model of Qwen2.5-Omni's thinker, which is Qwen2-VL's. */
#include "families/qwen_vl.h"
#include "model/count.h"

static const struct key keys[] = {
    QWEN2_VL_KEYS,
};

/* The head is the thinker's, whatever the text model inside says. */
static const struct key outer_keys[] = {
    TIED(false),
};

const struct family family_qwen2_5_omni = {
    .name = "qwen2_5_omni_text",
    .class_name = "Qwen2_5OmniThinkerForConditionalGeneration",
    .block_class = "Qwen2_5OmniDecoderLayer",
    .outer = "qwen2_5_omni_thinker",
    .outer_keys = KEY_TABLE(outer_keys),
    .keys = KEY_TABLE(keys),
    .rope = true,
    .rope_lacks = "{\"mrope_section\": [16, 24, 24]}",
    .parameters = count_llama,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_qwen2_vl},
};
