/* names.h - names of numbers, and names as people write them: alike, nearest, listed. */
#ifndef SHARDPLAN_NAMES_H
#define SHARDPLAN_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The texts of a list X(name, text, ...) that an enum is made of: what stands in the braces of an
 * array of strings, and the function that gives the text of one value. */
#define NAMES_OF(MAP) MAP(NAMES_TEXT)
#define NAMES_TEXT(name, ...) NAMES_FIRST(__VA_ARGS__, )
#define NAMES_FIRST(text, ...) text,
#define ENUM_NAME(function, type, MAP)                                                             \
    const char *function(type value)                                                               \
    {                                                                                              \
        static const char *const names[] = {NAMES_OF(MAP)};                                        \
        return names[value];                                                                       \
    }

/* Whether two spellings are one name. Letters count in any case. '-', '_' and ' ' count only
 * between two digits, where one stands for another, and '_' for a point, too: "Llama-3.1-8B",
 * "llama3.1_8b", "LLAMA 3_1-8b" are one name, "llama-2-7b" and "llama-27b" are two, as are
 * "llama-3.1-8b" and "llama-3-1-8b". */
bool names_alike(const char *a, const char *b);

/* Letters to insert, delete or replace to get from one name to the other (Levenshtein), without
 * regard to case; names are cut at 64. */
uint32_t names_distance(const char *a, const char *b);

/* Whether `name` is a likely meaning of a mistyped `text`: at most half of the longer one's letters
 * differ. */
bool names_near(const char *text, const char *name);

/* Whether `name` is a likelier meaning of a mistyped `text` than `other` (NULL: none yet): fewer
 * letters differ, or as many and it begins with more of the same ones ("h10" is h100, not a10). */
bool names_nearer(const char *text, const char *name, const char *other);

/* Whether `text` is `name` with a slip of the keyboard: what may as well be a name of its own has
 * to be closer than names_near. Paths ("training.seq_len") differ by so many letters as their last
 * part may: none up to 2, 1 up to 5, 2 above, which is what fuzzy search allows (AUTO of
 * Elasticsearch's fuzziness). */
bool names_misspelt(const char *text, const char *name);

/* How two names begin: with one word, letters up to what is none; with a slip of it ("lama-3-8b"
 * and "llama-2-7b"); or otherwise, and then one is a name of something else than the other, however
 * few letters differ: "mpt-7b" is not what "abc-7b" means. The nearer the larger. */
enum names_kin { NAMES_OTHERS, NAMES_SLIP, NAMES_KIN };
enum names_kin names_kin(const char *text, const char *name);

/* Whether `text`, of two words or more, is `name` but for one word ("gradient_accumulation" of
 * "gradient_accumulation_steps"). */
bool names_lacks_word(const char *text, const char *name);

/* Whether `text` is `name` but for the end of its last word ("gradient_checkpoint" of
 * "gradient_checkpointing"): up to four letters. */
bool names_lacks_end(const char *text, const char *name);

/* Whether one of the comma-separated glob patterns (fnmatch) matches the name. NULL: none does. */
bool names_match(const char *globs, const char *name);

/* Whether one of comma-separated patterns is the name: "layers.7"; "layers.3-9", with a range of
 * numbers behind plain text, which may go on behind it ("layers.3-9.mlp.experts"); or a glob
 * (fnmatch). NULL: none is. */
bool names_in(const char *patterns, const char *name);

/* "a, b, c" in text, cut where it is full; returns text. */
const char *names_list(const char *const *names, uint32_t count, char *text, size_t size);

#endif
