/* setting_words.h - the words of settings that other tables of the product have: for
 * setting_table.c alone. Each list ends with a word that is NULL. */
#ifndef SHARDPLAN_SETTING_WORDS_H
#define SHARDPLAN_SETTING_WORDS_H

#include "settings/setting.h"

extern const struct setting_word setting_attention_words[], setting_attention_to_run_words[];
extern const struct setting_word setting_torch_words[], setting_system_words[];
extern const struct setting_word setting_optimizer_words[], setting_saved_words[],
    setting_loss_words[], setting_units_words[], setting_kept_words[];

#endif
