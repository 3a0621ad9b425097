/* nemotron.c - Nemotron: Llama with LayerNorms of 1 + weight, RoPE on the first half of each head,
 * and a feed-forward that has no gate and squares what is positive. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .norm = hf_layer_norm_plus_one,
        HF_NORM_NAMES,
        .biased_norms = true,
        .rotary = HF_ROTARY_LAST,
        .up = "up_proj",
        .down = "down_proj",
        .positions_first = true,
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    {POSITIONS("max_position_embeddings", 4096)},
    EPS("norm_eps", 1e-5),
    STD("initializer_range", 0.0134),
    THETA("rope_theta", 1e4),
    PARTIAL_ROTARY(0.5),
    TIED(false),
    {CHOICE("hidden_act", gated, "relu2", key_squared_relu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {FLAG("mlp_bias", mlp_bias, false)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* nvidia/Minitron-4B-Base. NemotronForCausalLM. */
#define NEMOTRON(title, count, h, a, k, f, std)                                                    \
    {title, count,                                                                                 \
     {DRAWN(ARCH_NEMOTRON, h, 32, a, k, 128, f, 256000, 4096, 1e-5F, 1e4F, 1, std),                \
      .activation = "relu2", .rotary_dim = 64}}

static const struct model_preset presets[] = {
    NEMOTRON("minitron-4b",   4190509056, 3072, 24, 8,  9216,  0.0134F),
    NEMOTRON("nemotron-3-8b", 8540135424, 4096, 32, 32, 16384, 0.01F),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"nemotron-mini-4b", "minitron-4b"},
    {"nemotron-4-mini-hindi-4b", "minitron-4b"},
    {"nemotron-3-8b-base-4k", "nemotron-3-8b"},
    {"nemotron3-8b", "nemotron-3-8b"},
};

const struct family family_nemotron = {
    .name = "nemotron",
    .class_name = "NemotronForCausalLM",
    .classifier = "NemotronForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .parameters = count_ungated_biased,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
