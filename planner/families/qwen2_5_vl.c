/* qwen2_5_vl.c - Qwen2.5-VL's text model, which is Qwen2-VL's. */
#include "families/qwen_vl.h"
#include "model/count.h"

static const struct key keys[] = {
    QWEN2_VL_KEYS,
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* Text models of Qwen/Qwen2.5-VL-3B-Instruct ... -72B. */
#define QWEN2_5_VL(...) QWEN2_VL(ARCH_QWEN2_5_VL, __VA_ARGS__)
static const struct model_preset presets[] = {
    QWEN2_5_VL("qwen2.5-vl-3b-text",  3085938688,  2048, 36, 16, 2, 11008, 151936, 128000, true),
    QWEN2_5_VL("qwen2.5-vl-7b-text",  7615616512,  3584, 28, 28, 4, 18944, 152064, 128000, false),
    QWEN2_5_VL("qwen2.5-vl-32b-text", 32763876352, 5120, 64, 40, 8, 27648, 152064, 128000, false),
    QWEN2_5_VL("qwen2.5-vl-72b-text", 72706203648, 8192, 80, 64, 8, 29568, 152064, 128000, false),
};
/* clang-format on */

const struct family family_qwen2_5_vl = {
    .name = "qwen2_5_vl_text",
    .class_name = "Qwen2_5_VLForConditionalGeneration",
    .outer = "qwen2_5_vl",
    QWEN2_VL_ROW,
};
