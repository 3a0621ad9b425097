/* options.c - see options.h. */
#include "report/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Characters of the option that a text begins with. */
static size_t length_of(const char *text)
{
    const char *next = strstr(text, " --");
    return next ? (size_t)(next - text) : strlen(text);
}

/* Behind an option, at the next one or at the end. */
static const char *behind(const char *option)
{
    const char *next = option + length_of(option);
    return *next ? next + 1 : next;
}

static bool has(const char *text, const char *option)
{
    const size_t length = length_of(option);
    for (; *text; text = behind(text))
        if (length_of(text) == length && memcmp(text, option, length) == 0)
            return true;
    return false;
}

static bool all_have(const char *const *texts, uint32_t count, const char *option)
{
    for (uint32_t i = 0; i < count; i++)
        if (!has(texts[i], option))
            return false;
    return true;
}

static const char *with(const char *list, const char *option, struct arena *arena)
{
    return arena_printf(arena, "%s%s%.*s", list, *list ? " " : "", (int)length_of(option), option);
}

const char *options_common(const char *const *texts, uint32_t count, struct arena *arena)
{
    const char *common = "";
    if (count < 2)
        return common;
    for (const char *option = texts[0]; *option; option = behind(option))
        if (all_have(texts + 1, count - 1, option))
            common = with(common, option, arena);
    return common;
}

const char *options_besides(const char *text, const char *common, struct arena *arena)
{
    const char *list = "";
    for (; *text; text = behind(text))
        if (!has(common, text))
            list = with(list, text, arena);
    return list;
}
