/* llama.c - Llama 2 and 3. */
#include "families/llama.h"
#include "hf/llama.h"
#include "model/count.h"

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    LLAMA_KEYS(2048, 1e-6, 1e4),
    {NUMBER("attention_dropout", attention_dropout, 0, 0, 1), .null = RULE_VALUE},
    ATTENTION_BIASES(false),
    {FLAG("mlp_bias", mlp_bias, false)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* Llama 2, 3, 3.1, 3.2, 3.3: meta-llama/Llama-2-7b-hf, Meta-Llama-3-8B, Llama-3.1-8B, ...
 * LlamaForCausalLM. The 405B is the later upload with 8 key/value heads. */
#define LLAMA2(title, count, h, l, a, k, f)                                                        \
    {title, count, {GATED(ARCH_LLAMA, h, l, a, k, 128, f, 32000, 4096, 1e-5F, 1e4F)}}
#define LLAMA3(title, count, h, l, a, f)                                                           \
    {title, count, {GATED(ARCH_LLAMA, h, l, a, 8, 128, f, 128256, 8192, 1e-5F, 5e5F)}}
/* From 3.1 on, made for 8,192 positions and stretched. */
#define LLAMA31(title, count, h, l, a, d, f, shared, by)                                           \
    {title, count,                                                                                 \
     {GATED(ARCH_LLAMA, h, l, a, 8, d, f, 128256, 131072, 1e-5F, 5e5F), .tied = shared,            \
      .rope.scaling = ROPE_LLAMA3, .rope.factor = by, .rope.original_positions = 8192,             \
      .rope.low_freq_factor = 1, .rope.high_freq_factor = 4}}

static const struct model_preset presets[] = {
    LLAMA2("llama-2-7b",  6738415616,  4096, 32, 32, 32, 11008),
    LLAMA2("llama-2-13b", 13015864320, 5120, 40, 40, 40, 13824),
    LLAMA2("llama-2-70b", 68976648192, 8192, 80, 64, 8,  28672),
    LLAMA3("llama-3-8b",      8030261248,   4096,  32,  32,  14336),
    LLAMA3("llama-3-70b",     70553706496,  8192,  80,  64,  28672),
    LLAMA31("llama-3.1-8b",   8030261248,   4096,  32,  32,  128, 14336, false, 8),
    LLAMA31("llama-3.1-70b",  70553706496,  8192,  80,  64,  128, 28672, false, 8),
    LLAMA31("llama-3.1-405b", 405853388800, 16384, 126, 128, 128, 53248, false, 8),
    LLAMA31("llama-3.2-1b",   1235814400,   2048,  16,  32,  64,  8192,  true,  32),
    LLAMA31("llama-3.2-3b",   3212749824,   3072,  28,  24,  128, 8192,  true,  32),
    LLAMA31("llama-3.3-70b",  70553706496,  8192,  80,  64,  128, 28672, false, 8),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"meta-llama-3-8b", "llama-3-8b"},         {"meta-llama-3-70b", "llama-3-70b"},
    {"meta-llama-3.1-8b", "llama-3.1-8b"},     {"meta-llama-3.1-70b", "llama-3.1-70b"},
    {"meta-llama-3.1-405b", "llama-3.1-405b"},
};

const struct family family_llama = {
    .name = "llama",
    .class_name = "LlamaForCausalLM",
    .part_absent =
        "{\"hidden_size\": 4096, \"num_hidden_layers\": 32, "
        "\"num_attention_heads\": 32, \"intermediate_size\": 11008, \"vocab_size\": 32000}",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .heads_divide_hidden = true,
    .rope = true,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_TORCHTITAN,
    .builder = {[CODE_TORCHTITAN] = build_llama, [CODE_HF] = build_hf_llama},
};
