/* arcee.c - Arcee's AFM: Llama whose feed-forward has no gate and squares what is positive. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .up = "up_proj",
        .down = "down_proj",
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    {POSITIONS("max_position_embeddings", 4096)},
    EPS("rms_norm_eps", 1e-5),
    STD("initializer_range", 0.02),
    THETA("rope_theta", 1e4),
    TIED(false),
    {CHOICE("hidden_act", gated, "relu2", key_squared_relu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {FLAG("mlp_bias", mlp_bias, false)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* arcee-ai/AFM-4.5B, -Base. ArceeForCausalLM. */
#define AFM(title, count, v)                                                                       \
    {title, count,                                                                                 \
     {STRETCHED(ARCH_ARCEE, 2560, 36, 20, 4, 128, 18432, v, 65536, 1e-5F, 1e4F, 1.29957323F),      \
      .activation = "relu2", .rope.scaling = ROPE_YARN, .rope.factor = 20, .rope.beta_fast = 32,   \
      .rope.beta_slow = 1, .rope.truncate = true, .rope.original_positions = 4096}}

static const struct model_preset presets[] = {
    AFM("afm-4.5b",      4619189760, 128005),
    AFM("afm-4.5b-base", 4619184640, 128004),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_arcee = {
    .name = "arcee",
    .class_name = "ArceeForCausalLM",
    .classifier = "ArceeForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .heads_divide_hidden = true,
    .parameters = count_ungated,
    .code = CODE_HF,
    .traced = true,
    .builder = {[CODE_HF] = build},
};
