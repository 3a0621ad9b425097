/* phi3.c - Phi-3 and Phi-4: Llama with fused projections, and RoPE on the first numbers of a head.
 */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build_hf_phi3(struct graph *graph, const struct model_config *config,
                          const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){
                         HF_LLAMA_NORMS,
                         .fused_qkv = true,
                         .fused_gate_up = true,
                         .rotary = HF_ROTARY_PARTS,
                         .positions_first = true,
                         .attention_dropout = "resid_attn_dropout",
                         .mlp_dropout = "resid_mlp_dropout",
                     });
}

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    LLAMA_KEYS(4096, 1e-5, 1e4),
    {COUNT("original_max_position_embeddings", rope.original_positions, 4096, POSITIONS_MAX)},
    PARTIAL_ROTARY(1),
    DROPOUT("resid_pdrop", dropout, 0),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {WINDOW(RULE_NONE)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* microsoft/Phi-3-mini-4k-instruct, phi-4. Phi3ForCausalLM. */
#define PHI3(title, count, h, l, a, k, f, v, positions, base, window)                              \
    {title, count,                                                                                 \
     {GATED(ARCH_PHI3, h, l, a, k, h / a, f, v, positions, 1e-5F, base), .rotary_dim = h / a,      \
      .rope.original_positions = positions, .sliding_window = window}}

/* microsoft/Phi-4-mini-instruct: longrope, of 96 of a head's 128 numbers. */
#define PHI4_MINI_ROPE                                                                             \
    {.scaling = ROPE_LONGROPE, .theta = 1e4F, .original_positions = 4096,                          \
     .attention_factor = 1.19023807F, /* the root of 1 + ln 32 / ln 4096 */                        \
     .short_factor = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,       \
                      1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},      \
     .long_factor = {1, 1.118320672F, 1.250641126F, 1.398617824F, 1.564103225F, 1.74916897F,       \
                     1.956131817F, 2.187582649F, 2.446418898F, 2.735880826F, 3.059592084F,         \
                     3.421605075F, 3.826451687F, 4.279200023F, 4.785517845F, 5.351743533F,         \
                     5.984965424F, 6.693110555F, 7.485043894F, 8.370679318F, 9.36110372F,          \
                     10.4687158F, 11.70738129F, 13.09260651F, 14.64173252F, 16.37415215F,          \
                     18.31155283F, 20.47818807F, 22.90118105F, 25.61086418F, 28.64115884F,         \
                     32.03F, 32.1F, 32.13F, 32.23F, 32.6F, 32.61F, 32.64F, 32.66F, 32.7F, 32.71F,   \
                     32.93F, 32.97F, 33.28F, 33.49F, 33.5F, 44.16F, 47.77F}}

/* microsoft/Phi-3.5-mini-instruct: longrope. */
#define PHI35_MINI_ROPE                                                                            \
    {.scaling = ROPE_LONGROPE, .theta = 1e4F, .original_positions = 4096,                          \
     .attention_factor = 1.19023807F,                                                              \
     .short_factor = {1, 1.02F, 1.03F, 1.03F, 1.05F, 1.05F, 1.05F, 1.05F, 1.05F, 1.0699999F,       \
                      1.0999999F, 1.1099999F, 1.1599998F, 1.1599998F, 1.1699998F, 1.2899998F,      \
                      1.3399998F, 1.6799998F, 1.7899998F, 1.8199998F, 1.8499998F, 1.8799998F,      \
                      1.9099997F, 1.9399997F, 1.9899997F, 2.0199997F, 2.0199997F, 2.0199997F,      \
                      2.0199997F, 2.0199997F, 2.0199997F, 2.0299997F, 2.0299997F, 2.0299997F,      \
                      2.0299997F, 2.0299997F, 2.0299997F, 2.0299997F, 2.0299997F, 2.0299997F,      \
                      2.0799997F, 2.0899997F, 2.1899996F, 2.2199996F, 2.5899994F, 2.7299995F,      \
                      2.7499995F, 2.8399994F},                                                     \
     .long_factor = {1.08F, 1.11F, 1.14F, 1.34F, 1.5899999F, 1.6F, 1.62F, 2.6200001F, 3.23F,       \
                     3.23F, 4.79F, 7.4F, 7.7000003F, 9.09F, 12.2F, 17.67F, 24.460001F,             \
                     28.570002F, 30.420002F, 30.840002F, 32.590004F, 32.930004F, 42.320004F,       \
                     44.960003F, 50.340004F, 50.450005F, 57.550003F, 57.930004F, 58.210003F,       \
                     60.140003F, 62.610004F, 62.620003F, 62.710003F, 63.140003F, 63.140003F,       \
                     63.770004F, 63.930004F, 63.960003F, 63.97F, 64.03F, 64.07F, 64.08F, 64.12F,   \
                     64.41F, 64.48F, 64.51F, 64.53F, 64.84F}}

static const struct model_preset presets[] = {
    PHI3("phi-3-mini-4k", 3821079552,  3072, 32, 32, 32, 8192,  32064,  4096,  1e4F,   2047),
    PHI3("phi-4",         14659507200, 5120, 40, 40, 10, 17920, 100352, 16384, 2.5e5F, 0),
    {"phi-3.5-mini", 3821079552,
     {.arch = ARCH_PHI3, .hidden = 3072, .layers = 32, .heads = 32, .kv_heads = 32,
      .head_dim = 96, .ffn = 8192, .vocab = 32064, .max_positions = 131072, .norm_eps = 1e-5F,
      .init_std = 0.02F, .activation = "silu", .rotary_dim = 96, .sliding_window = 262144,
      .padding = 32000 + 1, .rope = PHI35_MINI_ROPE}},
    {"phi-4-mini", 3836021760,
     {.arch = ARCH_PHI3, .hidden = 3072, .layers = 32, .heads = 24, .kv_heads = 8,
      .head_dim = 128, .ffn = 8192, .vocab = 200064, .max_positions = 131072, .norm_eps = 1e-5F,
      .init_std = 0.02F, .activation = "silu", .tied = true, .rotary_dim = 96,
      .sliding_window = 262144, .padding = 199999 + 1, .rope = PHI4_MINI_ROPE}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"phi-3-mini", "phi-3-mini-4k"},
    {"phi-4-reasoning-plus", "phi-4"},
};

/* Phi3Config takes "su" and "yarn" of older files for longrope, and no other kind. */
static enum err_code check_scaling(const struct key_table *table, const struct model_config *c,
                                   const char *where, struct err *err)
{
    (void)table;
    const enum rope_scaling scaling = (enum rope_scaling)c->rope.scaling;
    if (scaling == ROPE_DEFAULT || scaling == ROPE_LONGROPE)
        return ERR_OK;
    return err_set(err, ERR_INVALID,
                   "%s: RoPE scaling \"%s\": phi3 has \"default\" and \"longrope\"", where,
                   rope_scaling_name(scaling));
}

const struct family family_phi3 = {
    .name = "phi3",
    .class_name = "Phi3ForCausalLM",
    .classifier = "Phi3ForSequenceClassification",
    .part_absent =
        "{\"hidden_size\": 3072, \"num_hidden_layers\": 32, "
        "\"num_attention_heads\": 32, \"intermediate_size\": 8192, \"vocab_size\": 32064}",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .check = check_scaling,
    .parameters = count_llama,
    .padding = 32000 + 1,
    .code = CODE_HF,
    .traced = true,
    .builder = {[CODE_HF] = build_hf_phi3},
};
