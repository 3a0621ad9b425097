/* pattern.c - see pattern.h. */
#include "base/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

struct pattern {
    pcre2_code *code;
    pcre2_match_data *found;
};

static void *lend(size_t bytes, void *arena)
{
    return arena_lend(arena, bytes);
}

/* All that is lent goes with the arena. */
static void keep(void *at, void *arena)
{
    (void)at;
    (void)arena;
}

bool pattern_is(const char *text)
{
    return strpbrk(text, "*+?()[]{}|\\^$") != NULL;
}

enum err_code pattern_read(const char *text, const char *option, struct arena *arena,
                           struct pattern **out, struct err *err)
{
    pcre2_general_context *memory = pcre2_general_context_create(lend, keep, arena);
    pcre2_compile_context *context = memory ? pcre2_compile_context_create(memory) : NULL;
    struct pattern *pattern = arena_alloc(arena, sizeof *pattern);
    int wrong = PCRE2_ERROR_NOMEMORY;
    size_t at = 0;
    if (context)
        pattern->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                      PCRE2_ANCHORED | PCRE2_ENDANCHORED, &wrong, &at, context);
    if (pattern->code)
        pattern->found = pcre2_match_data_create_from_pattern(pattern->code, memory);
    if (!pattern->found) {
        PCRE2_UCHAR why[128] = "";
        pcre2_get_error_message(wrong, why, sizeof why);
        return err_set(err, ERR_INVALID, "%s %.200s: no regular expression: %s, at character %zu",
                       option, text, (const char *)why, at + 1);
    }
    *out = pattern;
    return ERR_OK;
}

bool pattern_matches(const struct pattern *pattern, const char *text)
{
    return pcre2_match(pattern->code, (PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, 0, 0, pattern->found,
                       NULL) > 0;
}
