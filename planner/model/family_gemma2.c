/* family_gemma2.c - Gemma 2: norms before and behind attention and feed-forward, of factors 1 + w;
 * scores and logits are capped by tanh, which no attention kernel does; every second layer has a
 * window. */
#include "model/count.h"
#include "model/family_gemma.h"

static void build_hf_gemma2(struct graph *graph, const struct model_config *config,
                            const struct model_job *job)
{
    hf_decoder_build(graph, config, job, &(struct hf_decoder){HF_GEMMA_LAYER, .eager = true});
}

static const struct key keys[] = {
    SIZE_KEYS,
    GEMMA_KEYS(8192),
    THETA("rope_theta", 1e4),
    SOFTCAP("attn_logit_softcapping", attention_softcap, 50),
    SOFTCAP("final_logit_softcapping", logits_softcap, 30),
    WINDOW_PERIOD(2),
    LAYER_TYPES,
};

double count_gemma(const struct model_config *c)
{
    return count_llama(c) + 2.0 * c->layers * c->hidden;
}

const struct family family_gemma2 = {
    .name = "gemma2",
    .keys = KEY_TABLE(keys),
    .heads_divide_hidden = true,
    .rope = true,
    .parameters = count_gemma,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_gemma2},
};
