/* falcon_h1.c - Falcon-H1: attention and Mamba-2 beside each other in every layer. */
#include "hf/falcon_h1.h"
#include "families/granite.h"
#include "families/mamba.h"
#include "model/count.h"

/* Its norm, where there is one, comes behind the gate in training, whatever the file says. */
static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    HEAD_DIM_KEY,
    LLAMA_KEYS(8192, 1e-5, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {FLAG("mlp_bias", mlp_bias, false)},
    MAMBA_KEYS,
    {FLAG("projectors_bias", ssm_out_bias, false)},
    {BOOL("mamba_rms_norm", KEY_NOT, false), AT(ssm_unnormed)},
    MULTIPLIER("embedding_multiplier", embedding_multiplier),
    MULTIPLIER("lm_head_multiplier", logits_multiplier),
    MULTIPLIER("key_multiplier", key_multiplier),
    MULTIPLIER("attention_in_multiplier", attention_in_multiplier),
    MULTIPLIER("attention_out_multiplier", attention_out_multiplier),
    MULTIPLIER("ssm_in_multiplier", ssm_in_multiplier),
    MULTIPLIER("ssm_out_multiplier", ssm_out_multiplier),
};

/* So many numbers, all 1 where the file has none. */
static enum err_code take_list(const json_t *root, const char *where, const char *name,
                               size_t count, float *out, struct err *err)
{
    const json_t *list = json_object_get(root, name);
    const bool none = !list || json_is_null(list);
    for (size_t i = 0; i < count; i++) {
        const json_t *number = json_array_get(list, i);
        const double value = none ? 1 : json_number_value(number);
        if (!none && (json_array_size(list) != count || !json_is_number(number) ||
                      !(value >= 1e-9) || value > 1e9))
            return err_set(err, ERR_INVALID,
                           "%s: \"%s\": expected a list of %zu numbers 1e-09 ... 1e+09, or null",
                           where, name, count);
        out[i] = (float)value;
    }
    return ERR_OK;
}

static enum err_code read(const json_t *root, const char *where, struct model_config *c,
                          struct err *err)
{
    enum { PARTS = sizeof c->ssm_multipliers / sizeof *c->ssm_multipliers, INNER = 1024 };
    const json_t *inner = json_object_get(root, "mamba_d_ssm");
    float of_mlp[2] = {1, 1};
    TRY(take_list(root, where, "mlp_multipliers", 2, of_mlp, err));
    TRY(take_list(root, where, "ssm_multipliers", PARTS, c->ssm_multipliers, err));
    c->gate_multiplier = of_mlp[0];
    c->down_multiplier = of_mlp[1];
    if (json_is_null(inner))
        return mamba_read(root, where, c, err);
    if (inner && (!json_is_integer(inner) || json_integer_value(inner) < 1 ||
                  json_integer_value(inner) > HIDDEN_MAX))
        return err_set(err, ERR_INVALID,
                       "%s: \"mamba_d_ssm\": expected an integer 1 ... %d or null", where,
                       HIDDEN_MAX);
    return mamba_read_inner(root, where, inner ? (uint32_t)json_integer_value(inner) : INNER, c,
                            err);
}

static double parameters(const struct model_config *c)
{
    return count_llama(c) + c->layers * hf_mamba_count(c);
}

const struct family family_falcon_h1 = {
    .name = "falcon_h1",
    .class_name = "FalconH1ForCausalLM",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .padding = 0 + 1,
    .read = read,
    .settle = mamba_settle,
    .check = mamba_check,
    .parameters = parameters,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_falcon_h1},
};
