/* cwm.c - Code World Model: Llama where the first of four layers sees all tokens, the others a
 * window. */
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

/* Which layers those are is a list in every file; no other key says it. */
static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX), .null = RULE_HEAD_SIZE},
    LLAMA_KEYS(131072, 1e-5, 1e6),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("mlp_bias", mlp_bias, false)},
    {SIZE("sliding_window", sliding_window, POSITIONS_MAX), .absent = RULE_VALUE, .value = 8192},
    {LAYER_LIST("layer_types", KEY_WINDOWS, windows, key_window_layers, RULE_REFUSED)},
};

const struct family family_cwm = {
    .name = "cwm",
    .class_name = "CwmForCausalLM",
    .keys = KEY_TABLE(keys),
    .heads_divide_hidden = true,
    .rope = true,
    .rope_absent = "{\"rope_type\": \"llama3\", \"rope_theta\": 1000000.0, \"factor\": 16.0, "
                   "\"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0, "
                   "\"original_max_position_embeddings\": 8192}",
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
