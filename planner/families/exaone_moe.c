/* exaone_moe.c - K-EXAONE: EXAONE 4's attention behind Llama's norms, with DeepSeek-V3's mixture of
 * experts. The layer that predicts a second token is not part of the class. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,         .qk = HF_QK_TURNED,
        .window_rope = true,    .masks_by_layer = true,
        .masks_of_types = true, .moe = HF_DEEPSEEK_V3_MOE(HF_CORRECTION_AS_MADE),
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    {COUNT("num_key_value_heads", kv_heads, 32, HEADS_MAX)},
    HEAD_DIM_KEY,
    LLAMA_KEYS(2048, 1e-5, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {ALWAYS("use_qk_norm", qk_norm)},
    {WINDOW(RULE_VALUE)},
    {COUNT("sliding_window_pattern", window_period, 4, LAYERS_MAX), .null = RULE_NONE},
    LAYER_TYPES,
    EXPERTS("num_experts", "num_local_experts", 64, 8),
    EXPERT_WIDTH(1024),
    EXPERT_GROUPS(1, 1, 2.5),
    {COUNT("num_shared_experts", shared_experts, 1, EXPERTS_MAX)},
    DENSE_FIRST(1),
    {LAYER_LIST("mlp_layer_types", KEY_LAYERS, dense, key_dense_layers, RULE_NONE)},
    {FLAG("norm_topk_prob", norm_topk, true)},
};

const struct family family_exaone_moe = {
    .name = "exaone_moe",
    .class_name = "ExaoneMoeForCausalLM",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .padding = 0 + 1,
    .check = experts_check_groups,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
