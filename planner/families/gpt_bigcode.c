/* gpt_bigcode.c - GPT-BigCode (SantaCoder, StarCoder): GPT-2 by Linear, where all queries may share
 * one head of keys and values. */
#include "families/gpt2.h"
#include "hf/gpt2.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_gpt2 way = {
        .linear = true,
        .head_by_head = true,
        .triangle = true,
        .asks_first = true,
    };
    hf_gpt2_build(graph, config, job, &way);
}

static const struct key keys[] = {
    GPT2_KEYS("gelu_pytorch_tanh"),
    {FIXED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    {BOOL("multi_query", KEY_SHARED, true), AT(kv_heads)},
    {FIXED("head_dim", head_dim, RULE_HEAD_SIZE, HIDDEN_MAX)},
    {ONLY("add_cross_attention", false)},
    {ONLY("scale_attn_weights", true)},
};

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab, positions = c->max_positions;
    const double unshared = 2.0 * ((double)c->heads - c->kv_heads) * c->head_dim;
    return c->layers * (count_classic_block(c) - unshared * (h + 1)) + (v + positions) * h + 2 * h +
           (c->tied ? 0 : v * h);
}

const struct family family_gpt_bigcode = {
    .name = "gpt_bigcode",
    .class_name = "GPTBigCodeForCausalLM",
    .keys = KEY_TABLE(keys),
    .heads_divide_hidden = true,
    .learned_positions = true,
    .parameters = parameters,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
