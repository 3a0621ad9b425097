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

/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* tiiuae/Falcon-H1-0.5B-Base, -1.5B-Base, ... FalconH1ForCausalLM. Of the larger ones the
 * instructed models have vocabularies of their own. Their multipliers are 1 here, as the class has
 * them where a file does not: each is a product whatever it is, and no plan goes by it. */
#define SIZES(title, count, h, l, a, k, d, f, v, positions, m, e, n, g)                            \
    {title, count,                                                                                 \
     {GATED(ARCH_FALCON_H1, h, l, a, k, d, f, v, positions, 1e-5F, 1e11F), .padding = 0 + 1,       \
      .conv_width = 4, .conv_bias = true, .ssm_heads = m, .ssm_head_dim = e, .ssm_state = n,       \
      .ssm_groups = g, .ssm_chunk = 128, .ssm_expand = 2,
#define ONES                                                                                       \
    .embedding_multiplier = 1, .logits_multiplier = 1, .key_multiplier = 1, .gate_multiplier = 1,  \
    .down_multiplier = 1, .attention_in_multiplier = 1, .attention_out_multiplier = 1,             \
    .ssm_in_multiplier = 1, .ssm_out_multiplier = 1, .ssm_multipliers = {1, 1, 1, 1, 1}
#define ALL 0xffffffff

static const struct model_preset presets[] = {
    SIZES("falcon-h1-0.5b", 521411104, 1024, 36, 8, 2, 64, 2048, 32784, 16384, 24, 64, 128, 1)
      .ssm_unnormed = true, .linear = {true, {ALL, 0xf}}, .embedding_multiplier = 5.65685425F,
      .logits_multiplier = 0.0390625F, .key_multiplier = 0.390625F,
      .gate_multiplier = 0.883883476F, .down_multiplier = 0.5859375F,
      .attention_in_multiplier = 1, .attention_out_multiplier = 0.9375F,
      .ssm_in_multiplier = 1.25F, .ssm_out_multiplier = 0.23570226F,
      .ssm_multipliers = {0.353553391F, 0.25F, 0.353553391F, 0.5F, 0.353553391F}}},
    SIZES("falcon-h1-1.5b-base", 1554859392, 2048, 24, 8, 2, 128, 4608, 65536, 131072, 48, 64, 256, 1)
      .linear = {true, {0xffffff}}, ONES}},
    SIZES("falcon-h1-1.5b-deep-base", 1554872208, 1280, 66, 6, 2, 128, 3072, 65536, 131072, 24, 64, 256, 1)
      .linear = {true, {ALL, ALL, 0x3}}, ONES}},
    SIZES("falcon-h1-3b-base", 3149387264, 2560, 32, 10, 2, 128, 6144, 65536, 131072, 32, 128, 256, 1)
      .linear = {true, {ALL}}, ONES}},
    SIZES("falcon-h1-7b-base", 7585648736, 3072, 44, 12, 2, 128, 12288, 130048, 262144, 24, 128, 256, 1)
      .linear = {true, {ALL, 0xfff}}, ONES}},
    SIZES("falcon-h1-34b-base", 33642516224, 5120, 72, 20, 4, 128, 21504, 261120, 262144, 32, 128, 256, 2)
      .linear = {true, {ALL, ALL, 0xff}}, ONES}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_falcon_h1 = {
    .name = "falcon_h1",
    .class_name = "FalconH1ForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .padding = 0 + 1,
    .read = read,
    .settle = mamba_settle,
    .check = mamba_check,
    .parameters = parameters,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_falcon_h1},
};
