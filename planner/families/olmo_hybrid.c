/* olmo_hybrid.c - OLMo Hybrid: OLMo 2's layers where there is attention, perhaps without RoPE, and
 * in the others Llama's norms around linear attention by the gated delta rule. */
#include "families/olmo.h"
#include "families/qwen3_5.h"
#include "model/count.h"

#include <string.h>

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder linear = {
        .norm = hf_rms_norm_wide,
        HF_NORM_NAMES,
        .attention_last = true,
        .mixer = &hf_mixer_delta,
    };
    static const struct hf_decoder way = {
        HF_OLMO_LAYER,     .masks_by_layer = true, .tables_first = true, .mixer = &hf_mixer_delta,
        .mixing = &linear,
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    OLMO_KEYS,
    {NUMBER("rope_theta", rope.theta, 1e4, 1, 1e12), .other = "rope_parameters.rope_theta",
     .null = RULE_VALUE},
    {DERIVED("linear_num_key_heads", delta_key_heads, RULE_HEADS, HEADS_MAX)},
    {DERIVED("linear_num_value_heads", delta_value_heads, RULE_HEADS, HEADS_MAX)},
    {DERIVED("linear_key_head_dim", delta_key_dim, RULE_NONE, DELTA_KEY_MAX)},
    {DERIVED("linear_value_head_dim", delta_value_dim, RULE_NONE, HEAD_DIM_MAX)},
    {REAL("linear_conv_kernel_dim", KEY_INT, conv_width, 4, CONV_WIDTH_MIN, CONV_WIDTH_MAX)},
    {FLAG("linear_allow_neg_eigval", delta_twice, true)},
    {ALWAYS("q_proj", delta_apart)},
    {LAYER_LIST("layer_types", KEY_LAYERS, linear, delta_layers, RULE_NONE)},
};

/* A theta that is null is no RoPE, as published files have it. */
static enum err_code read(const json_t *root, const char *where, struct model_config *config,
                          struct err *err)
{
    static const char *const objects[] = {"rope_parameters", "rope_scaling"};
    (void)where;
    (void)err;
    config->unturned = json_is_null(json_object_get(root, "rope_theta"));
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
        config->unturned |=
            json_is_null(json_object_get(json_object_get(root, objects[i]), "rope_theta"));
    return ERR_OK;
}

/* Three quarters of the hidden size are heads of keys, values are twice as wide, and the fourth
 * layer of four has attention, or else the last, where the file does not say so. */
static void settle(struct model_config *c)
{
    if (!c->delta_key_dim && c->delta_key_heads)
        c->delta_key_dim = (uint32_t)(0.75 * c->hidden / c->delta_key_heads);
    if (!c->delta_value_dim)
        c->delta_value_dim = 2 * c->delta_key_dim;
    for (uint32_t i = 0; i < c->layers && !c->linear.listed; i++) {
        const bool attends = i % 4 == 3 || (c->layers < 4 && i + 1 == c->layers);
        layer_put(&c->linear, i, !attends);
    }
    c->linear.listed = true;
}

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    if (!model_mixes(c) || !model_attends(c))
        return err_set(err, ERR_INVALID,
                       "%s: \"layer_types\": expected \"linear_attention\" and \"full_attention\", "
                       "each of a layer at least",
                       where);
    return delta_check(table, c, where, err);
}

static double parameters(const struct model_config *c)
{
    const double q = (double)c->heads * c->head_dim, kv = (double)c->kv_heads * c->head_dim,
                 h = c->hidden;
    const double attention = count_linear(q, h, c->attention_bias) +
                             2 * count_linear(kv, h, c->attention_bias) +
                             count_linear(h, q, c->output_bias) + q + kv;
    double sum = count_olmo(c);
    for (uint32_t i = 0; i < c->layers; i++)
        sum += model_is_linear(c, i) ? hf_delta_count(c) - attention : 0;
    return sum;
}

const struct family family_olmo_hybrid = {
    .name = "olmo_hybrid",
    .class_name = "OlmoHybridForCausalLM",
    .block_class = "OlmoHybridAttentionDecoderLayer,OlmoHybridLinearAttentionDecoderLayer",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .read = read,
    .settle = settle,
    .check = check,
    .parameters = parameters,
    .padding = 100277 + 1,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
