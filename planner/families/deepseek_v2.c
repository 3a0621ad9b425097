/* deepseek_v2.c - DeepSeek-V2: as V3, with another router and RoPE in complex numbers. */
#include "families/llama.h"
#include "families/mla.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

static const struct choice methods[] = {
    {"greedy", NULL, false}, {"group_limited_greedy", NULL, true}, {NULL, NULL, false}};

/* norm_topk_prob is not read by the class. */
static const struct key keys[] = {
    SIZE_KEYS,
    MLA_KEYS(1536),
    LLAMA_KEYS(2048, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("attention_bias", attention_bias, false)},
    {FLAG("mlp_bias", mlp_bias, false)},
    EXPERTS("n_routed_experts", "num_experts", 64, 2),
    EXPERT_WIDTH(1407),
    EXPERT_GROUPS(1, 1, 1),
    {CHOICE("topk_method", limited_groups, "greedy", methods)},
    SHARED_EXPERTS(2, 0),
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* deepseek-ai/DeepSeek-V2-Lite, DeepSeek-V2, -V2.5. DeepseekV2ForCausalLM. */
#define V2(title, count, h, l, a, f, lora, e, wide, all, chosen, by, limited, grows)               \
    {title, count,                                                                                 \
     {GATED(ARCH_DEEPSEEK_V2, h, l, a, a, 64, f, 102400, 163840, 1e-6F, 1e4F), .rotary_dim = 64,   \
      .kv_lora = 512, .q_lora = lora, .nope_dim = 128, .v_dim = 128, .experts = e,                 \
      .experts_per_token = 6, .expert_ffn = wide, .shared_experts = 2, .dense_first = 1,           \
      .groups = all, .topk_groups = chosen, .routed_scaling = by, .limited_groups = limited,       \
      .rope.scaling = ROPE_YARN, .rope.factor = 40, .rope.beta_fast = 32, .rope.beta_slow = 1,     \
      .rope.truncate = true, .rope.original_positions = 4096, .mscale_all = grows}}

static const struct model_preset presets[] = {
    V2("deepseek-v2-lite", 15706484224,  2048, 27, 16,  10944, 0,    64,  1408, 1, 1, 1,  false, 0.707F),
    V2("deepseek-v2",      235741434880, 5120, 60, 128, 12288, 1536, 160, 1536, 8, 3, 16, true,  0.707F),
    V2("deepseek-v2.5",    235741434880, 5120, 60, 128, 12288, 1536, 160, 1536, 8, 3, 16, true,  1),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"deepseek-coder-v2-lite-base", "deepseek-v2-lite"},
    {"deepseek-coder-v2-lite-instruct", "deepseek-v2-lite"},
};

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .complex_table = true,
        HF_LLAMA_NORMS,
        .tables_first = true,
        .mla = {.rotate = hf_mla_rotate_v2, .key_first = true},
        .moe = {.route = hf_route_deepseek_v2,
                .gate = hf_gate_halves,
                .router = "gate",
                .experts_first = true,
                .flattens = true},
    };
    hf_decoder_build(graph, config, job, &way);
}

const struct family family_deepseek_v2 = {
    .name = "deepseek_v2",
    .class_name = "DeepseekV2ForCausalLM",
    .classifier = "DeepseekV2ForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .heads_divide_hidden = true,
    .check = mla_check_experts,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_TORCHTITAN] = build_deepseek_v3, [CODE_HF] = build},
};
