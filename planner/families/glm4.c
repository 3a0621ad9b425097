/* glm4.c - GLM-4-0414: GLM with norms behind attention and feed-forward, too. */
#include "families/glm.h"
#include "model/count.h"

static void build_hf_glm4(struct graph *graph, const struct model_config *config,
                          const struct model_job *job)
{
    hf_decoder_build(graph, config, job, &(struct hf_decoder){HF_GLM_LAYER, HF_GLM4_NORMS});
}

static const struct key keys[] = {
    SIZE_KEYS,
    {COUNT("num_key_value_heads", kv_heads, 2, HEADS_MAX)},
    GLM_KEYS,
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* THUDM/GLM-4-9B-0414. Glm4ForCausalLM. */
#define GLM4(title, count, h, l, a, k, f, positions, biased)                                       \
    {title, count,                                                                                 \
     {GATED(ARCH_GLM4, h, l, a, k, 128, f, 151552, positions, 1e-5F, 1e4F),                        \
      .attention_bias = biased, .rotary_dim = 64, .padding = 151329 + 1}}

static const struct model_preset presets[] = {
    GLM4("glm-4-9b-0414",               9400279040,  4096, 40, 32, 2, 13696, 32768,  true),
    GLM4("glm-4-32b-0414",              32566081536, 6144, 61, 48, 2, 23040, 32768,  false),
    GLM4("glm-z1-rumination-32b-0414",  33141749760, 6144, 61, 48, 8, 23040, 131072, false),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"glm-z1-9b-0414", "glm-4-9b-0414"},
};

double count_glm4(const struct model_config *c)
{
    return count_llama(c) + 2.0 * c->layers * c->hidden;
}

const struct family family_glm4 = {
    .name = "glm4",
    .class_name = "Glm4ForCausalLM",
    .classifier = "Glm4ForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .parameters = count_glm4,
    .padding = 151329 + 1,
    .code = CODE_HF,
    .traced = true,
    .builder = {[CODE_HF] = build_hf_glm4},
};
