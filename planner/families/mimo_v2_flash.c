/* mimo_v2_flash.c - Xiaomi's MiMo-V2-Flash: windows in five layers of six, with more heads of keys
 * and sinks there; values narrower than keys; experts in groups. The layers that predict further
 * tokens are not part of the class. */
#include "families/llama.h"
#include "hf/mimo.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .norm = hf_rms_norm,
        .eager = true,
        .rotary = HF_ROTARY_BOTH,
        .masks_by_layer = true,
        .masks_of_types = true,
        .tables_by_layer = true,
        .layer = mimo_layer,
    };
    hf_decoder_build(graph, config, job, &way);
}

#define BY_TYPE(type, key) "rope_parameters." type "_attention." key
static const struct key keys[] = {
    SIZE_KEYS,
    {COUNT("num_key_value_heads", kv_heads, 4, HEADS_MAX)},
    {COUNT("head_dim", head_dim, 192, HEAD_DIM_MAX)},
    {COUNT("v_head_dim", v_dim, 128, HEAD_DIM_MAX)},
    {POSITIONS("max_position_embeddings", 131072)},
    EPS("rms_norm_eps", 1e-5),
    STD("initializer_range", 0.02),
    {NUMBER(BY_TYPE("full", "rope_theta"), rope.theta, 5e6, 1, 1e12)},
    {NUMBER(BY_TYPE("sliding", "rope_theta"), window_theta, 1e4, 1, 1e12)},
    {REAL(BY_TYPE("full", "partial_rotary_factor"), KEY_SHARE, rotary_dim, 0.334, 0.001, 1)},
    TIED(false),
    {CHOICE("hidden_act", gated, "silu", key_silu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("attention_bias", attention_bias, false)},
    {NUMBER("attention_value_scale", value_scale, 0.707, 1e-9, 1e6), .null = RULE_NONE},
    {SIZE("sliding_window", sliding_window, POSITIONS_MAX), .absent = RULE_VALUE, .value = 129},
    {LAYER_LIST("layer_types", KEY_LAYERS, windows, key_window_layers, RULE_NONE)},
    EXPERTS("n_routed_experts", "num_local_experts", 256, 8),
    EXPERT_WIDTH(2048),
    {COUNT("n_group", groups, 1, EXPERTS_MAX)},
    {COUNT("topk_group", topk_groups, 1, EXPERTS_MAX)},
    {NUMBER("routed_scaling_factor", routed_scaling, 1, 0, 1e6), .null = RULE_VALUE},
    {FIXED("first_k_dense_replace", dense_first, RULE_VALUE, LAYERS_MAX)},
    {LAYER_LIST("mlp_layer_types", KEY_LAYERS, dense, key_dense_layers, RULE_NONE)},
    {FLAG("norm_topk_prob", norm_topk, true)},
};

/* A window by the name that SGLang has for it, in which a query does not count; and RoPE turns as
 * much of a head in both types of layer. */
static enum err_code read(const json_t *root, const char *where, struct model_config *config,
                          struct err *err)
{
    const json_t *before = json_object_get(root, "sliding_window_size");
    const json_t *rope = json_object_get(root, "rope_parameters");
    const char *const types[] = {"full_attention", "sliding_attention"};
    double share[2];
    if (json_is_integer(before)) {
        const json_int_t count = json_integer_value(before);
        if (count < 0 || count >= POSITIONS_MAX)
            return err_set(err, ERR_INVALID,
                           "%s: \"sliding_window_size\": expected an integer 0 ... %d", where,
                           POSITIONS_MAX - 1);
        config->sliding_window = (uint32_t)count + 1;
    }
    for (int i = 0; i < 2; i++) {
        const json_t *value =
            json_object_get(json_object_get(rope, types[i]), "partial_rotary_factor");
        share[i] = json_is_number(value) ? json_number_value(value) : 0.334;
    }
    return share[0] == share[1]
               ? ERR_OK
               : err_set(err, ERR_INVALID,
                         "%s: \"partial_rotary_factor\": %g of a head in layers without a window "
                         "and %g in those with one: one share for both is planned for",
                         where, share[0], share[1]);
}

/* The first layer and every sixth see all tokens, where no list says which; a scale that is null is
 * 1. */
static void settle(struct model_config *c)
{
    for (uint32_t i = 0; i < c->layers && !c->windows.listed; i++)
        layer_put(&c->windows, i, i > 0 && (i + 1) % 6 != 0);
    c->windows.listed = true;
    if (!(c->value_scale > 0))
        c->value_scale = 1;
}

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    if (c->rotary_dim == 0 || c->rotary_dim % 2 != 0 || c->rotary_dim >= c->head_dim)
        return err_set(err, ERR_INVALID,
                       "%s: \"%s\": RoPE turns %u of a head's %u numbers: an even part of them is "
                       "planned for",
                       where, NAME_OF(table, rotary_dim), c->rotary_dim, c->head_dim);
    if (c->heads % (2 * c->kv_heads) != 0 || c->kv_heads == 1 || c->heads == 2 * c->kv_heads)
        return err_set(err, ERR_INVALID,
                       "%s: \"%s\": %u: 2 or more, of which twice as many divide "
                       "\"num_attention_heads\" and are fewer, are planned for",
                       where, NAME_OF(table, kv_heads), c->kv_heads);
    return experts_check_groups(table, c, where, err);
}

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, a = c->heads;
    double count = count_llama(c);
    for (uint32_t i = 0; i < c->layers; i++) {
        const double more = mimo_kv_heads(c, i) - c->kv_heads, kv = mimo_kv_heads(c, i);
        const double wide = more * c->head_dim, values = kv * c->v_dim,
                     as_keys = (double)c->kv_heads * c->head_dim;
        count += count_linear(wide, h, c->attention_bias);
        count += count_linear(values, h, c->attention_bias) -
                 count_linear(as_keys, h, c->attention_bias);
        count += a * h * ((double)c->v_dim - c->head_dim) + (model_has_window(c, i) ? a : 0);
    }
    return count;
}

const struct family family_mimo_v2_flash = {
    .name = "mimo_v2_flash",
    .class_name = "MiMoV2FlashForCausalLM",
    .keys = KEY_TABLE(keys),
    .read = read,
    .settle = settle,
    .check = check,
    .parameters = parameters,
    .uncompiled = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
