/* pattern.h - regular expressions as Python writes them, over PCRE2, whose syntax that is but for
 * names that nobody asks layers by.
 */
#ifndef SHARDPLAN_PATTERN_H
#define SHARDPLAN_PATTERN_H

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>

struct pattern;

/* Whether a text has characters that names of modules do not have. */
bool pattern_is(const char *text);

/* What a text stands for; it lives in the arena. ERR_INVALID: it is no pattern, and `option`, which
 * asked for it, is named. */
enum err_code pattern_read(const char *text, const char *option, struct arena *arena,
                           struct pattern **out, struct err *err);

/* Whether all of a text is what the pattern stands for (re.fullmatch). */
bool pattern_matches(const struct pattern *pattern, const char *text);

#endif
