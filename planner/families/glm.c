/* glm.c - GLM-4 of 2024: Llama with a fused feed-forward, and RoPE that turns neighbours in half of
 * each head. */
#include "families/glm.h"
#include "model/count.h"

static void build_hf_glm(struct graph *graph, const struct model_config *config,
                         const struct model_job *job)
{
    hf_decoder_build(graph, config, job, &(struct hf_decoder){HF_LLAMA_NORMS, HF_GLM_LAYER});
}

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(2),
    GLM_KEYS,
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* THUDM/glm-4-9b-hf, glm-4-9b-chat-hf. GlmForCausalLM. The same weights without -hf are of another
 * class, which comes with them. */
#define GLM(title, positions)                                                                      \
    {title, 9399951360,                                                                            \
     {GATED(ARCH_GLM, 4096, 40, 32, 2, 128, 13696, 151552, positions, 1.5625e-7F, 1e4F),           \
      .attention_bias = true, .rotary_dim = 64, .padding = 151329 + 1}}

static const struct model_preset presets[] = {
    GLM("glm-4-9b-hf",      8192),
    GLM("glm-4-9b-chat-hf", 131072),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_glm = {
    .name = "glm",
    .class_name = "GlmForCausalLM",
    .classifier = "GlmForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .parameters = count_llama,
    .padding = 151329 + 1,
    .code = CODE_HF,
    .traced = true,
    .builder = {[CODE_HF] = build_hf_glm},
};
