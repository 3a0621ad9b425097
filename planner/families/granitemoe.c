/* granitemoe.c - Granite with a mixture of experts for its feed-forward. */
#include "families/granite.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .tables_first = true,
        .mlp = "block_sparse_moe",
        .mlp_last = true,
        .late_scale = true,
        .moe = {.route = hf_route_granite, .gate = hf_gate_halves, .router = "router"},
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    GRANITE_KEYS,
    EXPERTS("num_local_experts", "num_experts", 8, 2),
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* ibm-granite/granite-3.1-1b-a400m-instruct, -3b-a800m-instruct, and the base models of it and of
 * 3.0. GraniteMoeForCausalLM. */
#define GRANITEMOE_OF(title, count, h, l, a, e, v, positions, base, pads, drop)                    \
    {title, count,                                                                                 \
     {GATED(ARCH_GRANITEMOE, h, l, a, 8, 64, 512, v, positions, 1e-6F, base), .tied = true,        \
      .padding = pads, .attention_dropout = drop, .embedding_multiplier = 12,                      \
      .attention_multiplier = 0.015625F, .residual_multiplier = 0.22F, .logits_scaling = 6,        \
      .experts = e, .experts_per_token = 8}}
#define GRANITEMOE(title, count, h, l, a, e)                                                       \
    GRANITEMOE_OF(title, count, h, l, a, e, 49155, 131072, 5e6F, 0, 0)
#define GRANITEMOE_BASE(title, count, h, l, a, e, positions, base, drop)                           \
    GRANITEMOE_OF(title, count, h, l, a, e, 49152, positions, base, 0 + 1, drop)

static const struct model_preset presets[] = {
    GRANITEMOE("granite-3.1-1b-a400m", 1334628352, 1024, 24, 16, 32),
    GRANITEMOE("granite-3.1-3b-a800m", 3298793472, 1536, 32, 24, 40),
    GRANITEMOE_BASE("granite-3.1-1b-a400m-base", 1334625280, 1024, 24, 16, 32, 131072, 1.5e6F, 0.1F),
    GRANITEMOE_BASE("granite-3.1-3b-a800m-base", 3298788864, 1536, 32, 24, 40, 131072, 1e7F,   0.1F),
    GRANITEMOE_BASE("granite-3.0-1b-a400m-base", 1334625280, 1024, 24, 16, 32, 4096,   1e4F,   0),
    GRANITEMOE_BASE("granite-3.0-3b-a800m-base", 3298788864, 1536, 32, 24, 40, 4096,   1e4F,   0),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_granitemoe = {
    .name = "granitemoe",
    .class_name = "GraniteMoeForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .check = experts_check,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
