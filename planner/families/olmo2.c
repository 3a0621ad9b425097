/* olmo2.c - OLMo 2: Llama with norms behind attention and feed-forward instead of before them, and
 * one over all heads of q and of k. */
#include "families/olmo.h"
#include "model/count.h"

static void build_hf_olmo2(struct graph *graph, const struct model_config *config,
                           const struct model_job *job)
{
    hf_decoder_build(graph, config, job, &(struct hf_decoder){HF_OLMO_LAYER});
}

static const struct key keys[] = {
    OLMO_KEYS,
    THETA("rope_theta", 1e4),
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* OLMo 2: allenai/OLMo-2-0425-1B, OLMo-2-1124-7B, -13B, OLMo-2-0325-32B. Olmo2ForCausalLM. */
#define OLMO2(title, count, h, l, a, k, f)                                                         \
    {title, count, {GATED(ARCH_OLMO2, h, l, a, k, 128, f, 100352, 4096, 1e-6F, 5e5F)}}

static const struct model_preset presets[] = {
    OLMO2("olmo-2-1b",  1484916736,  2048, 16, 16, 16, 8192),
    OLMO2("olmo-2-7b",  7298617344,  4096, 32, 32, 32, 11008),
    OLMO2("olmo-2-13b", 13716198400, 5120, 40, 40, 40, 13824),
    OLMO2("olmo-2-32b", 32234279936, 5120, 64, 40, 8,  27648),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"olmo-2-0425-1b", "olmo-2-1b"},
    {"olmo-2-1124-7b", "olmo-2-7b"},
    {"olmo-2-1124-13b", "olmo-2-13b"},
    {"olmo-2-0325-32b", "olmo-2-32b"},
};

double count_olmo(const struct model_config *c)
{
    return count_llama(c) + (double)c->layers * ((double)c->heads + c->kv_heads) * c->head_dim;
}

const struct family family_olmo2 = {
    .name = "olmo2",
    .class_name = "Olmo2ForCausalLM",
    .classifier = "Olmo2ForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .parameters = count_olmo,
    .padding = 1 + 1,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_olmo2},
};
