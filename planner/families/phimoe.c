/* phimoe.c - Phi-3.5-MoE: Mixtral with LayerNorms, a router that draws experts at random, and RoPE
 * whose frequencies are computed in each pass. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    const struct hf_decoder way = {
        .norm = apply_norm,
        HF_NORM_NAMES,
        .biased_norms = true,
        .biased_head = config->head_bias,
        .rope_remade = true,
        .positions_first = true,
        .moe = {.route = hf_route_phimoe, .gate = hf_gate_halves, .router = "router"},
    };
    hf_decoder_build(graph, config, job, &way);
}

/* Always two experts a token, whatever num_experts_per_tok says. */
static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    HEAD_DIM_KEY,
    LLAMA_KEYS(131072, 1e-5, 1e6),
    ATTENTION_BIASES(false),
    {FLAG("lm_head_bias", head_bias, false)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    {WINDOW(RULE_NONE)},
    {COUNT("num_local_experts", experts, 16, EXPERTS_MAX), .other = "num_experts"},
    {.name = "num_experts_per_tok",
     .type = KEY_INT,
     .fixed = true,
     .min = 2,
     .max = 2,
     AT(experts_per_token),
     .absent = RULE_VALUE,
     .value = 2},
    EXPERT_WAYS,
    {NUMBER("router_jitter_noise", router_jitter, 0.01, 0, 1e6)},
    {NUMBER("input_jitter_noise", input_jitter, 0, 0, 1)},
    {NUMBER("short_mscale", short_mscale, 0, 0, 1e6), .other = "rope_parameters.short_mscale"},
    {NUMBER("long_mscale", long_mscale, 0, 0, 1e6), .other = "rope_parameters.long_mscale"},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* microsoft/Phi-3.5-MoE-instruct. PhimoeForCausalLM. What its file divides frequencies by is not
 * here: no plan follows from it, and what draws at random does not run. */
#define ONES                                                                                       \
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  \
     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  \
     1, 1}
static const struct model_preset presets[] = {
    {"phi-3.5-moe", 41873153344,
     {GATED(ARCH_PHIMOE, 4096, 32, 32, 8, 128, 6400, 32064, 131072, 1e-5F, 1e4F),
      .attention_bias = true, .output_bias = true, .head_bias = true, .experts = 16,
      .experts_per_token = 2, .router_jitter = 0.01F, .input_jitter = 0.01F,
      .sliding_window = 131072, .rope.scaling = ROPE_LONGROPE, .rope.original_positions = 4096,
      .rope.short_factor = ONES, .rope.long_factor = ONES, .short_mscale = 1.2431631F,
      .long_mscale = 1.2431631F}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"phi-3.5-moe-instruct", "phi-3.5-moe"},
};

/* PhimoeConfig wants both factors of every kind but the default; "longrope" alone has them. */
static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    const enum rope_scaling scaling = (enum rope_scaling)c->rope.scaling;
    if (scaling != ROPE_DEFAULT && scaling != ROPE_LONGROPE)
        return err_set(err, ERR_INVALID,
                       "%s: RoPE scaling \"%s\": phimoe has \"default\" and \"longrope\"", where,
                       rope_scaling_name(scaling));
    if (scaling == ROPE_LONGROPE && !(c->short_mscale > 0 && c->long_mscale > 0))
        return err_set(err, ERR_INVALID,
                       "%s: RoPE scaling \"longrope\": \"short_mscale\" and \"long_mscale\" are "
                       "%g and %g: numbers above 0",
                       where, (double)c->short_mscale, (double)c->long_mscale);
    return experts_check(table, c, where, err);
}

static double parameters(const struct model_config *c)
{
    return count_llama(c) + (2.0 * c->layers + 1) * c->hidden + (c->head_bias ? c->vocab : 0);
}

const struct family family_phimoe = {
    .name = "phimoe",
    .class_name = "PhimoeForCausalLM",
    .classifier = "PhimoeForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .check = check,
    .parameters = parameters,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
