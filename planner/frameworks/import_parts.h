/* import_parts.h - for import.c and import_keys.c only. */
#ifndef SHARDPLAN_IMPORT_PARTS_H
#define SHARDPLAN_IMPORT_PARTS_H

#include "frameworks/framework.h"

/* Sets what the document of *im says, of which the members before `arena` and what it is read over
 * are there. */
enum err_code import_take(struct import *im, struct settings *settings,
                          const struct setting_given *given, uint32_t given_count, struct err *err);

/* Lists a key, with the value that the file has for it; node NULL: it is a default's. What ends
 * with options ("; --store-dtype bf16") that were given so is overridden by them. */
void import_note(struct import *im, enum note_kind kind, const char *key, const struct node *node,
                 const char *text);

/* "--seq", "MODEL": what one types to give it, which lives as long as the import. */
const char *import_option(struct import *im, const struct setting *row);

/* Whether a key or an option has set the row. */
bool import_is_set(const struct import *im, const struct setting *row);

/* Whether two words are one to the framework. */
bool import_same_word(const struct framework *framework, const char *a, const char *b);

/* The row's word of that text; NULL: it has none. */
const struct key_word *import_find_word(const struct import *im, const struct key_row *row,
                                        const char *text);

/* ERR_INVALID with the words that the row has, and the nearest. */
enum err_code import_refuse_word(const struct import *im, const struct key_row *row,
                                 const struct node *node, const char *text, struct err *err);

#endif
