/* ministral.c - Ministral: Mistral with a window in layers that a list names, Qwen's way. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .masks_by_layer = true,
        .positions_first = true,
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    HEAD_DIM_KEY,
    LLAMA_KEYS(131072, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {WINDOW(RULE_VALUE)},
    LAYER_TYPES,
};

const struct family family_ministral = {
    .name = "ministral",
    .class_name = "MinistralForCausalLM",
    .classifier = "MinistralForSequenceClassification",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
