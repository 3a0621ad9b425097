/* paddleocr_vl.c - PaddleOCR-VL's text model: ERNIE 4.5's sizes, turned as Qwen2-VL's. */
#include "families/qwen_vl.h"
#include "model/count.h"

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(2),
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX), .null = RULE_HEAD_SIZE},
    {POSITIONS("max_position_embeddings", 131072)},
    EPS("rms_norm_eps", 1e-5),
    STD("initializer_range", 0.02),
    THETA("rope_theta", 5e5),
    {CHOICE("hidden_act", gated, "silu", key_silu_only)},
    {FLAG("use_bias", attention_bias, false)},
    {FLAG("use_bias", output_bias, false)},
    {FLAG("use_bias", mlp_bias, false)},
    TIED(true),
    {ALWAYS("mrope", grids)},
};

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){HF_QWEN_VL, .qk = HF_QK_NONE, .unplaced = true,
                                          .grids = HF_GRIDS_PARTS});
}

const struct family family_paddleocr_vl = {
    .name = "paddleocr_vl_text",
    .class_name = "PaddleOCRVLForConditionalGeneration",
    .block_class = "PaddleOCRDecoderLayer",
    .outer = "paddleocr_vl",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .rope_lacks = "{\"mrope_section\": [16, 24, 24]}",
    .padding = 0 + 1,
    .parameters = count_llama,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
