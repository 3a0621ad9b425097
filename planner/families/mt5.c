/* mt5.c - mT5: T5 whose feed-forward is gated, in many languages. MT5Config shares the embedding
 * with the head whatever the file says, and nothing scales the head's input. */
#include "families/t5.h"

static const struct key keys[] = {
    T5_KEYS("gated-gelu"),
    {FLAG("tie_word_embeddings", tied, false), .fixed = true},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* google/mt5-{small,base,large,xl,xxl}. MT5ForConditionalGeneration. */
#define MT5(title, count, h, l, a, f)                                                              \
    {title, count,                                                                                 \
     {T5_MODEL(ARCH_MT5, h, l, a, 64, f, 250112), .gated = true, .activation = "gelu_new"}}

static const struct model_preset presets[] = {
    MT5("mt5-small", 172119424, 512,  8,  6,  1024),
    MT5("mt5-base",  390315264, 768,  12, 12, 2048),
    MT5("mt5-large", 973466624, 1024, 24, 16, 2816),
    MT5("mt5-xl",    3230390272, 2048, 24, 32, 5120),
    MT5("mt5-xxl",   11896598528, 4096, 24, 64, 10240),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_mt5 = {
    .name = "mt5",
    .class_name = "MT5ForConditionalGeneration",
    .block_class = "MT5Block",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .parameters = t5_parameters,
    .code = CODE_HF,
    .builder = {[CODE_HF] = t5_build},
};
