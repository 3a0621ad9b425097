/* cohere.c - Command R: attention and the feed-forward beside each other, behind one LayerNorm;
 * RoPE turns neighbours in fp32, and logits are scaled. */
#include "families/cohere.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_COHERE_LAYER,
        .qk = HF_QK_LAST,
        .qk_by_head = true,
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    COHERE_KEYS(5e5),
    {FLAG("use_qk_norm", qk_norm, false)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* CohereForAI/c4ai-command-r-v01, c4ai-command-r-plus. CohereForCausalLM. */
#define COMMAND(title, count, h, l, a, k, f, base, by, normed)                                     \
    {title, count,                                                                                 \
     {GATED(ARCH_COHERE, h, l, a, k, 128, f, 256000, 8192, 1e-5F, base), .tied = true,             \
      .parallel_residual = true, .logits_multiplier = by, .qk_norm = normed, .padding = 0 + 1}}

static const struct model_preset presets[] = {
    COMMAND("command-r",      34980831232, 8192,  40, 64, 64, 22528, 8e6F,  0.0625F,      false),
    COMMAND("command-r-plus", 103810674688, 12288, 64, 96, 8,  33792, 7.5e7F, 0.833333333F, true),
    COMMAND("aya-23-8b",      8028033024,  4096,  32, 32, 8,  14336, 1e4F, 0.0625F,      false),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"c4ai-command-r-v01", "command-r"},
    {"c4ai-command-r-plus", "command-r-plus"},
    {"aya-23-35b", "command-r"},
};

double count_cohere(const struct model_config *c)
{
    const double heads = (double)c->heads + c->kv_heads - 2; /* Llama's norms are alike for all */
    return count_llama(c) - (double)c->layers * c->hidden +
           (c->qk_norm ? c->layers * heads * c->head_dim : 0);
}

const struct family family_cohere = {
    .name = "cohere",
    .class_name = "CohereForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .padding = 0 + 1,
    .parameters = count_cohere,
    .code = CODE_HF,
    .traced = true,
    .builder = {[CODE_HF] = build},
};
