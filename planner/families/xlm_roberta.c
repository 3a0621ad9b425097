/* xlm_roberta.c - XLM-R: RoBERTa of a hundred languages. */
#include "families/roberta.h"

static const struct key keys[] = {
    BERT_KEYS,
};

/* clang-format off */
/* FacebookAI/xlm-roberta-{base,large}. XLMRobertaForMaskedLM. */
static const struct model_preset presets[] = {
    BERT_PRESET(ARCH_XLM_ROBERTA, "xlm-roberta-base", 278295186, 768, 12, 12, 250002, 514, 1, 2, 1e-5F),
    BERT_PRESET(ARCH_XLM_ROBERTA, "xlm-roberta-large", 560142482, 1024, 24, 16, 250002, 514, 1, 2, 1e-5F),
};
/* clang-format on */

const struct family family_xlm_roberta = {
    .name = "xlm-roberta",
    .class_name = "XLMRobertaForMaskedLM",
    .classifier = "XLMRobertaForSequenceClassification",
    .block_class = "XLMRobertaLayer",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ROBERTA_FAMILY,
    .builder = {[CODE_HF] = roberta_build_head_first},
};
