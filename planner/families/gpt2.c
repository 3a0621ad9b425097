/* gpt2.c - GPT-2, in nanoGPT's code and in transformers'. */
#include "families/gpt2.h"

#include "hf/gpt2.h"
#include "model/count.h"

static const struct key keys[] = {
    GPT2_KEYS("gelu_new"),
    PLAIN_HEADS,
    {ONLY("add_cross_attention", false)},
    {ONLY("scale_attn_weights", true)},
    {ONLY("scale_attn_by_inverse_layer_idx", false)},
    {ONLY("reorder_and_upcast_attn", false)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* GPT-2: openai-community/gpt2{,-medium,-large,-xl}, distilbert/distilgpt2;
 * cerebras/Cerebras-GPT-111M ... -13B. GPT2LMHeadModel. */
#define GPT2_OF(title, count, h, l, a, positions, act, drop)                                       \
    {title, count,                                                                                 \
     {.arch = ARCH_GPT2, .hidden = h, .layers = l, .heads = a, .kv_heads = a, .head_dim = h / a,   \
      .ffn = 4 * h, .vocab = 50257, .max_positions = positions, .tied = true,                      \
      .attention_bias = true, .mlp_bias = true, .activation = act, .dropout = drop,                \
      .embedding_dropout = drop, .attention_dropout = drop, .norm_eps = 1e-5F,                     \
      .init_std = 0.02F}}
#define GPT2(title, count, h, l, a) GPT2_OF(title, count, h, l, a, 1024, "gelu_new", 0.1F)
#define CEREBRAS(title, count, h, l, a) GPT2_OF(title, count, h, l, a, 2048, "gelu", 0)

static const struct model_preset presets[] = {
    GPT2("gpt2",        124439808,   768, 12, 12),
    GPT2("gpt2-medium", 354823168,  1024, 24, 16),
    GPT2("gpt2-large",  774030080,  1280, 36, 20),
    GPT2("gpt2-xl",     1557611200, 1600, 48, 25),
    GPT2("distilgpt2",  81912576,    768,  6, 12),
    CEREBRAS("cerebras-gpt-111m", 111050496,   768,  10, 12),
    CEREBRAS("cerebras-gpt-256m", 255977024,   1088, 14, 17),
    CEREBRAS("cerebras-gpt-590m", 590310912,   1536, 18, 12),
    CEREBRAS("cerebras-gpt-1.3b", 1315723264,  2048, 24, 16),
    CEREBRAS("cerebras-gpt-2.7b", 2651553280,  2560, 32, 32),
    CEREBRAS("cerebras-gpt-6.7b", 6658404352,  4096, 32, 32),
    CEREBRAS("cerebras-gpt-13b",  12853386240, 5120, 40, 40),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab, positions = c->max_positions;
    return c->layers * count_classic_block(c) + (v + positions) * h + 2 * h + (c->tied ? 0 : v * h);
}

const struct family family_gpt2 = {
    .name = "gpt2",
    .traced = true,
    .class_name = "GPT2LMHeadModel",
    .classifier = "GPT2ForSequenceClassification",
    .block_class = "GPT2Block",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .heads_divide_hidden = true,
    .learned_positions = true,
    .parameters = parameters,
    .code = CODE_NANOGPT,
    .builder = {[CODE_NANOGPT] = build_gpt2, [CODE_HF] = build_hf_gpt2},
};
