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

const struct family family_glm = {
    .name = "glm",
    .class_name = "GlmForCausalLM",
    .keys = KEY_TABLE(keys),
    .parameters = count_llama,
    .padding = 151329 + 1,
    .code = CODE_HF,
    .traced = true,
    .builder = {[CODE_HF] = build_hf_glm},
};
