/* deepseek_v3.c - DeepSeek-V3: latent attention, experts in groups, and some that every token
 * passes. The layer that predicts a second token is not part of the class. */
#include "families/llama.h"
#include "families/mla.h"
#include "model/count.h"
#include "model/experts.h"

static const struct key keys[] = {
    SIZE_KEYS,
    MLA_KEYS(1536),
    LLAMA_KEYS(4096, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("attention_bias", attention_bias, false)},
    {FLAG("rope_interleave", rope_interleave, true)},
    EXPERTS("n_routed_experts", "num_local_experts", 256, 8),
    EXPERT_WIDTH(2048),
    EXPERT_GROUPS(8, 4, 2.5),
    SHARED_EXPERTS(1, 3),
    {FLAG("norm_topk_prob", norm_topk, true)},
};

/* deepseek-ai/DeepSeek-V3. DeepseekV3ForCausalLM. Published weights are in FP8. */
static const struct model_preset presets[] = {
    {"deepseek-v3",
     671026404352,
     {GATED(ARCH_DEEPSEEK_V3, 7168, 61, 128, 128, 64, 18432, 129280, 163840, 1e-6F, 1e4F),
      .rotary_dim = 64,
      .kv_lora = 512,
      .q_lora = 1536,
      .nope_dim = 128,
      .v_dim = 128,
      .rope_interleave = true,
      .experts = 256,
      .experts_per_token = 8,
      .expert_ffn = 2048,
      .shared_experts = 1,
      .dense_first = 3,
      .groups = 8,
      .topk_groups = 4,
      .routed_scaling = 2.5F,
      .norm_topk = true,
      .rope.scaling = ROPE_YARN,
      .rope.factor = 40,
      .rope.beta_fast = 32,
      .rope.beta_slow = 1,
      .rope.truncate = true,
      .rope.original_positions = 4096,
      .mscale_all = 1}},
};

static const struct preset_alias aliases[] = {
    {"deepseek-r1", "deepseek-v3"},
    {"deepseek-v3-0324", "deepseek-v3"},
};

const struct family family_deepseek_v3 = {
    .name = "deepseek_v3",
    .class_name = "DeepseekV3ForCausalLM",
    .kin = "kimi_k2",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .check = mla_check_experts,
    .parameters = count_llama,
    .code = CODE_HF,
    .builder = {[CODE_HF] = mla_build_v3},
};
