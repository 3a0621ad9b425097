/* jais2.c - Jais 2: Llama with LayerNorms, biases, and a feed-forward that has no gate and squares
 * what is positive. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .norm = apply_norm,
        HF_NORM_NAMES,
        .biased_norms = true,
        .up = "up_proj",
        .down = "down_proj",
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    {POSITIONS("max_position_embeddings", 8192)},
    EPS("layer_norm_eps", 1e-5),
    STD("initializer_range", 0.02),
    THETA("rope_theta", 1e4),
    TIED(false),
    {CHOICE("hidden_act", gated, "relu2", key_squared_relu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(true),
    {FLAG("mlp_bias", mlp_bias, true)},
};

const struct family family_jais2 = {
    .name = "jais2",
    .class_name = "Jais2ForCausalLM",
    .keys = KEY_TABLE(keys),
    .heads_divide_hidden = true,
    .rope = true,
    .parameters = count_ungated_biased,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
