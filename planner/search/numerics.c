/* numerics.c - see numerics.h. */
#include "search/numerics.h"

#include "settings/settings_resolve.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One more of a list: a setting, and what to say of it. */
__attribute__((format(printf, 3, 4))) static void add(struct numerics *out, const char *setting,
                                                      const char *format, ...)
{
    const size_t used = strlen(out->text);
    va_list arguments;
    const int more = snprintf(out->text + used, NUMERICS_TEXT - used, "%s", out->count ? ", " : "");
    const size_t at = used + (size_t)more;
    if (out->count < NUMERICS_MOST)
        out->settings[out->count++] = setting;
    if (at >= NUMERICS_TEXT)
        return;
    va_start(arguments, format);
    (void)vsnprintf(out->text + at, NUMERICS_TEXT - at, format, arguments);
    va_end(arguments);
}

enum { COMPUTES_IN = 48 };

/* `autocast`: beside one that casts at each operator, what parameters come in is what differs. */
static const char *computes_in(const struct job *job, bool autocast, char text[COMPUTES_IN])
{
    snprintf(text, COMPUTES_IN, "%s%s%s", dtype_brief(job->strategy.compute),
             autocast ? " parameters" : "", job->model.autocast ? " with bf16 autocast" : "");
    return text;
}

static void add_compute(const struct job *from, const struct job *to, struct numerics *out)
{
    char was[COMPUTES_IN], is[COMPUTES_IN];
    const bool autocast = from->model.autocast || to->model.autocast;
    if (from->model.autocast != to->model.autocast ||
        (!autocast && from->strategy.compute != to->strategy.compute))
        add(out, "param-dtype", "computes in %s instead of %s", computes_in(to, autocast, is),
            computes_in(from, autocast, was));
}

static void add_dtypes(const struct job *from, const struct job *to, struct numerics *out)
{
    const struct strategy *a = &from->strategy, *b = &to->strategy;
    add_compute(from, to, out);
    if (a->reduce != b->reduce)
        add(out, "reduce-dtype", "reduces in %s instead of %s", dtype_brief(b->reduce),
            dtype_brief(a->reduce));
    if (a->store != b->store)
        add(out, "store-dtype", "stores %s instead of %s", dtype_brief(b->store),
            dtype_brief(a->store));
}

bool numerics_is_dtype(const struct setting *row)
{
    static const char *const names[] = {"param-dtype", "reduce-dtype", "store-dtype", "autocast"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(row->name, names[i]) == 0)
            return true;
    return false;
}

/* Whether it is said by the dtypes, or leaves a step's tokens what they are. */
static bool is_said(const struct setting *row)
{
    return numerics_is_dtype(row) || strcmp(row->name, "micro-batch") == 0 ||
           strcmp(row->name, "accumulate") == 0;
}

/* By name: rows of two systems may share it. A system without the setting does what those who have
 * it do by default. */
static const char *named_value(const struct setting *row, const struct settings *settings,
                               char text[NUMBER_TEXT])
{
    const struct setting *own = settings_find(settings, row->name, NULL);
    const char *value = own ? setting_read(own, settings, text) : row->initial;
    return value ? value : "";
}

static void add_row(const struct setting *row, const struct settings *from,
                    const struct settings *to, struct numerics *out)
{
    char old[NUMBER_TEXT], new[NUMBER_TEXT];
    const char *was = named_value(row, from, old), *is = named_value(row, to, new);
    if (strcmp(was, is) == 0)
        return;
    if (setting_suits(row, to->job.strategy.system))
        add(out, row->name, "--%s %s", row->name, is);
    else if (!settings_find(to, row->name, NULL))
        add(out, row->name, "no --%s %s", row->name, was);
}

bool numerics_same_training(const struct settings *a, const struct settings *b)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        char of_a[NUMBER_TEXT], of_b[NUMBER_TEXT];
        if (rows[i].numerics && rows[i].group != GROUP_JOB && !numerics_is_dtype(&rows[i]) &&
            setting_is_of(&rows[i], a->command) &&
            strcmp(named_value(&rows[i], a, of_a), named_value(&rows[i], b, of_b)) != 0)
            return false;
    }
    return true;
}

void numerics_compare(const struct settings *from, const struct settings *to,
                      const struct model_config *config, struct numerics *out)
{
    struct job before, after;
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    *out = (struct numerics){.count = 0};
    if (settings_job(from, config, &before, NULL) == ERR_OK &&
        settings_job(to, config, &after, NULL) == ERR_OK)
        add_dtypes(&before, &after, out);
    for (uint32_t i = 0; i < count; i++)
        if (rows[i].numerics && (rows[i].axis || rows[i].wide) && !is_said(&rows[i]) &&
            setting_is_of(&rows[i], to->command))
            add_row(&rows[i], from, to, out);
}

const char *numerics_difference(const struct settings *from, const struct settings *to,
                                const struct model_config *config, char text[NUMERICS_TEXT])
{
    struct numerics numerics;
    numerics_compare(from, to, config, &numerics);
    memcpy(text, numerics.text, sizeof numerics.text);
    return text;
}

/* ---- another system, the same dtypes ---- */

static void keep_dtype(struct settings *to, const char *name, enum dtype has, enum dtype wanted)
{
    const struct setting *row = settings_find(to, name, NULL);
    if (row && has != wanted && !settings_is_given(to, row))
        (void)settings_set(to, name, dtype_brief(wanted), NULL);
}

void numerics_keep(const struct settings *from, const struct model_config *config,
                   struct settings *to)
{
    struct job before, after;
    if (settings_job(from, config, &before, NULL) != ERR_OK ||
        settings_job(to, config, &after, NULL) != ERR_OK)
        return;
    const struct strategy *a = &before.strategy, *b = &after.strategy;
    const bool half = a->compute == DTYPE_BF16 || a->compute == DTYPE_FP16;
    keep_dtype(to, "store-dtype", b->store, a->store);
    keep_dtype(to, "param-dtype", b->compute,
               before.model.autocast && !settings_find(to, "autocast", NULL)
                   ? DTYPE_BF16 /* what comes nearest */
                   : a->compute);
    keep_dtype(to, "reduce-dtype", b->reduce, a->reduce);
    if (!settings_find(to, "param-dtype", NULL) && half && a->compute != a->store)
        (void)settings_set(to, "autocast", "bf16", NULL);
}
