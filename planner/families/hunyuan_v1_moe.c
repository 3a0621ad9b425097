/* hunyuan_v1_moe.c - Hunyuan with a mixture of experts, and a feed-forward beside it that all
 * tokens pass, each as wide as the others. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .tables_first = true,
        .qk = HF_QK_AFTER,
        .q_norm = "query_layernorm",
        .k_norm = "key_layernorm",
        .moe = {.route = hf_route_hunyuan,
                .gate = hf_gate_halves,
                .router = "gate.wg",
                .when = HF_SHARED_FIRST,
                .shared = "shared_mlp"},
    };
    hf_decoder_build(graph, config, job, &way);
}

/* Files may say of each layer how many experts it has, and how many a token takes. */
static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    LLAMA_KEYS(2048, 1e-5, 1e4),
    {NUMBER("rope_parameters.alpha", rope_alpha, 0, 0, 1e9)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    {ALWAYS("use_qk_norm", qk_norm)},
    ATTENTION_BIASES(false),
    {.name = "num_experts",
     .other = "num_local_experts",
     .type = KEY_EACH,
     AT(experts),
     .min = 1,
     .max = EXPERTS_MAX,
     .absent = RULE_VALUE,
     .value = 1},
    {.name = "moe_topk",
     .other = "num_experts_per_tok",
     .type = KEY_EACH,
     AT(experts_per_token),
     .min = 1,
     .max = EXPERTS_MAX,
     .absent = RULE_VALUE,
     .value = 1},
    EXPERT_WAYS,
    {ALWAYS("norm_topk_prob", norm_topk)},
    {REAL("shared_mlp", KEY_INT, shared_experts, 1, 1, 1), .fixed = true},
};

const struct family family_hunyuan_v1_moe = {
    .name = "hunyuan_v1_moe",
    .class_name = "HunYuanMoEV1ForCausalLM",
    .classifier = "HunYuanMoEV1ForSequenceClassification",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .padding = 0 + 1,
    .check = experts_check,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
