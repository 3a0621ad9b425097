/* mixtral.c - Mixtral: Mistral with a mixture of experts for its feed-forward. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    HEAD_DIM_KEY,
    LLAMA_KEYS(131072, 1e-5, 1e6),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {WINDOW(RULE_NONE)},
    EXPERTS("num_local_experts", "num_experts", 8, 2),
    {ALWAYS("norm_topk_prob", norm_topk)},
    NEUTRAL("router_jitter_noise", 0),
};

/* mistralai/Mixtral-8x7B-v0.1, -8x22B-v0.1, -8x22B-Instruct-v0.1, which has more tokens.
 * MixtralForCausalLM. */
static const struct model_preset presets[] = {
    {"mixtral-8x7b",
     46702792704,
     {GATED(ARCH_MIXTRAL, 4096, 32, 32, 8, 128, 14336, 32000, 32768, 1e-5F, 1e6F), .experts = 8,
      .experts_per_token = 2, .norm_topk = true}},
    {"mixtral-8x22b",
     140620634112,
     {GATED(ARCH_MIXTRAL, 6144, 56, 48, 8, 128, 16384, 32000, 65536, 1e-5F, 1e6F), .experts = 8,
      .experts_per_token = 2, .norm_topk = true}},
    {"mixtral-8x22b-instruct",
     140630071296,
     {GATED(ARCH_MIXTRAL, 6144, 56, 48, 8, 128, 16384, 32768, 65536, 1e-5F, 1e6F), .experts = 8,
      .experts_per_token = 2, .norm_topk = true}},
};

static const struct preset_alias aliases[] = {
    {"mixtral-8x7b-v0.1", "mixtral-8x7b"},
    {"mixtral-8x22b-v0.1", "mixtral-8x22b"},
    {"mixtral-8x22b-instruct-v0.1", "mixtral-8x22b-instruct"},
};

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .positions_first = true,
        HF_LLAMA_NORMS,
        .moe = {.route = hf_route_mixtral,
                .gate = hf_gate_halves,
                .router = "gate",
                .leaf = "MixtralSparseMoeBlock"},
    };
    hf_decoder_build(graph, config, job, &way);
}

const struct family family_mixtral = {
    .name = "mixtral",
    .class_name = "MixtralForCausalLM",
    .classifier = "MixtralForSequenceClassification",
    .part_absent =
        "{\"hidden_size\": 4096, \"num_hidden_layers\": 32, "
        "\"num_attention_heads\": 32, \"intermediate_size\": 14336, \"vocab_size\": 32000}",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .check = experts_check,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
