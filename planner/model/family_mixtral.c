/* family_mixtral.c - Mixtral: Mistral with a mixture of experts for its feed-forward. */
#include "model/count.h"
#include "model/family_llama.h"

static const struct choice experts_ways[] = {
    {"grouped_mm", NULL, false}, {"batched_mm", NULL, true}, {NULL, NULL, false}};

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    HEAD_DIM_KEY,
    LLAMA_KEYS(131072, 1e-5, 1e6),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {WINDOW(RULE_NONE)},
    {COUNT("num_local_experts", experts, 8, EXPERTS_MAX), .other = "num_experts"},
    {COUNT("num_experts_per_tok", experts_per_token, 2, EXPERTS_MAX)},
    {CHOICE("experts_implementation", batched_experts, "grouped_mm", experts_ways)},
    NEUTRAL("router_jitter_noise", 0),
    {ONLY("output_router_logits", false)},
};

/* mistralai/Mixtral-8x7B-v0.1. MixtralForCausalLM. */
static const struct model_preset presets[] = {
    {"mixtral-8x7b",
     46702792704,
     {GATED(ARCH_MIXTRAL, 4096, 32, 32, 8, 128, 14336, 32000, 32768, 1e-5F, 1e6F), .experts = 8,
      .experts_per_token = 2}},
};

static const struct preset_alias aliases[] = {
    {"mixtral-8x7b-v0.1", "mixtral-8x7b"},
};

enum { LAYERS_TIMES_EXPERTS_MAX = 1 << 17 }; /* each is some ops of the graph */

static enum err_code check_experts(const struct model_config *c, const char *where, struct err *err)
{
    const struct key_table *table = &family_mixtral.keys;
    if (c->experts_per_token > c->experts)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u is more than \"%s\": %u", where,
                       NAME_OF(table, experts_per_token), c->experts_per_token,
                       NAME_OF(table, experts), c->experts);
    if ((uint64_t)c->experts * c->layers > LAYERS_TIMES_EXPERTS_MAX)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u times \"%s\": %u is more than %d", where,
                       NAME_OF(table, experts), c->experts, NAME_OF(table, layers), c->layers,
                       LAYERS_TIMES_EXPERTS_MAX);
    return ERR_OK;
}

const struct family family_mixtral = {
    .name = "mixtral",
    .class_name = "MixtralForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .check = check_experts,
    .parameters = count_llama,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_mistral},
};
