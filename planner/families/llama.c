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

/* Others' of the same class. */
#define LLAMA(title, count, h, l, a, k, d, f, v, positions, eps, base, shared)                     \
    {title, count, {GATED(ARCH_LLAMA, h, l, a, k, d, f, v, positions, eps, base), .tied = shared}}
/* The first: huggyllama/llama-7b, -13b, -30b, -65b; openlm-research/open_llama_3b, _7b, _13b. */
#define LLAMA1(title, count, h, l, a, f, eps)                                                      \
    LLAMA(title, count, h, l, a, a, h / a, f, 32000, 2048, eps, 1e4F, false)
/* codellama/CodeLlama-7b-hf, ... */
#define CODE_LLAMA(title, count, h, l, a, k, f, v, positions, base)                                \
    LLAMA(title, count, h, l, a, k, 128, f, v, positions, 1e-5F, base, false)
/* HuggingFaceTB/SmolLM-135M, SmolLM2-135M, ... */
#define SMOL(title, count, h, l, a, k, f, positions, base, std)                                    \
    {title, count,                                                                                 \
     {DRAWN(ARCH_LLAMA, h, l, a, k, 64, f, 49152, positions, 1e-5F, base, 1, std),                 \
      .activation = "silu", .tied = true}}
/* tiiuae/Falcon3-1B-Base, ...; the text models of llava-hf/llava-1.5-7b-hf, -13b-hf and of
 * HuggingFaceTB/SmolVLM2-2.2B-Instruct, SmolVLM-500M-Instruct, -256M-Instruct. */
