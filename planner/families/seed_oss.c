/* seed_oss.c - Seed-OSS: Llama with dropout behind attention and feed-forward, and biases of q, k
 * and v. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .own_dropout = true,
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX), .null = RULE_HEAD_SIZE},
    LLAMA_KEYS(524288, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0.1),
    DROPOUT("residual_dropout", dropout, 0.1),
    {FLAG("attention_bias", attention_bias, true)},
    {FLAG("attention_out_bias", output_bias, false)},
    {FLAG("mlp_bias", mlp_bias, false)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* ByteDance-Seed/Seed-OSS-36B-Base. SeedOssForCausalLM. */
static const struct model_preset presets[] = {
    {"seed-oss-36b", 36151104512,
     {GATED(ARCH_SEED_OSS, 5120, 64, 80, 8, 128, 27648, 155136, 524288, 1e-6F, 1e7F),
      .attention_bias = true, .dropout = 0.1F, .attention_dropout = 0.1F}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_seed_oss = {
    .name = "seed_oss",
    .class_name = "SeedOssForCausalLM",
    .classifier = "SeedOssForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .padding = 1 + 1,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
