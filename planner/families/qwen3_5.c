/* qwen3_5.c - Qwen 3.5: of four layers three have linear attention, and the fourth attention whose
 * output is gated. */
#include "families/qwen3_5.h"

#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {HF_GATED_LAYER, .tables_first = true,
                                          .grids = HF_GRIDS_WOVEN};
    hf_decoder_build(graph, config, job, &way);
}

const struct choice delta_layers[] = {
    {"linear_attention", NULL, true}, {"full_attention", NULL, false}, {NULL, NULL, false}};

static const struct key keys[] = {
    DELTA_KEYS(4),
    {SIZE("intermediate_size", ffn, FFN_MAX)},
    {ALWAYS("mrope", grids)},
};

/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */
/* Text models of Qwen/Qwen3.5-9B (what Qwen3_5TextConfig is by default), -0.8B, -4B, -27B. */
#define QWEN3_5(title, count, h, l, a, k, f, values, shared)                                       \
    {title, count,                                                                                 \
     {GATED(ARCH_QWEN3_5, h, l, a, k, 256, f, 248320, 262144, 1e-6F, 1e7F), DELTA_SIZES(values),   \
      QWEN3_5_GRIDS, .tied = shared}}

static const struct model_preset presets[] = {
    QWEN3_5("qwen3.5-9b-text",   8953803264,  4096, 32, 16, 4, 12288, 32, false),
    QWEN3_5("qwen3.5-0.8b-text", 752393024,   1024, 24, 8,  2, 3584,  16, true),
    QWEN3_5("qwen3.5-4b-text",   4205751296,  2560, 32, 16, 4, 9216,  32, true),
    QWEN3_5("qwen3.5-27b-text",  26895998464, 5120, 64, 24, 4, 17408, 48, false),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

enum err_code delta_check(const struct key_table *table, const struct model_config *c,
                          const char *where, struct err *err)
{
    if (c->delta_value_heads % c->delta_key_heads)
        return key_does_not_divide(where, NAME_OF(table, delta_key_heads), c->delta_key_heads,
                                   NAME_OF(table, delta_value_heads), c->delta_value_heads, err);
    const uint32_t channels = hf_delta_channels(c);
    if (channels % CONV_CHANNELS)
        return err_set(err, ERR_INVALID,
                       "%s: \"%s\": %u of \"%s\": %u, twice, and \"%s\": %u of \"%s\": %u are %u "
                       "channels; causal-conv1d has kernels for a multiple of %d",
                       where, NAME_OF(table, delta_key_heads), c->delta_key_heads,
                       NAME_OF(table, delta_key_dim), c->delta_key_dim,
                       NAME_OF(table, delta_value_heads), c->delta_value_heads,
                       NAME_OF(table, delta_value_dim), c->delta_value_dim, channels,
                       CONV_CHANNELS);
    return ERR_OK;
}

enum err_code delta_check_experts(const struct key_table *table, const struct model_config *c,
                                  const char *where, struct err *err)
{
    TRY(delta_check(table, c, where, err));
    return experts_check(table, c, where, err);
}

double count_delta(const struct model_config *c)
{
    const double h = c->hidden, q = (double)c->heads * c->head_dim,
                 kv = (double)c->kv_heads * c->head_dim;
    const double query = count_linear(q, h, c->attention_bias); /* and so is its gate */
    const double attention = query + 2 * count_linear(kv, h, c->attention_bias) +
                             count_linear(h, q, c->output_bias) + 2.0 * c->head_dim;
    double sum = count_llama(c);
    for (uint32_t i = 0; i < c->layers; i++)
        sum += model_is_linear(c, i) ? hf_delta_count(c) - attention : query;
    return sum;
}

const struct family family_qwen3_5 = {
    .name = "qwen3_5_text",
    .class_name = "Qwen3_5ForCausalLM",
    .classifier = "Qwen3_5TextForSequenceClassification",
    .outer = "qwen3_5",
    .part_absent =
        "{\"hidden_size\": 4096, \"num_hidden_layers\": 32, \"num_attention_heads\": 16, "
        "\"intermediate_size\": 12288, \"vocab_size\": 248320}",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope_lacks = QWEN3_5_ROPE_LACKS,
    .woven_grids = true,
    .check = delta_check,
    .parameters = count_delta,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
