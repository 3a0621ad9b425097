/* ernie4_5.c - ERNIE 4.5: Llama where RoPE turns neighbours in fp32. */
#include "families/ernie4_5.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .rotary = HF_ROTARY_NEIGHBOURS_WIDE,
        .fp32_tables = true,
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(2),
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX), .null = RULE_HEAD_SIZE},
    ERNIE_KEYS,
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* baidu/ERNIE-4.5-0.3B-PT. Ernie4_5ForCausalLM. */
static const struct model_preset presets[] = {
    {"ernie-4.5-0.3b", 360748032,
     {GATED(ARCH_ERNIE4_5, 1024, 18, 16, 2, 128, 3072, 103424, 131072, 1e-5F, 5e5F),
      .tied = true}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_ernie4_5 = {
    .name = "ernie4_5",
    .class_name = "Ernie4_5ForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .padding = 0 + 1,
    .parameters = count_llama,
    .code = CODE_HF,
    .traced = true,
    .builder = {[CODE_HF] = build},
};
