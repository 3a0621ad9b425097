/* gpt_bigcode.c - GPT-BigCode (SantaCoder, StarCoder): GPT-2 by Linear, where all queries may share
 * one head of keys and values. */
#include "families/gpt2.h"
#include "hf/gpt2.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_gpt2 way = {
        .linear = true,
        .head_by_head = true,
        .triangle = true,
        .asks_first = true,
    };
    hf_gpt2_build(graph, config, job, &way);
}

static const struct key keys[] = {
    GPT2_KEYS("gelu_pytorch_tanh"),
    {FIXED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    {BOOL("multi_query", KEY_SHARED, true), AT(kv_heads)},
    {FIXED("head_dim", head_dim, RULE_HEAD_SIZE, HIDDEN_MAX)},
    {ONLY("add_cross_attention", false)},
    {ONLY("scale_attn_weights", true)},
};

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab, positions = c->max_positions;
    const double unshared = 2.0 * ((double)c->heads - c->kv_heads) * c->head_dim;
    return c->layers * (count_classic_block(c) - unshared * (h + 1)) + (v + positions) * h + 2 * h +
           (c->tied ? 0 : v * h);
}

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* bigcode/gpt_bigcode-santacoder, tiny_starcoder_py, HuggingFaceH4/starchat-alpha.
 * GPTBigCodeForCausalLM. */
#define BIGCODE(title, count, h, l, a, v, positions, act)                                          \
    {title, count,                                                                                 \
     {.arch = ARCH_GPT_BIGCODE, .hidden = h, .layers = l, .heads = a, .kv_heads = 1,               \
      .head_dim = h / a, .ffn = 4 * h, .vocab = v, .max_positions = positions, .tied = true,       \
      .attention_bias = true, .mlp_bias = true, .activation = act, .dropout = 0.1F,                \
      .embedding_dropout = 0.1F, .attention_dropout = 0.1F, .norm_eps = 1e-5F, .init_std = 0.02F}}

static const struct model_preset presets[] = {
    BIGCODE("santacoder",        1124886528,  2048, 24, 16, 49280, 2048, "gelu_tanh"),
    BIGCODE("tiny-starcoder-py", 164144128,   768,  20, 12, 49152, 8192, "gelu_tanh"),
    BIGCODE("starchat-alpha",    15517480960, 6144, 40, 48, 49156, 8192, "gelu"),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"gpt_bigcode-santacoder", "santacoder"},
    {"starchat-beta", "starchat-alpha"},
};

const struct family family_gpt_bigcode = {
    .name = "gpt_bigcode",
    .class_name = "GPTBigCodeForCausalLM",
    .classifier = "GPTBigCodeForSequenceClassification",
    .block_class = "GPTBigCodeBlock",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .heads_divide_hidden = true,
    .learned_positions = true,
    .parameters = parameters,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
