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

const struct family family_hunyuan_v1_dense = {
    .name = "hunyuan_v1_dense",
    .class_name = "HunYuanDenseV1ForCausalLM",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .padding = 0 + 1,
    .parameters = count_llama,
    .code = CODE_HF,
    .traced = true,
    .builder = {[CODE_HF] = build},
};
