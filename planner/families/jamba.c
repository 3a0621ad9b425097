/* jamba.c - Jamba: Mamba-1 in the place of attention in seven layers of eight, no RoPE, and a
 * mixture of experts in every second layer. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

#include <string.h>

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .norm = hf_rms_norm,
        .norms = {{".input_layernorm", HF_BEFORE_ATTENTION}, {".pre_ff_layernorm", HF_BEFORE_MLP}},
        .mlp = "feed_forward",
        .last_norm = "final_layernorm",
        .masks_by_layer = true,
        .tables_first = true,
        .mixer = &hf_mixer_mamba1,
        .moe = {.route = hf_route_jamba, .gate = hf_gate_halves, .router = "router"},
    };
    hf_decoder_build(graph, config, job, &way);
}

/* mamba-ssm: "selective_scan only supports state dimension <= 256" */
enum { STATE_MAX = 256 };

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    {FIXED("head_dim", head_dim, RULE_HEAD_SIZE, HEAD_DIM_MAX)},
    {POSITIONS("max_position_embeddings", 262144)},
    EPS("rms_norm_eps", 1e-6),
    STD("initializer_range", 0.02),
    TIED(false),
    {CHOICE("hidden_act", gated, "silu", key_silu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    {ALWAYS("no RoPE", unturned)},
    EXPERTS("num_experts", "num_local_experts", 16, 2),
    {COUNT("mamba_d_state", ssm_state, 16, STATE_MAX)},
    {REAL("mamba_d_conv", KEY_INT, conv_width, 4, CONV_WIDTH_MIN, CONV_WIDTH_MAX)},
    {COUNT("mamba_expand", ssm_expand, 2, 64)},
    {FLAG("mamba_conv_bias", conv_bias, true)},
    {ONLY("mamba_proj_bias", false)},
};

/* Of so many layers one, at an offset: lists those that are not. */
static enum err_code take_period(const json_t *root, const char *where, const char *period,
                                 const char *offset, uint32_t every, uint32_t at, uint32_t layers,
                                 struct layer_list *list, struct err *err)
{
    TRY(key_integer(root, where, period, 1, LAYERS_MAX, every, &every, err));
    TRY(key_integer(root, where, offset, 0, LAYERS_MAX, at, &at, err));
    if (at >= every)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u is not less than \"%s\": %u", where,
                       offset, at, period, every);
    list->listed = true;
    for (uint32_t i = 0; i < layers; i++)
        layer_put(list, i, i % every != at);
    return ERR_OK;
}

/* Which layers have attention, and which experts; "mamba_dt_rank" may be "auto". */
static enum err_code read(const json_t *root, const char *where, struct model_config *c,
                          struct err *err)
{
    enum { RANK_SHARE = 16 }; /* of the hidden size, rounded up */
    const char *words = json_string_value(json_object_get(root, "mamba_dt_rank"));
    c->scan_rank = (c->hidden + RANK_SHARE - 1) / RANK_SHARE;
    if (!words || strcmp(words, "auto") != 0)
        TRY(key_integer(root, where, "mamba_dt_rank", 1, HIDDEN_MAX, c->scan_rank, &c->scan_rank,
                        err));
    TRY(take_period(root, where, "attn_layer_period", "attn_layer_offset", 8, 4, c->layers,
                    &c->linear, err));
    return take_period(root, where, "expert_layer_period", "expert_layer_offset", 2, 1, c->layers,
                       &c->dense, err);
}

/* One expert is a feed-forward. */
static void settle(struct model_config *c)
{
    for (uint32_t i = 0; i < c->layers && c->experts == 1; i++)
        layer_put(&c->dense, i, true);
}

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    if (model_mixes(c))
        TRY(hf_mamba1_check(table, c, where, err));
    return c->experts > 1 ? experts_check(table, c, where, err) : ERR_OK;
}

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, q = (double)c->heads * c->head_dim,
                 kv = (double)c->kv_heads * c->head_dim;
    double sum = count_llama(c);
    for (uint32_t i = 0; i < c->layers; i++)
        sum += model_is_linear(c, i) ? hf_mamba1_count(c) - 2 * h * (q + kv) : 0;
    return sum;
}

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* ai21labs/Jamba-v0.1. JambaForCausalLM. Bits of layers: all but every eighth, from the fifth, and
 * every second, from the first. */
static const struct model_preset presets[] = {
    {"jamba-v0.1", 51570323328,
     {DECODER(ARCH_JAMBA, 4096, 32, 32, 8, 128, 14336, 65536, 262144, 1e-6F, 0),
      .activation = "silu", .padding = 0 + 1, .unturned = true,
      .linear = {.listed = true, .bits = {0xEFEFEFEF}}, .scan_rank = 256, .ssm_state = 16,
      .ssm_expand = 2, .conv_width = 4, .conv_bias = true, .experts = 16, .experts_per_token = 2,
      .dense = {.listed = true, .bits = {0x55555555}}}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_jamba = {
    .name = "jamba",
    .class_name = "JambaForCausalLM",
    .classifier = "JambaForSequenceClassification",
    .block_class = "JambaAttentionDecoderLayer,JambaMambaDecoderLayer",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .read = read,
    .settle = settle,
    .check = check,
    .parameters = parameters,
    .padding = 0 + 1,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
