/* family_granite.c - Granite 3: Llama with numbers by which the embedding, attention's scores, what
 * is added to the residual, and (as a divisor) the logits are scaled. */
#include "model/count.h"
#include "model/family_llama.h"
#include "model/hf_decoder.h"

static void build_hf_granite(struct graph *graph, const struct model_config *config,
                             const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){HF_LLAMA_NORMS, .positions_first = true});
}

#define MULTIPLIER(key, member)                                                                    \
    {                                                                                              \
        NUMBER(key, member, 1, 1e-9, 1e9)                                                          \
    }

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    LLAMA_KEYS(2048, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("attention_bias", attention_bias, false)},
    {FLAG("attention_bias", output_bias, false)},
    {FLAG("mlp_bias", mlp_bias, false)},
    MULTIPLIER("embedding_multiplier", embedding_multiplier),
    MULTIPLIER("attention_multiplier", attention_multiplier),
    MULTIPLIER("residual_multiplier", residual_multiplier),
    MULTIPLIER("logits_scaling", logits_scaling),
};

const struct family family_granite = {
    .name = "granite",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .parameters = count_llama,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_granite},
};
