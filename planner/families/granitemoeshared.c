/* granitemoeshared.c - Granite with a mixture of experts and a feed-forward beside it, which all
 * tokens pass. */
#include "families/granite.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .mlp = "block_sparse_moe",
        .mlp_last = true,
        .late_scale = true,
        .tables_first = true,
        .moe = {.route = hf_route_granite,
                .gate = hf_gate_halves,
                .router = "router",
                .when = HF_SHARED_BESIDE},
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    GRANITE_KEYS,
    EXPERTS("num_local_experts", "num_experts", 8, 2),
    {.name = "shared_intermediate_size",
     .type = KEY_INT,
     .max = FFN_MAX,
     AT(shared_ffn),
     .absent = RULE_VALUE},
};

const struct family family_granitemoeshared = {
    .name = "granitemoeshared",
    .class_name = "GraniteMoeSharedForCausalLM",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .check = experts_check,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
