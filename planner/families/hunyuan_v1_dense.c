/* hunyuan_v1_dense.c - Hunyuan: Llama with norms on each head of q and k behind RoPE. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .qk = HF_QK_AFTER,
        .q_norm = "query_layernorm",
        .k_norm = "key_layernorm",
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    LLAMA_KEYS(2048, 1e-5, 1e4),
    {NUMBER("rope_parameters.alpha", rope_alpha, 0, 0, 1e9)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    {ALWAYS("use_qk_norm", qk_norm)},
    ATTENTION_BIASES(false),
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* tencent/Hunyuan-0.5B-Pretrain, -1.8B-Instruct, -4B-Instruct, -7B-Instruct.
 * HunYuanDenseV1ForCausalLM. */
#define HUNYUAN(title, count, h, l, a, k, f, v, positions, pads, drop)                             \
    {title, count,                                                                                 \
     {GATED(ARCH_HUNYUAN_V1_DENSE, h, l, a, k, 128, f, v, positions, 1e-5F, 11158840),             \
      .tied = true, .qk_norm = true, .rope_alpha = 1000, .padding = pads + 1,                      \
      .attention_dropout = drop}}

static const struct model_preset presets[] = {
    HUNYUAN("hunyuan-0.5b", 539010048,  1024, 24, 16, 8, 3584,  120818, 262144, 120002, 0),
    HUNYUAN("hunyuan-1.8b", 1791080448, 2048, 32, 16, 4, 6144,  120818, 262144, 120002, 0),
    HUNYUAN("hunyuan-4b",   4221757440, 3072, 36, 32, 8, 8192,  120818, 262144, 120002, 0),
    HUNYUAN("hunyuan-7b",   7504568320, 4096, 32, 32, 8, 14336, 128167, 32768,  127961, 0.1F),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_hunyuan_v1_dense = {
    .name = "hunyuan_v1_dense",
    .class_name = "HunYuanDenseV1ForCausalLM",
    .classifier = "HunYuanDenseV1ForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .padding = 0 + 1,
    .parameters = count_llama,
    .code = CODE_HF,
    .traced = true,
    .builder = {[CODE_HF] = build},
};
