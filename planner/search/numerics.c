/* numerics.c - see numerics.h. */
#include "search/numerics.h"

#include "settings/settings_resolve.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One more of a list. */
__attribute__((format(printf, 2, 3))) static void add(char text[NUMERICS_TEXT], const char *format,
                                                      ...)
{
    const size_t used = strlen(text);
    va_list arguments;
    const int more = snprintf(text + used, NUMERICS_TEXT - used, "%s", used ? ", " : "");
    const size_t at = used + (size_t)more;
    if (at >= NUMERICS_TEXT)
        return;
    va_start(arguments, format);
    (void)vsnprintf(text + at, NUMERICS_TEXT - at, format, arguments);
    va_end(arguments);
}

static const char *computes_in(const struct job *job)
{
    return job->model.autocast ? "autocast to bf16" : dtype_brief(job->strategy.compute);
}

static void add_dtypes(const struct job *from, const struct job *to, char text[NUMERICS_TEXT])
{
    const struct strategy *a = &from->strategy, *b = &to->strategy;
    if (strcmp(computes_in(from), computes_in(to)) != 0)
        add(text, "computes in %s instead of %s", computes_in(to), computes_in(from));
    if (a->reduce != b->reduce)
        add(text, "reduces in %s instead of %s", dtype_brief(b->reduce), dtype_brief(a->reduce));
    if (a->store != b->store)
        add(text, "stores %s instead of %s", dtype_brief(b->store), dtype_brief(a->store));
}

/* Whether it is said by the dtypes, or leaves a step's tokens what they are. */
static bool is_said(const struct setting *row)
{
    static const char *const said[] = {"micro-batch",  "accumulate",  "param-dtype",
                                       "reduce-dtype", "store-dtype", "autocast"};
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++)
        if (strcmp(row->name, said[i]) == 0)
            return true;
    return false;
}

/* A system without the setting does what those who have it do by default. */
static const char *value_of(const struct setting *row, const struct settings *settings,
                            char text[NUMBER_TEXT])
{
    const bool has = setting_suits(row, settings->job.strategy.system);
    const char *value = has ? setting_read(row, settings, text) : row->initial;
    return value ? value : "";
}

const char *numerics_difference(const struct settings *from, const struct settings *to,
                                const struct model_config *config, char text[NUMERICS_TEXT])
{
    struct job before, after;
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    text[0] = '\0';
    if (settings_job(from, config, &before, NULL) == ERR_OK &&
        settings_job(to, config, &after, NULL) == ERR_OK)
        add_dtypes(&before, &after, text);
    for (uint32_t i = 0; i < count; i++) {
        char old[NUMBER_TEXT], new[NUMBER_TEXT];
        if (!rows[i].numerics || !rows[i].axis || is_said(&rows[i]) ||
            !setting_is_of(&rows[i], to->command))
            continue;
        const char *is = value_of(&rows[i], to, new);
        if (strcmp(value_of(&rows[i], from, old), is) != 0)
            add(text, "--%s %s", rows[i].name, is);
    }
    return text;
}
