/* bert.c - BERT with its masked language model head. */
#include "families/bert.h"

#include "model/count.h"

const struct choice bert_absolute_only[] = {{"absolute", NULL, false}, {NULL, NULL, false}};

double count_bert(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab, positions = c->max_positions;
    return c->layers * count_classic_block(c) + (v + positions + c->type_vocab) * h + 2 * h +
           count_linear(h, h, true) + 2 * h + v + (c->tied ? 0 : v * h + v);
}

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct bert_way way = {
        .root = "bert",
        .head = "cls.predictions",
        .dense = "transform.dense",
        .norm = "transform.LayerNorm",
        .act = "transform_act_fn",
        .classifier = {.head = "bert.pooler",
                       .returned = true,
                       .dense = "dense",
                       .activation = OP_TANH,
                       .act = "activation",
                       .dropout = "dropout",
                       .out = "classifier"},
    };
    bert_build(graph, config, job, &way);
}

static const struct key keys[] = {
    BERT_KEYS,
};

/* clang-format off */
/* BERT: google-bert/bert-{base,large}-uncased. BertForMaskedLM. */
static const struct model_preset presets[] = {
    BERT_PRESET(ARCH_BERT, "bert-base",  109514298, 768,  12, 12, 30522, 512, 2, 0, 1e-12F),
    BERT_PRESET(ARCH_BERT, "bert-large", 335174458, 1024, 24, 16, 30522, 512, 2, 0, 1e-12F),
};
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"bert-base-uncased", "bert-base"},
    {"bert-large-uncased", "bert-large"},
};

const struct family family_bert = {
    .name = "bert",
    .class_name = "BertForMaskedLM",
    .classifier = "BertForSequenceClassification",
    .block_class = "BertLayer",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .encoder = true,
    .heads_divide_hidden = true,
    .learned_positions = true,
    .parameters = count_bert,
    .padding = 0 + 1,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
