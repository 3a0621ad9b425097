/* glm4_moe.c - GLM-4.5: DeepSeek-V3's mixture of experts with Llama's attention, where RoPE turns a
 * part of each head. The layer that predicts a second token is not part of the class. */
#include "families/glm4_moe.h"
#include "model/count.h"

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    HEAD_DIM_KEY,
    LLAMA_KEYS(131072, 1e-5, 1e4),
    GLM4_MOE_KEYS(false),
    {FLAG("use_qk_norm", qk_norm, false)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* zai-org/GLM-4.5, GLM-4.5-Air. Glm4MoeForCausalLM. */
#define GLM(title, count, h, l, f, e, wide, dense, scaling, normed)                                \
    {title, count,                                                                                 \
     {GATED(ARCH_GLM4_MOE, h, l, 96, 8, 128, f, 151552, 131072, 1e-5F, 1e6F), .rotary_dim = 64,    \
      .attention_bias = true, .qk_norm = normed, .experts = e, .experts_per_token = 8,             \
      .expert_ffn = wide, .shared_experts = 1, .dense_first = dense, .groups = 1,                  \
      .topk_groups = 1, .routed_scaling = scaling, .norm_topk = true}}

static const struct model_preset presets[] = {
    GLM("glm-4.5",     352797814784, 5120, 92, 12288, 160, 1536, 3, 2.5F, true),
    GLM("glm-4.5-air", 106852245504, 4096, 46, 10944, 128, 1408, 1, 1,    false),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

enum err_code glm4_moe_check(const struct key_table *table, const struct model_config *c,
                             const char *where, struct err *err)
{
    if (c->rotary_dim == 0 || c->rotary_dim % 2 != 0 || c->rotary_dim >= c->head_dim)
        return err_set(err, ERR_INVALID,
                       "%s: \"partial_rotary_factor\": RoPE turns %u of a head's %u numbers: an "
                       "even part of them is planned for",
                       where, c->rotary_dim, c->head_dim);
    return experts_check_groups(table, c, where, err);
}

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .qk = HF_QK_LAST,
        .rotary = HF_ROTARY_BOTH,
        HF_LLAMA_NORMS,
        .tables_first = true,
        .moe = HF_DEEPSEEK_V3_MOE(HF_CORRECTION_FP32),
    };
    hf_decoder_build(graph, config, job, &way);
}

const struct family family_glm4_moe = {
    .name = "glm4_moe",
    .class_name = "Glm4MoeForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .check = glm4_moe_check,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
