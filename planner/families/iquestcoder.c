/* iquestcoder.c - IQuest-Coder: transformers runs Llama's code for it, with sizes of its own where
 * the file has none. */
#include "families/llama.h"
#include "hf/llama.h"
#include "model/count.h"

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX), .null = RULE_HEAD_SIZE},
    LLAMA_KEYS(131072, 1e-5, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {FLAG("mlp_bias", mlp_bias, false)},
    NEUTRAL("use_sliding_window", NO_NUMBER),
};

const struct family family_iquestcoder = {
    .name = "iquestcoder",
    .class_name = "LlamaForCausalLM",
    .keys = KEY_TABLE(keys),
    .heads_divide_hidden = true,
    .rope = true,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_llama},
};
