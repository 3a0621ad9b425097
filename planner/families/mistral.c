/* mistral.c - Mistral: Llama with a window. */
#include "families/llama.h"
#include "hf/llama.h"
#include "model/count.h"

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    HEAD_DIM_KEY,
    LLAMA_KEYS(131072, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {WINDOW(RULE_VALUE)},
    LAYER_TYPES,
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* Mistral: mistralai/Mistral-7B-v0.1 and -v0.3. MistralForCausalLM. */
#define MISTRAL(title, count, v, theta, window)                                                    \
    {title, count,                                                                                 \
     {GATED(ARCH_MISTRAL, 4096, 32, 32, 8, 128, 14336, v, 32768, 1e-5F, theta),                    \
      .sliding_window = window}}

static const struct model_preset presets[] = {
    MISTRAL("mistral-7b",      7241732096, 32000, 1e4F, 4096),
    MISTRAL("mistral-7b-v0.3", 7248023552, 32768, 1e6F, 0),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"mistral-7b-v0.1", "mistral-7b"},
};

const struct family family_mistral = {
    .name = "mistral",
    .class_name = "MistralForCausalLM",
    .part_absent =
        "{\"hidden_size\": 4096, \"num_hidden_layers\": 32, "
        "\"num_attention_heads\": 32, \"intermediate_size\": 14336, \"vocab_size\": 32000}",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_TORCHTITAN,
    .builder = {[CODE_TORCHTITAN] = build_llama, [CODE_HF] = build_hf_mistral},
};
