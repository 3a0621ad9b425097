/* eurobert.c - EuroBERT: Llama whose tokens see all others, with a masked language model's head,
 * which has a bias where the feed-forward has. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){
                         HF_LLAMA_NORMS,
                         .encoder = true,
                         .biased_head = config->mlp_bias,
                     });
}

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    LLAMA_KEYS(8192, 1e-5, 1e4),
    ATTENTION_BIASES(false),
    {FLAG("mlp_bias", mlp_bias, false)},
    DROPOUT("attention_dropout", attention_dropout, 0),
};

static double parameters(const struct model_config *c)
{
    return count_llama(c) + (c->mlp_bias ? c->vocab : 0);
}

const struct family family_eurobert = {
    .name = "eurobert",
    .class_name = "EuroBertForMaskedLM",
    .keys = KEY_TABLE(keys),
    .encoder = true,
    .heads_divide_hidden = true,
    .rope = true,
    .parameters = parameters,
    .padding = 128001 + 1,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
