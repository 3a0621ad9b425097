/* ministral3.c - Ministral 3: Mistral whose queries are scaled by their positions. */
#include "families/llama.h"
#include "families/scaled_queries.h"
#include "hf/decoder.h"
#include "hf/llama.h"
#include "model/count.h"

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX), .null = RULE_HEAD_SIZE},
    LLAMA_KEYS(262144, 1e-5, 1e6),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {WINDOW(RULE_NONE)},
    SCALED_QUERIES(16384),
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* Text models of mistralai/Ministral-3-3B-Base-2512, -8B, -14B. Ministral3ForCausalLM. */
#define MINISTRAL3(title, count, h, l, f, base, shared)                                            \
    {title, count,                                                                                 \
     {GATED(ARCH_MINISTRAL3, h, l, 32, 8, 128, f, 131072, 262144, 1e-5F, base), .tied = shared,    \
      .padding = 11 + 1, .position_beta = 0.1F, .position_step = 16384, .rope.scaling = ROPE_YARN, \
      .rope.factor = 16, .rope.beta_fast = 32, .rope.beta_slow = 1, .rope.truncate = true,         \
      .rope.original_positions = 16384}}

static const struct model_preset presets[] = {
    MINISTRAL3("ministral-3-3b-2512-text",  3429006336,  3072, 26, 9216,  1e6F, true),
    MINISTRAL3("ministral-3-8b-2512-text",  8489553920,  4096, 34, 14336, 1e6F, false),
    MINISTRAL3("ministral-3-14b-2512-text", 13506073600, 5120, 40, 16384, 1e9F, false),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_ministral3 = {
    .name = "ministral3",
    .class_name = "Ministral3ForCausalLM",
    .classifier = "Ministral3ForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .seeing = "mistral3",
    .rope = true,
    .rope_absent = "{\"rope_type\": \"yarn\", \"rope_theta\": 1000000.0, \"factor\": 16.0, "
                   "\"original_max_position_embeddings\": 16384, \"beta_fast\": 32.0, "
                   "\"beta_slow\": 1.0, \"mscale_all_dim\": 1.0, \"mscale\": 1.0}",
    .padding = 11 + 1,
    .read = scaled_queries_read,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_mistral},
};
