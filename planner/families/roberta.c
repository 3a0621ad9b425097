/* roberta.c - RoBERTa: BERT whose positions are counted from the tokens that pad nothing. */
#include "families/roberta.h"

enum err_code roberta_check(const struct key_table *keys, const struct model_config *c,
                            const char *where, struct err *err)
{
    (void)keys;
    if (c->padding == 0 || c->padding >= c->max_positions)
        return err_set(err, ERR_INVALID,
                       "%s: \"pad_token_id\": expected a token of the vocabulary below "
                       "\"max_position_embeddings\", from which positions are counted",
                       where);
    return ERR_OK;
}

/* RobertaClassificationHead. */
#define CLASSIFIER                                                                                 \
    {                                                                                              \
        .head = "classifier", .whole = true, .dense = "dense", .activation = OP_TANH,              \
        .dropout = "dropout", .drops_first = true, .out = "out_proj"                               \
    }

#define ROBERTA                                                                                    \
    .root = "roberta", .head = "lm_head", .dense = "dense", .norm = "layer_norm",                  \
    .counted_positions = true, .classifier = CLASSIFIER

void roberta_build(struct graph *graph, const struct model_config *config,
                   const struct model_job *job)
{
    bert_build(graph, config, job, &(struct bert_way){ROBERTA});
}

void roberta_build_head_first(struct graph *graph, const struct model_config *config,
                              const struct model_job *job)
{
    bert_build(graph, config, job, &(struct bert_way){ROBERTA, .head_first = true});
}

static const struct key keys[] = {
    BERT_KEYS,
};

/* clang-format off */
/* FacebookAI/roberta-{base,large}. RobertaForMaskedLM. */
static const struct model_preset presets[] = {
    BERT_PRESET(ARCH_ROBERTA, "roberta-base", 124697433, 768, 12, 12, 50265, 514, 1, 2, 1e-5F),
    BERT_PRESET(ARCH_ROBERTA, "roberta-large", 355412057, 1024, 24, 16, 50265, 514, 1, 2, 1e-5F),
};
/* clang-format on */

const struct family family_roberta = {
    .name = "roberta",
    .class_name = "RobertaForMaskedLM",
    .classifier = "RobertaForSequenceClassification",
    .block_class = "RobertaLayer",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ROBERTA_FAMILY,
    .builder = {[CODE_HF] = roberta_build},
};
