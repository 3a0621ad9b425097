/* glm4_moe_lite.c - GLM-4.7-Flash: DeepSeek-V3 where a list says which layers have experts. The
 * layer that predicts a second token is not part of the class. */
#include "families/llama.h"
#include "families/mla.h"
#include "model/count.h"
#include "model/experts.h"

static const struct key keys[] = {
    SIZE_KEYS,
    MLA_KEYS(768),
    LLAMA_KEYS(202752, 1e-5, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("attention_bias", attention_bias, false)},
    {FLAG("rope_interleave", rope_interleave, true)},
    EXPERTS("n_routed_experts", "num_local_experts", 64, 4),
    EXPERT_WIDTH(1536),
    EXPERT_GROUPS(1, 1, 1.8),
    SHARED_EXPERTS(1, 1),
    {LAYER_LIST("mlp_layer_types", KEY_LAYERS, dense, key_dense_layers, RULE_NONE)},
    {FLAG("norm_topk_prob", norm_topk, true)},
};

const struct family family_glm4_moe_lite = {
    .name = "glm4_moe_lite",
    .class_name = "Glm4MoeLiteForCausalLM",
    .keys = KEY_TABLE(keys),
    .check = mla_check_experts,
    .parameters = count_llama,
    .code = CODE_HF,
    .builder = {[CODE_HF] = mla_build_v3},
};
