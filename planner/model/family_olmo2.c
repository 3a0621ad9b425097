/* family_olmo2.c - OLMo 2: Llama with norms behind attention and feed-forward instead of before
 * them, and one over all heads of q and of k. */
#include "model/count.h"
#include "model/family_olmo.h"

static void build_hf_olmo2(struct graph *graph, const struct model_config *config,
                           const struct model_job *job)
{
    hf_decoder_build(graph, config, job, &(struct hf_decoder){HF_OLMO_LAYER});
}

static const struct key keys[] = {
    OLMO_KEYS,
    THETA("rope_theta", 1e4),
};

double count_olmo(const struct model_config *c)
{
    return count_llama(c) + (double)c->layers * ((double)c->heads + c->kv_heads) * c->head_dim;
}

const struct family family_olmo2 = {
    .name = "olmo2",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .parameters = count_olmo,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_olmo2},
};
