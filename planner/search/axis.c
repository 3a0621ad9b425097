/* axis.c - see axis.h. */
#include "search/axis.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char PROFILE_PREFIX[] = "profile.";
static const char SYSTEM_SETTING[] = "strategy";
static const char FILE_SETTING[] = "from"; /* read before any other: it stands for many */

/* ---- names ---- */

/* The row of a name in the base's system or, failing that, in any that can be planned. */
static const struct setting *find_row(const struct settings *base, const char *name,
                                      struct err *err)
{
    const struct setting *row = settings_find(base, name, NULL);
    for (uint32_t i = 0; !row && i < SYSTEM_COUNT; i++) {
        struct settings other = *base;
        other.job.strategy.system = (enum system_kind)i;
        if (system_is_planned((enum system_kind)i))
            row = settings_find(&other, name, NULL);
    }
    if (!row)
        settings_find(base, name, err);
    char *near = !row && err ? strstr(err->text, "; did you mean --from?") : NULL;
    if (near)
        *near = '\0'; /* which is no axis */
    return row;
}

static enum err_code find_name(const struct settings *base, const char *name, struct arena *arena,
                               struct axis *axis, struct err *err)
{
    const size_t prefix = sizeof PROFILE_PREFIX - 1;
    *axis = (struct axis){.key = PROFILE_KEYS};
    if (strncmp(name, PROFILE_PREFIX, prefix) == 0) {
        axis->key = profile_key_named(name + prefix, err);
        if (axis->key == PROFILE_KEYS)
            return ERR_INVALID;
        if (axis->key == PROFILE_NODE_GPUS) /* it follows before, or is given */
            return err_set(err, ERR_INVALID,
                           "%s: how many GPUs of a node a job has is a setting: --over "
                           "gpus-per-node=8,16",
                           name);
        axis->name = arena_printf(arena, "%s%s", PROFILE_PREFIX, profile_key_name(axis->key));
        return ERR_OK;
    }
    axis->row = find_row(base, name, err);
    if (!axis->row)
        return ERR_INVALID;
    if (axis->row->group == GROUP_OUTPUT || axis->row->group == GROUP_SWEEP)
        return err_set(err, ERR_INVALID, "--%s changes nothing that is predicted", axis->row->name);
    if (strcmp(axis->row->name, FILE_SETTING) == 0)
        return err_set(err, ERR_INVALID,
                       "--%s stands for the settings in a file and is no axis: a command for each "
                       "file, or `diff` of their plans",
                       axis->row->name);
    axis->name = axis->row->name;
    return ERR_OK;
}

/* ---- values ---- */

struct values {
    const char **at;
    uint32_t count, cap;
};

static void add_value(struct values *values, const char *text)
{
    ARRAY_GROW(values->at, values->count, values->cap);
    values->at[values->count++] = text;
}

/* "x0.5", "25e9", "80GiB": a number of the profile. */
static bool read_number(const char *text, struct choice_number *out)
{
    uint64_t bytes;
    out->scales = text[0] == 'x';
    if (number_real(text + out->scales, &out->value))
        return true;
    if (out->scales || !number_bytes(text, &bytes))
        return false;
    out->value = (double)bytes;
    return true;
}

static enum err_code check_value(const struct settings *base, const struct axis *axis,
                                 const char *text, struct err *err)
{
    struct choice_number number;
    struct settings scratch = *base;
    if (axis->row)
        return setting_write(axis->row, &scratch, text, err);
    return read_number(text, &number)
               ? ERR_OK
               : err_set(err, ERR_INVALID,
                         "%s=%.100s: expected a number, or x and how often the present one",
                         axis->name, text);
}

struct range { /* from, from + step ... or from, from * factor ... up to `to` */
    uint64_t from, to, step, factor;
};

/* Whether a setting's numbers may be said in thousands: "8k". */
static bool takes_kilo(const struct setting *row)
{
    bool takes = false;
    for (size_t i = 0; row && i < sizeof row->numbers / sizeof *row->numbers; i++)
        takes = takes || row->numbers[i].kilo;
    return takes;
}

static bool read_part(const struct setting *row, const char *text, size_t length, uint64_t *out)
{
    char part[NUMBER_TEXT];
    if (length >= sizeof part)
        return false;
    memcpy(part, text, length);
    part[length] = '\0';
    return number_integer(part, out) || (takes_kilo(row) && number_kilo(part, out));
}

/* "1..8", "1..64x2", "512..4096+512", "2k..16k+2k". */
static bool read_range(const struct setting *row, const char *text, struct range *out)
{
    const char *dots = strstr(text, "..");
    if (!dots || !read_part(row, text, (size_t)(dots - text), &out->from))
        return false;
    const char *end = dots + 2;
    const size_t length = strcspn(end, "x+");
    const char how = end[length];
    out->step = 1;
    out->factor = 1;
    if (!read_part(row, end, length, &out->to) || out->to < out->from)
        return false;
    if (how == '+')
        return read_part(row, end + length + 1, strlen(end + length + 1), &out->step) &&
               out->step > 0;
    if (how == 'x')
        return out->from > 0 && number_integer(end + length + 1, &out->factor) && out->factor > 1;
    return true;
}

