/* smollm3.c - SmolLM3: Llama where every fourth layer has no RoPE. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build_hf_smollm3(struct graph *graph, const struct model_config *config,
                             const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){HF_LLAMA_NORMS, .masks_by_layer = true});
}

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(4),
    HEAD_DIM_KEY,
    {POSITIONS("max_position_embeddings", 32768)},
    EPS("rms_norm_eps", 1e-6),
    STD("initializer_range", 0.02),
    THETA("rope_theta", 2e6),
    TIED(true),
    {CHOICE("hidden_act", gated, "silu", key_silu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {FLAG("mlp_bias", mlp_bias, false)},
    {COUNT("no_rope_layer_interval", plain_period, 4, LAYERS_MAX)},
    {LAYER_LIST("no_rope_layers", KEY_LAYERS, plain, key_rope_layers, RULE_NONE)},
    {ONLY("use_sliding_window", false)},
    LAYER_TYPES,
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* HuggingFaceTB/SmolLM3-3B. SmolLM3ForCausalLM. */
static const struct model_preset presets[] = {
    {"smollm3-3b", 3075098624,
     {GATED(ARCH_SMOLLM3, 2048, 36, 16, 4, 128, 11008, 128256, 65536, 1e-6F, 5e6F), .tied = true,
      .plain_period = 4}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"smollm3-3b-checkpoints", "smollm3-3b"},
};

const struct family family_smollm3 = {
    .name = "smollm3",
    .class_name = "SmolLM3ForCausalLM",
    .classifier = "SmolLM3ForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .parameters = count_llama,
    .padding = 128004 + 1,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_smollm3},
};
