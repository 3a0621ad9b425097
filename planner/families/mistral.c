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

/* Mistral: mistralai/Mistral-7B-v0.1, -Instruct-v0.2 and -v0.3. MistralForCausalLM. */
#define MISTRAL(title, count, v, theta, window)                                                    \
    {title, count,                                                                                 \
     {GATED(ARCH_MISTRAL, 4096, 32, 32, 8, 128, 14336, v, 32768, 1e-5F, theta),                    \
      .sliding_window = window}}
/* mistralai/Mistral-Nemo-Base-2407, Mistral-Large-Instruct-2407, Magistral-Small-2506, the text
 * models of Mistral-Small-3.1-24B-Instruct-2503 and mistral-community/pixtral-12b: none has a window. */
#define LATER(title, count, h, l, a, f, v, positions, theta)                                       \
    {title, count, {GATED(ARCH_MISTRAL, h, l, a, 8, 128, f, v, positions, 1e-5F, theta)}}

static const struct model_preset presets[] = {
    MISTRAL("mistral-7b",      7241732096, 32000, 1e4F, 4096),
    MISTRAL("mistral-7b-v0.2", 7241732096, 32000, 1e6F, 0),
    MISTRAL("mistral-7b-v0.3", 7248023552, 32768, 1e6F, 0),
    MISTRAL("openhermes-2-mistral-7b", 7241748480, 32002, 1e4F, 4096), /* teknium's */
    LATER("mistral-nemo-12b",     12247782400,  5120,  40, 32, 14336, 131072, 128000, 1e6F),
    LATER("mistral-large-2407",   122610069504, 12288, 88, 96, 28672, 32768,  32768,  1e6F),
    LATER("magistral-small-2506", 23572403200,  5120,  40, 32, 32768, 131072, 40960,  1e9F),
    LATER("mistral-small-3.1-24b-2503-text", 23572403200, 5120, 40, 32, 32768, 131072, 131072, 1e9F),
    LATER("pixtral-12b-text",     12247782400,  5120,  40, 32, 14336, 131072, 1024000, 1e9F),
    {"ministral-8b-2410", 8019808256, /* mistralai/Ministral-8B-Instruct-2410 */
     {GATED(ARCH_MISTRAL, 4096, 36, 32, 8, 128, 12288, 131072, 32768, 1e-5F, 1e8F),
      .sliding_window = 32768, .windows = {true, {0xeeeeeeee, 0xe}}}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"mistral-7b-v0.1", "mistral-7b"},
    {"zephyr-7b-alpha", "mistral-7b"},
    {"zephyr-7b-beta", "mistral-7b"},
    {"zephyr-7b-sft-full", "mistral-7b"},
    {"mistral-7b-sft-beta", "mistral-7b"},
    {"mistral-7b-sft-constitutional-ai", "mistral-7b"},
    {"openhermes-2.5-mistral-7b", "openhermes-2-mistral-7b"},
    {"mistral-7b-openorca", "openhermes-2-mistral-7b"},
    {"mistral-nemo-2407", "mistral-nemo-12b"},
    {"devstral-small-2505", "mistral-small-3.1-24b-2503-text"}, /* they do not see */
    {"devstral-small-2507", "mistral-small-3.1-24b-2503-text"},
    {"magistral-small-2507", "magistral-small-2506"},
    {"mistral-small-3.2-24b-2506-text", "mistral-small-3.1-24b-2503-text"},
    {"magistral-small-2509-text", "mistral-small-3.1-24b-2503-text"},
};

const struct family family_mistral = {
    .name = "mistral",
    .class_name = "MistralForCausalLM",
    .classifier = "MistralForSequenceClassification",
    .part_absent =
        "{\"hidden_size\": 4096, \"num_hidden_layers\": 32, "
        "\"num_attention_heads\": 32, \"intermediate_size\": 14336, \"vocab_size\": 32000}",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .seeing = "mistral3",
    ALIASES(aliases),
    .rope = true,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_TORCHTITAN,
    .builder = {[CODE_TORCHTITAN] = build_llama, [CODE_HF] = build_hf_mistral},
};
