/* olmoe.c - OLMoE: Llama with norms on q and k and a mixture of experts. */
#include "families/olmo.h"
#include "model/count.h"
#include "model/experts.h"

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    {FIXED("head_dim", head_dim, RULE_HEAD_SIZE, HIDDEN_MAX)},
    LLAMA_KEYS(4096, 1e-5, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    EXPERTS("num_experts", "num_local_experts", 64, 8),
    {FLAG("norm_topk_prob", norm_topk, false)},
};

/* allenai/OLMoE-1B-7B-0924. OlmoeForCausalLM. */
static const struct model_preset presets[] = {
    {"olmoe-1b-7b",
     6919161856,
     {GATED(ARCH_OLMOE, 2048, 16, 16, 16, 128, 1024, 50304, 4096, 1e-5F, 1e4F), .experts = 64,
      .experts_per_token = 8}},
};

static const struct preset_alias aliases[] = {
    {"olmoe-1b-7b-0924", "olmoe-1b-7b"},
};

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .tables_first = true,
        .qk = HF_QK_WIDE,
        .moe = {.route = hf_route_qwen, .gate = hf_gate_halves, .router = "gate"},
    };
    hf_decoder_build(graph, config, job, &way);
}

const struct family family_olmoe = {
    .name = "olmoe",
    .class_name = "OlmoeForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .check = experts_check,
    .parameters = count_olmo,
    .padding = 1 + 1,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