static enum err_code add_range(const struct range *range, const char *name, struct arena *arena,
                               struct values *values, struct err *err)
{
    for (uint64_t v = range->from; v <= range->to;) {
        if (values->count >= AXIS_MOST_VALUES)
            return err_set(err, ERR_INVALID, "%s: more than %d values", name, AXIS_MOST_VALUES);
        add_value(values, arena_printf(arena, "%" PRIu64, v));
        const uint64_t next = range->factor > 1 ? v * range->factor : v + range->step;
        if (next <= v || (range->factor > 1 && next / range->factor != v))
            break; /* beyond 2^64 */
        v = next;
    }
    return ERR_OK;
}

/* What is given, by commas. */
static enum err_code add_given(const struct settings *base, const struct axis *axis, char *list,
                               struct arena *arena, struct values *values, struct err *err)
{
    char *rest = NULL;
    for (char *text = strtok_r(list, ",", &rest); text; text = strtok_r(NULL, ",", &rest)) {
        struct range range;
        const uint32_t before = values->count;
        if (read_range(axis->row, text, &range))
            TRY(add_range(&range, axis->name, arena, values, err));
        else
            add_value(values, text);
        if (values->count == before)
            continue;
        TRY(check_value(base, axis, values->at[before], err));
        TRY(check_value(base, axis, values->at[values->count - 1], err));
    }
    return ERR_OK;
}

static void add_own(const struct setting *row, struct arena *arena, struct values *values)
{
    char text[NUMBER_TEXT];
    for (uint32_t i = 0; row && setting_axis_value(row, i, text); i++)
        add_value(values, arena_strdup(arena, text));
}

enum err_code axis_read(const struct settings *base, const char *text, struct arena *arena,
                        struct axis *out, struct err *err)
{
    char *name = arena_strdup(arena, text), *list = strchr(name, '=');
    struct values values = {NULL, 0, 0};
    enum err_code rc = ERR_OK;
    if (list)
        *list++ = '\0';
    TRY(find_name(base, name, arena, out, err));
    if (list)
        rc = add_given(base, out, list, arena, &values, err);
    else
        add_own(out->row, arena, &values);
    if (rc == ERR_OK && list && !values.count)
        rc = err_set(err, ERR_INVALID, "%s=: no value is given", out->name);
    out->values = arena_alloc(arena, (values.count + 1) * sizeof *out->values);
    if (values.count)
        memcpy(out->values, values.at, values.count * sizeof *out->values);
    out->count = values.count;
    free(values.at);
    return rc;
}

/* ---- choices ---- */

static enum err_code put(const struct axis *axis, const char *value, struct choice *choice,
                         struct err *err)
{
    if (axis->row)
        return settings_set(&choice->settings, axis->name, value, err);
    struct choice_number number = {.key = axis->key};
    if (choice->number_count == CHOICE_NUMBERS || !read_number(value, &number))
        return err_set(err, ERR_INVALID, "%s=%.100s cannot be put in", axis->name, value);
    choice->numbers[choice->number_count++] = number;
    return ERR_OK;
}

/* What was given holds for the chosen system, too: in its own row of that name, or it is refused.
 */
static enum err_code carry_given(const struct settings *base, struct settings *settings,
                                 struct err *err)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        char buffer[NUMBER_TEXT];
        if (!settings_is_given(base, &rows[i]) ||
            setting_suits(&rows[i], settings->job.strategy.system))
            continue;
        const char *text = setting_read(&rows[i], base, buffer);
        TRY(settings_set(settings, rows[i].name, text ? text : "", err));
    }
    return ERR_OK;
}

enum err_code axis_choose(const struct settings *base, const struct axis *axes,
                          const char *const *values, uint32_t count, struct choice *out,
                          struct err *err)
{
    *out = (struct choice){.settings = *base};
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(axes[i].name, SYSTEM_SETTING) == 0)
            TRY(put(&axes[i], values[i], out, err));
    TRY(carry_given(base, &out->settings, err));
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(axes[i].name, SYSTEM_SETTING) != 0)
            TRY(put(&axes[i], values[i], out, err));
    return ERR_OK;
}

/* More multiprocessors come with what each has: these are numbers of all of them together. */
static void scale_totals(struct profile *profile, double factor)
{
    static const enum profile_key totals[] = {PROFILE_FP32,   PROFILE_BF16, PROFILE_FP16,
                                              PROFILE_TF32,   PROFILE_FP8,  PROFILE_GEMM_FEED,
                                              PROFILE_L2_RATE};
    for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++) {
        double *value = &profile->of[totals[i]].value;
        *value = fmin(*value * factor, profile_key_most(totals[i]));
    }
}

static enum err_code set_number(const struct choice_number *n, struct profile *profile,
                                struct err *err)
{
    const double present = profile_value(profile, n->key);
    const double value = n->scales ? n->value * present : n->value;
    TRY(profile_set_number(profile, n->key, value, err));
    if (n->key == PROFILE_SMS && present > 0 && value > 0)
        scale_totals(profile, value / present);
    return ERR_OK;
}

enum err_code choice_set_numbers(const struct choice *choice, struct profile *profile,
                                 struct err *err)
{
    for (uint32_t i = 0; i < choice->number_count; i++)
        if (choice->numbers[i].key == PROFILE_SMS) /* first: others may set one of the totals */
            TRY(set_number(&choice->numbers[i], profile, err));
    for (uint32_t i = 0; i < choice->number_count; i++)
        if (choice->numbers[i].key != PROFILE_SMS)
            TRY(set_number(&choice->numbers[i], profile, err));
    return ERR_OK;
}
