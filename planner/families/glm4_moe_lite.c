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

/* zai-org/GLM-4.7-Flash. Glm4MoeLiteForCausalLM. */
static const struct model_preset presets[] = {
    {"glm-4.7-flash",
     29943390976,
     {GATED(ARCH_GLM4_MOE_LITE, 2048, 47, 20, 20, 64, 10240, 154880, 202752, 1e-5F, 1e6F),
      .rotary_dim = 64, .kv_lora = 512, .q_lora = 768, .nope_dim = 192, .v_dim = 256,
      .rope_interleave = true, .experts = 64, .experts_per_token = 4, .expert_ffn = 1536,
      .shared_experts = 1, .dense_first = 1, .groups = 1, .topk_groups = 1, .routed_scaling = 1.8F,
      .norm_topk = true}},
};

const struct family family_glm4_moe_lite = {
    .name = "glm4_moe_lite",
    .class_name = "Glm4MoeLiteForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .check = mla_check_experts,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = mla_build_v3},
};
