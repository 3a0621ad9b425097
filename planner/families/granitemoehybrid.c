/* granitemoehybrid.c - Granite 4: Granite with a feed-forward by two products, perhaps beside a
 * mixture of experts, perhaps without RoPE, and with Mamba-2 in the place of attention in the
 * layers that the file says. */
#include "families/granite.h"
#include "families/mamba.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .fused_gate_up = true,
        .halves = "input_linear",
        .down = "output_linear",
        .mlp = "shared_mlp",
        .experts = "block_sparse_moe",
        .mlp_last = true,
        .attention_last = true,
        .unplaced = true,
        .embedded_last = true,
        .mixer = &hf_mixer_mamba,
        .moe = {.route = hf_route_granite,
                .gate = hf_gate_halves,
                .router = "router",
                .when = HF_SHARED_BESIDE},
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct choice layer_words[] = {
    {"attention", NULL, false}, {"full_attention", NULL, false},
    {"mamba", NULL, true},      {"linear_attention", NULL, true},
    {NULL, NULL, false},
};
static const struct choice position_words[] = {
    {"rope", NULL, false}, {"nope", NULL, true}, {NULL, NULL, false}};

/* Its feed-forward is what other files of Granite have beside experts. */
static const struct key keys[] = {
    SHAPE_KEYS,
    {SIZE("num_attention_heads", heads, HEADS_MAX)},
    {COUNT("shared_intermediate_size", ffn, 1024, FFN_MAX)},
    {COUNT("shared_intermediate_size", shared_ffn, 1024, FFN_MAX)},
    {COUNT("intermediate_size", expert_ffn, 11008, FFN_MAX)},
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    LLAMA_KEYS(2048, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    MULTIPLIER("embedding_multiplier", embedding_multiplier),
    MULTIPLIER("attention_multiplier", attention_multiplier),
    MULTIPLIER("residual_multiplier", residual_multiplier),
    MULTIPLIER("logits_scaling", logits_scaling),
    {CHOICE("position_embedding_type", unturned, "nope", position_words), .null = RULE_VALUE},
    {LAYER_LIST("layer_types", KEY_LAYERS, linear, layer_words, RULE_NONE),
     .other = "layers_block_type"},
    {.name = "num_local_experts",
     .type = KEY_INT,
     .max = EXPERTS_MAX,
     AT(experts),
     .absent = RULE_VALUE,
     .value = 8},
    {.name = "num_experts_per_tok",
     .type = KEY_INT,
     .max = EXPERTS_MAX,
     AT(experts_per_token),
     .absent = RULE_VALUE,
     .value = 2},
    EXPERT_WAYS,
    MAMBA_KEYS,
};

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    TRY(mamba_check(table, c, where, err));
    return c->experts ? experts_check(table, c, where, err) : ERR_OK;
}

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* ibm-granite/granite-4.0-h-350m, -1b, -micro, -tiny, -small. GraniteMoeHybridForCausalLM. */
#define GRANITE_H(title, count, h, l, a, k, d, f, m, e, scores, residual, logits)                  \
    {title, count,                                                                                 \
     {DRAWN(ARCH_GRANITEMOEHYBRID, h, l, a, k, d, f, 100352, 131072, 1e-5F, 1e4F, 1, 0.1F),        \
      .activation = "silu", .tied = true, .padding = 100256 + 1,                                   \
      .unturned = true, .embedding_multiplier = 12, .attention_multiplier = scores,                \
      .residual_multiplier = residual, .logits_scaling = logits, .shared_ffn = f, .ssm_heads = m,  \
      .ssm_head_dim = e, .ssm_state = 128, .ssm_groups = 1, .ssm_chunk = 256, .ssm_expand = 2,     \
      .conv_width = 4, .conv_bias = true,
#define MAMBA_OF_40 .linear = {true, {0xfdff7fdf, 0xf7}}

static const struct model_preset presets[] = {
    GRANITE_H("granite-4.0-h-350m", 340332224, 768, 32, 12, 4, 64, 2048, 48, 32, 0.015625F, 0.246F, 3)
      .expert_ffn = 2048, .linear = {true, {0xf7fddbff}}}},
    GRANITE_H("granite-4.0-h-1b", 1461538368, 1536, 40, 12, 4, 128, 4096, 48, 64, 0.0078125F, 0.22F, 6)
      .expert_ffn = 4096, MAMBA_OF_40}},
    GRANITE_H("granite-4.0-h-micro", 3191396096, 2048, 40, 32, 8, 64, 8192, 64, 64, 0.015625F, 0.22F, 8)
      .expert_ffn = 8192, MAMBA_OF_40}},
    GRANITE_H("granite-4.0-h-tiny", 6939037248, 1536, 40, 12, 4, 128, 1024, 48, 64, 0.0078125F, 0.22F, 6)
      .expert_ffn = 512, .experts = 64, .experts_per_token = 6, MAMBA_OF_40}},
    GRANITE_H("granite-4.0-h-small", 32207337984, 4096, 40, 32, 8, 128, 1536, 128, 64, 0.0078125F, 0.22F, 16)
      .expert_ffn = 768, .experts = 72, .experts_per_token = 10, MAMBA_OF_40}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_granitemoehybrid = {
    .name = "granitemoehybrid",
    .class_name = "GraniteMoeHybridForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .read = mamba_read,
    .settle = mamba_settle,
    .check = check,
    .parameters = count_mamba,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
