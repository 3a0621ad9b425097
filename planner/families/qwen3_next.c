/* qwen3_next.c - Qwen3-Next: linear attention from joint products, gated attention in the fourth
 * layer of four, and mixtures of experts with one that every token passes. */
#include "families/qwen3_5.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_GATED_LAYER,
        .tables_first = true,
        .moe = {.route = hf_route_qwen,
                .gate = hf_gate_halves,
                .router = "gate",
                .leaf = "Qwen3NextSparseMoeBlock",
                .when = HF_SHARED_ROWS},
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    DELTA_KEYS(2),
    {COUNT("intermediate_size", ffn, 5632, FFN_MAX)},
    {ALWAYS("joint", joint_delta)},
    DELTA_EXPERTS(512, 10),
    SPARSE_LAYERS,
    {FLAG("norm_topk_prob", norm_topk, true)},
};

/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */
/* Qwen/Qwen3-Next-80B-A3B-Instruct, Qwen3-Coder-Next. Qwen3NextForCausalLM. */
#define NEXT(title, base)                                                                          \
    {title, 79674391296,                                                                           \
     {GATED(ARCH_QWEN3_NEXT, 2048, 48, 16, 2, 256, 5120, 151936, 262144, 1e-6F, base),             \
      DELTA_SIZES(32), .joint_delta = true, .experts = 512, .experts_per_token = 10,               \
      .expert_ffn = 512, .shared_ffn = 512, .shared_gate = true, .sparse_step = 1,                 \
      .norm_topk = true}}

static const struct model_preset presets[] = {
    NEXT("qwen3-next-80b-a3b", 1e7F),
    NEXT("qwen3-coder-next",   5e6F),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    TRY(delta_check_experts(table, c, where, err));
    if (c->delta_key_heads == 1) /* views for copies */
        return err_set(err, ERR_INVALID, "%s: \"%s\": 1 is not planned; 2 or more are", where,
                       NAME_OF(table, delta_key_heads));
    return ERR_OK;
}

const struct family family_qwen3_next = {
    .name = "qwen3_next",
    .class_name = "Qwen3NextForCausalLM",
    .classifier = "Qwen3NextForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .check = check,
    .parameters = count_delta,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
