/* qwen2.c - Qwen2: Llama with biases on q, k and v, and a window in some layers. */
#include "families/llama.h"
#include "hf/llama.h"
#include "model/count.h"

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(32),
    HEAD_DIM_KEY,
    LLAMA_KEYS(32768, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {ALWAYS("attention_bias", attention_bias)},
    QWEN_WINDOW,
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* Qwen1.5, Qwen2, Qwen2.5, -Coder and -Math: Qwen/Qwen2.5-0.5B ... -72B, the base models.
 * deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B. Qwen2ForCausalLM. */
#define QWEN2_TURNED(title, count, h, l, a, k, f, v, positions, eps, base, shared)                 \
    {title, count,                                                                                 \
     {GATED(ARCH_QWEN2, h, l, a, k, h / a, f, v, positions, eps, base), .attention_bias = true,    \
      .tied = shared}}
#define QWEN2(title, count, h, l, a, k, f, v, positions, eps, shared)                              \
    QWEN2_TURNED(title, count, h, l, a, k, f, v, positions, eps, 1e6F, shared)

static const struct model_preset presets[] = {
    QWEN2("qwen2.5-0.5b", 494032768,    896, 24, 14, 2, 4864,  151936, 32768,  1e-6F, true),
    QWEN2("qwen2.5-1.5b", 1543714304,  1536, 28, 12, 2, 8960,  151936, 131072, 1e-6F, true),
    QWEN2("qwen2.5-3b",   3085938688,  2048, 36, 16, 2, 11008, 151936, 32768,  1e-6F, true),
    QWEN2("qwen2.5-7b",   7615616512,  3584, 28, 28, 4, 18944, 152064, 131072, 1e-6F, false),
    QWEN2("qwen2.5-14b",  14770033664, 5120, 48, 40, 8, 13824, 152064, 131072, 1e-5F, false),
    QWEN2("qwen2.5-32b",  32763876352, 5120, 64, 40, 8, 27648, 152064, 131072, 1e-5F, false),
    QWEN2("qwen2.5-72b",  72706203648, 8192, 80, 64, 8, 29568, 152064, 131072, 1e-5F, false),
    QWEN2("qwen2.5-coder-0.5b", 494032768,    896, 24, 14, 2, 4864,  151936, 32768, 1e-6F, true),
    QWEN2("qwen2.5-coder-1.5b", 1543714304,  1536, 28, 12, 2, 8960,  151936, 32768, 1e-6F, true),
    QWEN2("qwen2.5-coder-3b",   3085938688,  2048, 36, 16, 2, 11008, 151936, 32768, 1e-6F, true),
    QWEN2("qwen2.5-coder-7b",   7615616512,  3584, 28, 28, 4, 18944, 152064, 32768, 1e-6F, false),
    QWEN2("qwen2.5-coder-14b",  14770033664, 5120, 48, 40, 8, 13824, 152064, 32768, 1e-5F, false),
    QWEN2("qwen2.5-coder-32b",  32763876352, 5120, 64, 40, 8, 27648, 152064, 32768, 1e-5F, false),
    QWEN2_TURNED("qwen2.5-math-1.5b", 1543714304,  1536, 28, 12, 2, 8960,  151936, 4096, 1e-6F, 1e4F, true),
    QWEN2_TURNED("qwen2.5-math-7b",   7615616512,  3584, 28, 28, 4, 18944, 152064, 4096, 1e-6F, 1e4F, false),
    QWEN2_TURNED("qwen2.5-math-72b",  72706203648, 8192, 80, 64, 8, 29568, 152064, 4096, 1e-5F, 1e4F, false),
    QWEN2("qwen2-0.5b",   494032768,    896, 24, 14, 2, 4864,  151936, 131072, 1e-6F, true),
    QWEN2("qwen2-1.5b",   1543714304,  1536, 28, 12, 2, 8960,  151936, 131072, 1e-6F, true),
    QWEN2("qwen2-7b",     7615616512,  3584, 28, 28, 4, 18944, 152064, 131072, 1e-6F, false),
    QWEN2("qwen2-72b",    72706203648, 8192, 80, 64, 8, 29568, 152064, 131072, 1e-5F, false),
    QWEN2("qwen1.5-0.5b", 463987712,   1024, 24, 16, 16, 2816, 151936, 32768,  1e-6F, true),
    QWEN2_TURNED("deepseek-r1-distill-qwen-1.5b", 1777088000, 1536, 28, 12, 2, 8960, 151936, 131072,
                 1e-6F, 1e4F, false),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"deepseek-r1-distill-qwen-7b", "qwen2.5-7b"},
    {"deepseek-r1-distill-qwen-14b", "qwen2.5-14b"},
    {"deepseek-r1-distill-qwen-32b", "qwen2.5-32b"},
    {"deepcoder-14b-preview", "qwen2.5-14b"},
    {"deepscaler-1.5b-preview", "deepseek-r1-distill-qwen-1.5b"},
    {"qwq-32b", "qwen2.5-32b"},
};

const struct family family_qwen2 = {
    .name = "qwen2",
    .class_name = "Qwen2ForCausalLM",
    .classifier = "Qwen2ForSequenceClassification",
    .part_absent =
        "{\"hidden_size\": 4096, \"num_hidden_layers\": 32, "
        "\"num_attention_heads\": 32, \"intermediate_size\": 22016, \"vocab_size\": 151936}",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_TORCHTITAN,
    .builder = {[CODE_TORCHTITAN] = build_llama, [CODE_HF] = build_hf_qwen},
};
