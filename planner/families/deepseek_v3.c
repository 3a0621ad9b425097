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

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* deepseek-ai/DeepSeek-V3, moonshotai/Kimi-K2-Instruct. DeepseekV3ForCausalLM. Published weights
 * are in FP8. */
#define V3(title, count, a, v, positions, base, e, dense, all, chosen, times, by, fast)            \
    {title, count,                                                                                 \
     {GATED(ARCH_DEEPSEEK_V3, 7168, 61, a, a, 64, 18432, v, positions, 1e-6F, base),               \
      .rotary_dim = 64, .kv_lora = 512, .q_lora = 1536, .nope_dim = 128, .v_dim = 128,             \
      .rope_interleave = true, .experts = e, .experts_per_token = 8, .expert_ffn = 2048,           \
      .shared_experts = 1, .dense_first = dense, .groups = all, .topk_groups = chosen,             \
      .routed_scaling = times, .norm_topk = true, .rope.scaling = ROPE_YARN, .rope.factor = by,    \
      .rope.beta_fast = fast, .rope.beta_slow = 1, .rope.truncate = true,                          \
      .rope.original_positions = 4096, .mscale_all = 1}}

static const struct model_preset presets[] = {
    V3("deepseek-v3", 671026404352,  128, 129280, 163840, 1e4F, 256, 3, 8, 4, 2.5F,   40, 32),
    V3("kimi-k2",     1026408209408, 64,  163840, 131072, 5e4F, 384, 1, 1, 1, 2.827F, 32, 1),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"deepseek-r1", "deepseek-v3"},
    {"deepseek-r1-0528", "deepseek-v3"},
    {"deepseek-v3-0324", "deepseek-v3"},
    {"deepseek-v3.1", "deepseek-v3"},
};

const struct family family_deepseek_v3 = {
    .name = "deepseek_v3",
    .class_name = "DeepseekV3ForCausalLM",
    .classifier = "DeepseekV3ForSequenceClassification",
    .kin = "kimi_k2",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .check = mla_check_experts,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_TORCHTITAN] = build_deepseek_v3, [CODE_HF] = mla_build_v3},
};
