/* minimax_m2.c - MiniMax-M2: Mixtral with norms over all heads of q and of k, RoPE on a part of
 * each head, and experts chosen by a sigmoid and a correction. */
#include "families/olmo.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .qk = HF_QK_WIDE,
        .rotary = HF_ROTARY_BOTH,
        .positions_first = true,
        .moe = {.route = hf_route_minimax_m2,
                .gate = hf_gate_halves,
                .router = "gate",
                .correction = HF_CORRECTION_AS_MADE},
    };
    hf_decoder_build(graph, config, job, &way);
}

/* A share of the head goes before a number of its numbers, and both before all of it. */
static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX)},
    LLAMA_KEYS(196608, 1e-6, 5e6),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {REAL("rotary_dim", KEY_SHARE, rotary_dim, 1, 1, 1), .fixed = true},
    {SIZE("rotary_dim", rotary_dim, HEAD_DIM_MAX), .absent = RULE_KEEP, .null = RULE_KEEP},
    {.name = "partial_rotary_factor",
     .other = "rope_parameters.partial_rotary_factor",
     .type = KEY_SHARE,
     AT(rotary_dim),
     .absent = RULE_KEEP,
     .null = RULE_KEEP,
     .min = 0.001,
     .max = 1},
    EXPERTS("num_local_experts", "num_experts", 256, 8),
    NEUTRAL("router_jitter_noise", 0),
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* MiniMaxAI/MiniMax-M2. MiniMaxM2ForCausalLM. Published weights are in FP8. */
static const struct model_preset presets[] = {
    {"minimax-m2", 228689748992,
     {GATED(ARCH_MINIMAX_M2, 3072, 62, 48, 8, 128, 1536, 200064, 196608, 1e-6F, 5e6F),
      .rotary_dim = 64, .experts = 256, .experts_per_token = 8}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"minimax-m2.1", "minimax-m2"},
    {"minimax-m2.5", "minimax-m2"},
};

const struct family family_minimax_m2 = {
    .name = "minimax_m2",
    .class_name = "MiniMaxM2ForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .check = experts_check,
    .parameters = count_olmo,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
