/* exaone4.c - EXAONE 4: Llama with norms behind attention and feed-forward and on each head of q
 * and k; of some layers the last has no window, and then no RoPE. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .norm = hf_rms_norm,
        .norms = {{".post_attention_layernorm", HF_AFTER_ATTENTION},
                  {".post_feedforward_layernorm", HF_AFTER_MLP}},
        .qk = HF_QK_TURNED,
        .window_rope = true,
        .masks_by_layer = true,
        .positions_first = true,
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    {COUNT("num_key_value_heads", kv_heads, 32, HEADS_MAX)},
    HEAD_DIM_KEY,
    LLAMA_KEYS(2048, 1e-5, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {ALWAYS("use_qk_norm", qk_norm)},
    {WINDOW(RULE_VALUE)},
    {COUNT("sliding_window_pattern", window_period, 4, LAYERS_MAX), .null = RULE_NONE},
    LAYER_TYPES,
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* LGAI-EXAONE/EXAONE-4.0-32B. Exaone4ForCausalLM. */
static const struct model_preset presets[] = {
    {"exaone-4.0-32b", 32003216384,
     {GATED(ARCH_EXAONE4, 5120, 64, 40, 8, 128, 27392, 102400, 131072, 1e-5F, 1e6F),
      .qk_norm = true, .sliding_window = 4096, .window_period = 4, .rope.scaling = ROPE_LLAMA3,
      .rope.factor = 16, .rope.low_freq_factor = 1, .rope.high_freq_factor = 4,
      .rope.original_positions = 8192}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_exaone4 = {
    .name = "exaone4",
    .class_name = "Exaone4ForCausalLM",
    .kin = "exaone4_5_text",
    .classifier = "Exaone4ForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
