/* qwen3.c - Qwen3: Llama with an RMSNorm on each head of q and k. */
#include "families/llama.h"
#include "hf/llama.h"
#include "model/count.h"

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(32),
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX)},
    LLAMA_KEYS(32768, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {ALWAYS("qk_norm", qk_norm)},
    QWEN_WINDOW,
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* Qwen3: Qwen/Qwen3-0.6B ... -32B, Qwen3-4B-Instruct-2507. Qwen3ForCausalLM. */
#define QWEN3(title, count, h, l, a, f, shared)                                                    \
    {title, count,                                                                                 \
     {GATED(ARCH_QWEN3, h, l, a, 8, 128, f, 151936, 40960, 1e-6F, 1e6F), .qk_norm = true,          \
      .tied = shared}}

static const struct model_preset presets[] = {
    QWEN3("qwen3-0.6b", 596049920,   1024, 28, 16, 3072,  true),
    QWEN3("qwen3-1.7b", 1720574976,  2048, 28, 16, 6144,  true),
    QWEN3("qwen3-4b",   4022468096,  2560, 36, 32, 9728,  true),
    QWEN3("qwen3-8b",   8190735360,  4096, 36, 32, 12288, false),
    QWEN3("internvl3_5-8b-text", 8190735360, 4096, 36, 32, 12288, false), /* of OpenGVLab's -HF */
    QWEN3("qwen3-14b",  14768307200, 5120, 40, 40, 17408, false),
    QWEN3("qwen3-32b",  32762123264, 5120, 64, 64, 25600, false),
    {"qwen3-4b-2507", 4022468096,
     {GATED(ARCH_QWEN3, 2560, 36, 32, 8, 128, 9728, 151936, 262144, 1e-6F, 5e6F), .qk_norm = true,
      .tied = true}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_qwen3 = {
    .name = "qwen3",
    .class_name = "Qwen3ForCausalLM",
    .classifier = "Qwen3ForSequenceClassification",
    .part_absent =
        "{\"hidden_size\": 4096, \"num_hidden_layers\": 32, "
        "\"num_attention_heads\": 32, \"intermediate_size\": 22016, \"vocab_size\": 151936}",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_TORCHTITAN,
    .builder = {[CODE_TORCHTITAN] = build_llama, [CODE_HF] = build_hf_qwen},
};
