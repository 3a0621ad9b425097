/* hyperclovax.c - HyperCLOVA X: Granite with norms also behind attention and feed-forward, and
 * logits that are multiplied. */
#include "families/granite.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    struct hf_decoder way = {HF_LLAMA_NORMS, .positions_first = true};
    if (config->post_norm) {
        way.norms[2].name = ".post_norm1";
        way.norms[2].at = HF_AFTER_ATTENTION;
        way.norms[3].name = ".post_norm2";
        way.norms[3].at = HF_AFTER_MLP;
    }
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    LLAMA_KEYS(2048, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {FLAG("mlp_bias", mlp_bias, false)},
    MULTIPLIER("embedding_multiplier", embedding_multiplier),
    {NUMBER("attention_multiplier", attention_multiplier, 0, 0, 1e9), .null = RULE_NONE},
    MULTIPLIER("residual_multiplier", residual_multiplier),
    MULTIPLIER("logits_scaling", logits_multiplier),
    {FLAG("use_post_norm", post_norm, true)},
};

static double parameters(const struct model_config *c)
{
    return count_llama(c) + (c->post_norm ? 2.0 * c->layers * c->hidden : 0);
}

const struct family family_hyperclovax = {
    .name = "hyperclovax",
    .class_name = "HyperCLOVAXForCausalLM",
    .keys = KEY_TABLE(keys),
    .heads_divide_hidden = true,
    .rope = true,
    .parameters = parameters,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
