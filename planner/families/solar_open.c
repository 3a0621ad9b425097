/* solar_open.c - Solar Open: Llama's attention with DeepSeek-V3's mixture of experts in every
 * layer. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {HF_LLAMA_NORMS, .tables_first = true,
                                          .moe = HF_DEEPSEEK_V3_MOE(HF_CORRECTION_FP32)};
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SHAPE_KEYS,
    {SIZE("num_attention_heads", heads, HEADS_MAX)},
    {COUNT("moe_intermediate_size", ffn, 1280, FFN_MAX)},
    KV_HEADS(8),
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX)},
    LLAMA_KEYS(131072, 1e-5, 1e6),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("attention_bias", attention_bias, false)},
    EXPERTS("n_routed_experts", "num_local_experts", 128, 8),
    EXPERT_GROUPS(1, 1, 1),
    {COUNT("n_shared_experts", shared_experts, 1, EXPERTS_MAX)},
    {FLAG("norm_topk_prob", norm_topk, true)},
};

const struct family family_solar_open = {
    .name = "solar_open",
    .class_name = "SolarOpenForCausalLM",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .check = experts_check_groups,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
