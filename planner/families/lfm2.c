/* lfm2.c - LFM2: most layers have a short convolution in the place of attention, the others Qwen3's
 * attention under other names. */
#include "families/lfm2.h"

#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    hf_decoder_build(graph, config, job, &(struct hf_decoder){HF_LFM2_LAYER});
}

const struct choice lfm2_layers[] = {
    {"conv", NULL, true}, {"full_attention", NULL, false}, {NULL, NULL, false}};

static const struct key keys[] = {
    LFM2_KEYS,
    {COUNT("intermediate_size", ffn, 12288, FFN_MAX)},
    {SIZE("block_ff_dim", ffn, FFN_MAX), .absent = RULE_KEEP},
    {FLAG("block_auto_adjust_ff_dim", narrow_ffn, true)},
    {REAL("block_ffn_dim_multiplier", KEY_DOUBLE, ffn_multiplier, 1, 1e-3, 1e3)},
    {COUNT("block_multiple_of", ffn_multiple, 256, FFN_MAX)},
    {.name = "full_attn_idxs",
     .type = KEY_OTHERS,
     AT(linear),
     .absent = RULE_NONE,
     .null = RULE_NONE,
     .unless = "layer_types"},
    LFM2_LAYERS(RULE_KEEP),
};

/* What Lfm2MLP makes of intermediate_size, in its double. */
static enum err_code read(const json_t *root, const char *where, struct model_config *c,
                          struct err *err)
{
    const char *name = json_object_get(root, "block_ff_dim") ? "block_ff_dim" : "intermediate_size";
    if (!c->narrow_ffn)
        return ERR_OK;
    const uint64_t narrow = (uint64_t)(2.0 * c->ffn / 3), multiple = c->ffn_multiple;
    const uint64_t scaled = (uint64_t)(c->ffn_multiplier * (double)narrow);
    const uint64_t wide = (scaled + multiple - 1) / multiple * multiple;
    if (wide == 0 || wide > FFN_MAX)
        return err_set(err, ERR_INVALID,
                       "%s: \"%s\": %u with \"block_ffn_dim_multiplier\": %g and "
                       "\"block_multiple_of\": %u makes feed-forwards of %llu: expected 1 ... %d",
                       where, name, c->ffn, c->ffn_multiplier, c->ffn_multiple,
                       (unsigned long long)wide, FFN_MAX);
    c->ffn = (uint32_t)wide;
    c->narrow_ffn = false;
    return ERR_OK;
}

enum err_code lfm2_check(const struct key_table *table, const struct model_config *c,
                         const char *where, struct err *err)
{
    if (!model_mixes(c) || c->hidden % CONV_CHANNELS == 0)
        return ERR_OK;
    return err_set(err, ERR_INVALID,
                   "%s: \"%s\": %u channels; causal-conv1d has kernels for a multiple of %d", where,
                   NAME_OF(table, hidden), c->hidden, CONV_CHANNELS);
}

double count_lfm2(const struct model_config *c)
{
    const double h = c->hidden, q = (double)c->heads * c->head_dim,
                 kv = (double)c->kv_heads * c->head_dim;
    const double attention = 2 * q * h + 2 * kv * h + 2.0 * c->head_dim;
    double sum = count_llama(c);
    for (uint32_t i = 0; i < c->layers; i++)
        if (model_is_linear(c, i))
            sum += hf_short_conv_count(c) - attention;
    return sum;
}

/* clang-format off */
/* LiquidAI/LFM2-350M ... LFM2-2.6B. Lfm2ForCausalLM. */
#define LFM2(title, count, h, l, a, f, conv) {title, count, {LFM2_SIZES(ARCH_LFM2, h, l, a, f, conv), .ffn_multiplier = 1, .ffn_multiple = 256}}

static const struct model_preset presets[] = {
    LFM2("lfm2-350m",  354483968, 1024, 16, 16,  4608, 0xaadb),
    LFM2("lfm2-700m",  742489344, 1536, 16, 24,  6912, 0xaadb),
    LFM2("lfm2-1.2b", 1170340608, 2048, 16, 32,  8192, 0xaadb),
    LFM2("lfm2-2.6b", 2569272320, 2048, 30, 32, 10752, 0x36dddddb),
};
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"lfm2.5-350m", "lfm2-350m"},       {"lfm2.5-1.2b", "lfm2-1.2b"},
    {"lfm2-vl-450m-text", "lfm2-350m"}, {"lfm2-vl-1.6b-text", "lfm2-1.2b"},
    {"lfm2-vl-3b-text", "lfm2-2.6b"},
};

/* Of Lfm2VlConfig, whatever its text_config says. */
static const struct key outer_keys[] = {
    TIED(true),
    {.name = "tie_embedding", .type = KEY_BOOL, AT(tied), .absent = RULE_KEEP, .max = 1},
};

const struct family family_lfm2 = {
    .name = "lfm2",
    .class_name = "Lfm2ForCausalLM",
    .outer = "lfm2_vl",
    .outer_keys = KEY_TABLE(outer_keys),
    .part_absent = LFM2_ABSENT("2560"),
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .padding = 0 + 1,
    .read = read,
    .check = lfm2_check,
    .parameters = count_lfm2,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
