/* qwen2_vl.c - Qwen2-VL's text model: Qwen2 with RoPE by places in three grids. */
#include "families/qwen_vl.h"
#include "model/count.h"

void build_hf_qwen2_vl(struct graph *graph, const struct model_config *config,
                       const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){HF_QWEN_VL, .qk = HF_QK_NONE, .masks_by_layer = true,
                                          .unplaced = true, .grids = HF_GRIDS_PARTS});
}

static const struct key keys[] = {
    QWEN2_VL_KEYS,
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* Text models of Qwen/Qwen2-VL-2B, -7B. Qwen2VLForConditionalGeneration without its tower. */
#define QWEN2_VL_2(...) QWEN2_VL(ARCH_QWEN2_VL, __VA_ARGS__)
static const struct model_preset presets[] = {
    QWEN2_VL_2("qwen2-vl-2b-text", 1543714304, 1536, 28, 12, 2, 8960,  151936, 32768, true),
    QWEN2_VL_2("qwen2-vl-7b-text", 7615616512, 3584, 28, 28, 4, 18944, 152064, 32768, false),
};
/* clang-format on */

const struct family family_qwen2_vl = {
    .name = "qwen2_vl_text",
    .class_name = "Qwen2VLForConditionalGeneration",
    .outer = "qwen2_vl",
    QWEN2_VL_ROW,
};
