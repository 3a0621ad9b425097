/* eurobert.c - EuroBERT: Llama whose tokens see all others, with a masked language model's head,
 * which has a bias where the feed-forward has. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static const struct hf_classifier classifier = {
    .dense = "dense",
    .activation = OP_GELU,
    .act = "activation",
    .out = "classifier",
};

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){
                         HF_LLAMA_NORMS,
                         .encoder = true,
                         .biased_head = config->mlp_bias,
                         .classifier = &classifier,
                     });
}

static const struct choice means[] = {
    {"late", NULL, false}, {"bos", NULL, false}, {"mean", NULL, true}, {NULL, NULL, false}};
static const struct choice lates[] = {
    {"late", NULL, true}, {"bos", NULL, false}, {"mean", NULL, false}, {NULL, NULL, false}};

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    LLAMA_KEYS(8192, 1e-5, 1e4),
    ATTENTION_BIASES(false),
    {FLAG("mlp_bias", mlp_bias, false)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    {CHOICE("classifier_pooling", pools_mean, "late", means)},
    {CHOICE("classifier_pooling", pools_late, "late", lates)},
};

static double parameters(const struct model_config *c)
{
    return count_llama(c) + (c->mlp_bias ? c->vocab : 0);
}

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* EuroBERT/EuroBERT-210m, -610m, -2.1B. EuroBertForMaskedLM. */
#define EUROBERT(title, count, h, l, a, k, f)                                                      \
    {title, count,                                                                                 \
     {GATED(ARCH_EUROBERT, h, l, a, k, h / a, f, 128256, 8192, 1e-5F, 2.5e5F),                     \
      .pools_late = true, .padding = 128001 + 1}}

static const struct model_preset presets[] = {
    EUROBERT("eurobert-210m", 310266624,  768,  12, 12, 12, 3072),
    EUROBERT("eurobert-610m", 755625600,  1152, 26, 18, 6,  4096),
    EUROBERT("eurobert-2.1b", 2403092736, 2304, 32, 18, 6,  6144),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_eurobert = {
    .name = "eurobert",
    .class_name = "EuroBertForMaskedLM",
    .classifier = "EuroBertForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .encoder = true,
    .heads_divide_hidden = true,
    .rope = true,
    .parameters = parameters,
    .padding = 128001 + 1,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
