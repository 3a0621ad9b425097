/* flex_olmo.c - FlexOlmo: OLMo 2 with OLMoE's mixture of experts. */
#include "families/olmo.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_OLMO_LAYER,
        .tables_first = true,
        .moe = {.route = hf_route_qwen, .gate = hf_gate_halves, .router = "gate"},
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    LLAMA_KEYS(4096, 1e-6, 5e5),
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    EXPERTS("num_experts", "num_local_experts", 7, 5),
    {FLAG("norm_topk_prob", norm_topk, false)},
};

const struct family family_flex_olmo = {
    .name = "flex_olmo",
    .class_name = "FlexOlmoForCausalLM",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .check = experts_check,
    .padding = 100277 + 1,
    .parameters = count_olmo,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
