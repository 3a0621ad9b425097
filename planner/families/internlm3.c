/* internlm3.c - InternLM 3: transformers runs Llama's code for it; two keys have its names. */
#include "families/llama.h"
#include "hf/llama.h"
#include "model/count.h"

/* Biases of q, k, v and of what follows them, and of the feed-forward, are the same or refused. */
static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(2),
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX), .null = RULE_HEAD_SIZE},
    LLAMA_KEYS(32768, 1e-5, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("qkv_bias", attention_bias, false), .other = "attention_bias"},
    {FLAG("qkv_bias", output_bias, false), .other = "attention_bias"},
    {FLAG("bias", mlp_bias, false), .other = "mlp_bias"},
};

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    (void)table;
    if (c->attention_bias == c->mlp_bias)
        return ERR_OK;
    return err_set(err, ERR_INVALID,
                   "%s: \"qkv_bias\" and \"bias\" differ, which transformers' class refuses, too",
                   where);
}

const struct family family_internlm3 = {
    .name = "internlm3",
    .class_name = "LlamaForCausalLM",
    .keys = KEY_TABLE(keys),
    .heads_divide_hidden = true,
    .rope = true,
    .padding = 2 + 1,
    .check = check,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_llama},
};
