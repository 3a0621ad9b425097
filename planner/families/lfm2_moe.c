/* lfm2_moe.c - LFM2 with mixtures of experts, which are chosen by a sigmoid and a correction, in
 * all layers but the first. */
#include "families/lfm2.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LFM2_LAYER,
        .rope = "pos_emb",
        .positions_first = true,
        .moe = {.route = hf_route_lfm2,
                .gate = hf_gate_halves,
                .router = "gate",
                .leaf = "Lfm2MoeSparseMoeBlock",
                .experts_first = true,
                .correction = HF_CORRECTION_FP32},
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    LFM2_KEYS,
    LFM2_LAYERS(RULE_REFUSED),
    {COUNT("intermediate_size", ffn, 7168, FFN_MAX)},
    EXPERTS("num_experts", "num_local_experts", 32, 4),
    EXPERT_WIDTH(1792),
    {.name = "num_dense_layers",
     .type = KEY_INT,
     .max = LAYERS_MAX,
     AT(dense_first),
     .absent = RULE_VALUE,
     .value = 2},
    {ONLY("use_expert_bias", true)},
    {FLAG("norm_topk_prob", norm_topk, true)},
    {NUMBER("routed_scaling_factor", routed_scaling, 1, 0, 1e6)},
};

/* clang-format off */
/* LiquidAI/LFM2-8B-A1B, LFM2-24B-A2B. Lfm2MoeForCausalLM. */
static const struct model_preset presets[] = {
    {"lfm2-8b-a1b", 8339929856,
     {LFM2_SIZES(ARCH_LFM2_MOE, 2048, 24, 32, 7168, 0xdbbbbb), .experts = 32,
      .experts_per_token = 4, .expert_ffn = 1792, .dense_first = 2, .norm_topk = true,
      .routed_scaling = 1}},
    {"lfm2-24b-a2b", 23843659008,
     {LFM2_SIZES(ARCH_LFM2_MOE, 2048, 40, 32, 11776, 0xbbbbbbbb, 0xbb), .experts = 64,
      .experts_per_token = 4, .expert_ffn = 1536, .dense_first = 2, .norm_topk = true,
      .routed_scaling = 1}},
};
/* clang-format on */

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    TRY(lfm2_check(table, c, where, err));
    return experts_check(table, c, where, err);
}

const struct family family_lfm2_moe = {
    .name = "lfm2_moe",
    .class_name = "Lfm2MoeForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .padding = 0 + 1,
    .check = check,
    .parameters = count_lfm2,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
