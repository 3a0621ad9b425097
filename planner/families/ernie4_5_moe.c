/* ernie4_5_moe.c - ERNIE 4.5 with mixtures of experts: a router in fp32, whose correction is a
 * parameter that nothing trains. */
#include "families/ernie4_5.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .biased_head = config->head_bias,
        .rotary = HF_ROTARY_NEIGHBOURS_WIDE,
        .fp32_tables = true,
        .tables_first = true,
        .moe = {.route = hf_route_ernie,
                .gate = hf_gate_halves,
                .router = "gate",
                .statics = "gate.moe_statics.e_score_correction_bias",
                .when = HF_SHARED_HELD},
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(4),
    HEAD_DIM_KEY,
    ERNIE_KEYS,
    {FLAG("use_bias", head_bias, false)},
    {COUNT("moe_num_experts", experts, 64, EXPERTS_MAX), .other = "num_experts"},
    {COUNT("moe_k", experts_per_token, 6, EXPERTS_MAX), .other = "num_experts_per_tok"},
    EXPERT_WAYS,
    EXPERT_WIDTH(1536),
    {.name = "moe_num_shared_experts",
     .type = KEY_INT,
     .max = EXPERTS_MAX,
     AT(shared_experts),
     .absent = RULE_VALUE,
     .value = 2},
    {.name = "moe_layer_start_index",
     .type = KEY_INT,
     .max = LAYERS_MAX,
     AT(dense_first),
     .absent = RULE_VALUE,
     .value = 1},
    {.name = "moe_layer_end_index",
     .type = KEY_INT,
     .min = -1,
     .max = LAYERS_MAX,
     AT(sparse_last),
     .absent = RULE_VALUE,
     .value = -1},
    {COUNT("moe_layer_interval", sparse_step, 1, LAYERS_MAX)},
    {NUMBER("moe_norm_min", router_least, 1e-12, 0, 1)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* baidu/ERNIE-4.5-21B-A3B-PT. Ernie4_5_MoeForCausalLM. */
static const struct model_preset presets[] = {
    {"ernie-4.5-21b-a3b", 21825437888,
     {GATED(ARCH_ERNIE4_5_MOE, 2560, 28, 20, 4, 128, 12288, 103424, 131072, 1e-5F, 5e5F),
      .tied = true, .experts = 64, .experts_per_token = 6, .expert_ffn = 1536, .shared_experts = 2,
      .dense_first = 1, .sparse_last = 27, .sparse_step = 1, .router_least = 1e-12F}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    if (c->sparse_last == 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"moe_layer_end_index\": 0, experts in the first layer alone, is not "
                       "planned",
                       where);
    return experts_check(table, c, where, err);
}

static double parameters(const struct model_config *c)
{
    return count_llama(c) + (double)experts_layers(c) * c->experts + (c->head_bias ? c->vocab : 0);
}

const struct family family_ernie4_5_moe = {
    .name = "ernie4_5_moe",
    .class_name = "Ernie4_5_MoeForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .padding = 0 + 1,
    .check = check,
    .parameters = parameters,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
