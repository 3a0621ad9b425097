/* camembert.c - CamemBERT: RoBERTa in French. */
#include "families/roberta.h"

static const struct key keys[] = {
    BERT_KEYS,
};

/* clang-format off */
/* almanach/camembert-base. CamembertForMaskedLM. */
static const struct model_preset presets[] = {
    BERT_PRESET(ARCH_CAMEMBERT, "camembert-base", 110655493, 768, 12, 12, 32005, 514, 1, 2, 1e-5F),
};
/* clang-format on */

const struct family family_camembert = {
    .name = "camembert",
    .class_name = "CamembertForMaskedLM",
    .classifier = "CamembertForSequenceClassification",
    .block_class = "CamembertLayer",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ROBERTA_FAMILY,
    .builder = {[CODE_HF] = roberta_build_head_first},
};
