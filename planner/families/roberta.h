/* roberta.h - what RoBERTa and those that are it under other names have in common: for the files of
 * this folder only. */
#ifndef SHARDPLAN_FAMILIES_ROBERTA_H
#define SHARDPLAN_FAMILIES_ROBERTA_H

#include "families/bert.h"

model_builder roberta_build;
/* The same with the head declared first. */
model_builder roberta_build_head_first;

/* Positions are counted from what pads. */
enum err_code roberta_check(const struct key_table *keys, const struct model_config *config,
                            const char *where, struct err *err);

/* clang-format off */
#define ROBERTA_FAMILY                                                                             \
    .encoder = true, .heads_divide_hidden = true, .learned_positions = true, .counted_positions = true,             \
    .padding = 1 + 1, .check = roberta_check, .parameters = count_bert, .code = CODE_HF
/* clang-format on */

#endif