#define FALCON3(title, count, h, l, a, f, positions)                                               \
    LLAMA(title, count, h, l, a, 4, 256, f, 131072, positions, 1e-6F, 1000042, false)

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
    LLAMA1("llama-7b",        6738415616,  4096, 32, 32, 11008, 1e-6F),
    LLAMA1("llama-13b",       13015864320, 5120, 40, 40, 13824, 1e-6F),
    LLAMA1("llama-30b",       32528943616, 6656, 60, 52, 17920, 1e-6F),
    LLAMA1("llama-65b",       65285660672, 8192, 80, 64, 22016, 1e-5F),
    LLAMA1("open-llama-3b",   3426473600,  3200, 26, 32, 8640,  1e-6F),
    LLAMA1("open-llama-7b",   6738415616,  4096, 32, 32, 11008, 1e-6F),
    LLAMA1("open-llama-13b",  13015864320, 5120, 40, 40, 13824, 1e-6F),
    CODE_LLAMA("codellama-7b",           6738546688,  4096, 32, 32, 32, 11008, 32016, 16384, 1e6F),
    CODE_LLAMA("codellama-7b-python",    6738415616,  4096, 32, 32, 32, 11008, 32000, 16384, 1e6F),
    CODE_LLAMA("codellama-13b",          13016028160, 5120, 40, 40, 40, 13824, 32016, 16384, 1e6F),
    CODE_LLAMA("codellama-13b-python",   13015864320, 5120, 40, 40, 40, 13824, 32000, 16384, 1e6F),
    CODE_LLAMA("codellama-34b",          33743970304, 8192, 48, 64, 8,  22016, 32000, 16384, 1e6F),
    CODE_LLAMA("codellama-70b",          68976910336, 8192, 80, 64, 8,  28672, 32016, 16384, 1e6F),
    CODE_LLAMA("codellama-70b-instruct", 68976910336, 8192, 80, 64, 8,  28672, 32016, 4096,  1e4F),
    LLAMA("tinyllama-1.1b", 1100048384,  2048, 22, 32, 4,  64,  5632,  32000,  2048, 1e-5F, 1e4F, false),
    SMOL("smollm-135m",  134515008,  576,  30, 9,  3,  1536, 2048, 1e4F,   0.02F),
    SMOL("smollm-360m",  361821120,  960,  32, 15, 5,  2560, 2048, 1e4F,   0.02F),
    SMOL("smollm-1.7b",  1711376384, 2048, 24, 32, 32, 8192, 2048, 1e4F,   0.02F),
    SMOL("smollm2-135m", 134515008,  576,  30, 9,  3,  1536, 8192, 1e5F,   0.0416666667F),
    SMOL("smollm2-360m", 361821120,  960,  32, 15, 5,  2560, 8192, 1e5F,   0.02F),
    SMOL("smollm2-1.7b", 1711376384, 2048, 24, 32, 32, 8192, 8192, 1.3e5F, 0.02F),
    FALCON3("falcon3-1b",  1669408768,  2048, 18, 8,  8192,  4096),
    FALCON3("falcon3-3b",  3227655168,  3072, 22, 12, 9216,  32768),
    FALCON3("falcon3-7b",  7455550464,  3072, 28, 12, 23040, 32768),
    FALCON3("falcon3-10b", 10305653760, 3072, 40, 12, 23040, 32768),
    LLAMA("yi-6b",         6061035520,  4096, 32, 32, 4,  128, 11008, 64000,  4096, 1e-5F, 5e6F, false),
    LLAMA("yi-34b",        34388917248, 7168, 60, 56, 8,  128, 20480, 64000,  4096, 1e-5F, 5e6F, false),
    LLAMA("salamandra-2b", 2253490176,  2048, 24, 16, 16, 128, 5440,  256000, 8192, 1e-5F, 1e4F, false),
    LLAMA("salamandra-7b", 7768117248,  4096, 32, 32, 8,  128, 11008, 256000, 8192, 1e-6F, 1e4F, false),
    LLAMA("llava-1.5-7b-text",        6738939904,  4096, 32, 32, 32, 128, 11008, 32064, 4096,  1e-5F, 1e4F, false),
    LLAMA("llava-1.5-13b-text",       13016519680, 5120, 40, 40, 40, 128, 13824, 32064, 4096,  1e-5F, 1e4F, false),
    LLAMA("smolvlm2-256m-video-text", 162974016,   576,  30, 9,  3,  64,  1536,  49280, 8192,  1e-5F, 1e5F, false),
    LLAMA("smolvlm2-500m-video-text", 409252800,   960,  32, 15, 5,  64,  2560,  49280, 8192,  1e-5F, 1e5F, false),
    LLAMA("smolvlm2-2.2b-text",       1812563968,  2048, 24, 32, 32, 64,  8192,  49280, 8192,  1e-5F, 273768, false),
    {"deepseek-coder-1.3b", 1346471936,
     {GATED(ARCH_LLAMA, 2048, 24, 16, 16, 128, 5504, 32256, 16384, 1e-6F, 1e5F),
      .rope.scaling = ROPE_LINEAR, .rope.factor = 4}},
    {"hyperclovax-seed-text-0.5b", 566281216,
     {GATED(ARCH_LLAMA, 1024, 24, 16, 8, 128, 4096, 110592, 8192, 1e-5F, 5e5F), .tied = true,
      .padding = 100257 + 1}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"meta-llama-3-8b", "llama-3-8b"},
    {"meta-llama-3-70b", "llama-3-70b"},
    {"meta-llama-3.1-8b", "llama-3.1-8b"},
    {"meta-llama-3.1-70b", "llama-3.1-70b"},
    {"meta-llama-3.1-405b", "llama-3.1-405b"},
    {"deepseek-r1-distill-llama-8b", "llama-3.1-8b"},
    {"deepseek-r1-distill-llama-70b", "llama-3.3-70b"},
    {"sparse-llama-3.1-8b-2of4", "llama-3.1-8b"},
    {"llama-3.1-nemotron-nano-8b-v1", "llama-3.1-8b"},
    {"llama-3.1-nemotron-70b", "llama-3.1-70b"},
    {"vicuna-7b-v1.3", "llama-7b"},
    {"vicuna-13b-v1.3", "llama-13b"},
    {"vicuna-7b-v1.5", "llama-2-7b"},
    {"vicuna-13b-v1.5", "llama-2-13b"},
    {"open-llama-3b-v2", "open-llama-3b"},
    {"open-llama-7b-v2", "open-llama-7b"},
    {"tinyllama", "tinyllama-1.1b"},
    {"tinyllama-v1.1", "tinyllama-1.1b"},
    {"tinyllama-1.1b-chat-v1.0", "tinyllama-1.1b"},
    {"tinyllama-1.1b-intermediate-step-1431k-3t", "tinyllama-1.1b"},
    {"codellama-34b-python", "codellama-34b"},
    {"smolvlm-text", "smolvlm2-2.2b-text"},
    {"smolvlm-256m-text", "smolvlm2-256m-video-text"},
    {"smolvlm-500m-text", "smolvlm2-500m-video-text"},
};

const struct family family_llama = {
    .name = "llama",
    .class_name = "LlamaForCausalLM",
    .classifier = "LlamaForSequenceClassification",
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
