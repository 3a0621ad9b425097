/* setting.c - one row: its value as text, and whose it is; see setting.h. */
#include "settings/setting.h"

#include "base/names.h"
#include "lower/lower.h"
#include "settings/elsewhere.h"
#include "settings/settings.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NUMBERS = sizeof(((struct setting *)0)->numbers) / sizeof(struct setting_number) };

/* ---- whose it is ---- */

bool setting_is_of(const struct setting *row, enum command command)
{
    return row->commands >> command & 1U;
}

bool setting_suits(const struct setting *row, uint32_t system)
{
    return !row->systems || (row->systems >> system & 1U);
}

bool setting_is_offered(const struct setting *row)
{
    for (uint32_t i = 0; i < SYSTEM_COUNT; i++)
        if (system_is_planned((enum system_kind)i) && setting_suits(row, i))
            return true;
    return false;
}

static bool is_same_option(const struct setting *row, const struct setting *other)
{
    return strcmp(row->name, other->name) == 0 && row->group == other->group &&
           row->commands == other->commands;
}

bool setting_repeats(const struct setting *row)
{
    uint32_t count;
    for (const struct setting *other = setting_rows(&count); other != row; other++)
        if (is_same_option(row, other))
            return true;
    return false;
}

const char *setting_systems(const struct setting *row, char text[SETTING_SYSTEMS])
{
    uint32_t count, systems = 0, used = 0;
    const bool own = row->group >= GROUP_FSDP2 && row->group <= GROUP_ZERO;
    const struct setting *rows = setting_rows(&count);
    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++)
        if (is_same_option(row, &rows[i]))
            systems |= rows[i].systems ? rows[i].systems : UINT32_MAX;
    bool rest = false; /* a system that lacks it */
    for (uint32_t i = 0; i < SYSTEM_COUNT; i++)
        rest = rest || (system_is_planned((enum system_kind)i) && !(systems >> i & 1U));
    for (uint32_t i = 0; i < SYSTEM_COUNT && rest && !own; i++)
        if (system_is_planned((enum system_kind)i) && (systems >> i & 1U))
            used += (uint32_t)snprintf(text + used, SETTING_SYSTEMS - used, "%s%s",
                                       used ? ", " : "", system_name((enum system_kind)i));
    return text;
}

const char *setting_group_title(enum setting_group group)
{
    static const char *const titles[GROUP_COUNT] = {
        [GROUP_MODEL] = "Model",          [GROUP_JOB] = "Job",
        [GROUP_CLUSTER] = "Cluster",      [GROUP_STRATEGY] = "Strategy",
        [GROUP_FSDP2] = "Strategy fsdp2", [GROUP_FSDP1] = "Strategy fsdp1",
        [GROUP_DDP] = "Strategy ddp",     [GROUP_ZERO] = "Strategies zero1, zero2, zero3",
        [GROUP_SEARCH] = "Search",        [GROUP_RUN] = "Run",
        [GROUP_OPTIMIZER] = "Optimizer",  [GROUP_CHECKPOINT] = "Checkpoints",
        [GROUP_REHEARSAL] = "Rehearsal",  [GROUP_CUDA] = "On GPUs",
        [GROUP_MEASURE] = "Measuring",    [GROUP_SWEEP] = "Question",
        [GROUP_OUTPUT] = "Output",
    };
    return titles[group];
}

/* ---- fields ---- */

static void store_integer(struct settings *settings, struct setting_field field, uint64_t value)
{
    char *at = (char *)settings + field.offset;
    const uint32_t word = (uint32_t)value;
    const bool flag = value != 0;
    assert(field.size == sizeof flag || field.size == sizeof word || field.size == sizeof value);
    if (field.size == sizeof flag)
        memcpy(at, &flag, sizeof flag);
    else if (field.size == sizeof word)
        memcpy(at, &word, sizeof word);
    else
        memcpy(at, &value, sizeof value);
}

static uint64_t load_integer(const struct settings *settings, struct setting_field field)
{
    const char *at = (const char *)settings + field.offset;
    uint64_t value = 0;
    uint32_t word;
    bool flag;
    if (field.size == sizeof flag) {
        memcpy(&flag, at, sizeof flag);
        value = flag;
    } else if (field.size == sizeof word) {
        memcpy(&word, at, sizeof word);
        value = word;
    } else {
        memcpy(&value, at, sizeof value);
    }
    return value;
}

static void store_real(struct settings *settings, struct setting_field field, double value)
{
    char *at = (char *)settings + field.offset;
    const float single = (float)value;
    assert(field.size == sizeof single || field.size == sizeof value);
    if (field.size == sizeof single)
        memcpy(at, &single, sizeof single);
    else
        memcpy(at, &value, sizeof value);
}

static double load_real(const struct settings *settings, struct setting_field field)
{
    const char *at = (const char *)settings + field.offset;
    double value;
    float single;
    if (field.size == sizeof value) {
        memcpy(&value, at, sizeof value);
        return value;
    }
    memcpy(&single, at, sizeof single);
    return (double)single;
}

static void store_number(struct settings *settings, const struct setting_number *number,
                         double value)
{
    if (number->kind == NUMBER_REAL)
        store_real(settings, number->field, value);
    else if (number->kind != NUMBER_NONE)
        store_integer(settings, number->field, (uint64_t)value);
}

static void store_text(struct settings *settings, struct setting_field field, const char *text)
{
    assert(field.size == sizeof text);
    memcpy((char *)settings + field.offset, &text, sizeof text);
}

static const char *load_text(const struct settings *settings, struct setting_field field)
{
    const char *text;
    memcpy(&text, (const char *)settings + field.offset, sizeof text);
    return text;
}

static struct text_list *list_of(struct settings *settings, const struct setting *row)
{
    assert(row->field.size == sizeof(struct text_list));
    return (struct text_list *)(void *)((char *)settings + row->field.offset);
}

/* ---- what is allowed ---- */

static bool is_offered(const struct setting *row, const struct setting_word *word)
{
    return !row->offers || row->offers(word->value);
}

static size_t append(char *text, size_t size, size_t used, const char *more)
{
    if (used >= size)
        return used;
    return used + (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", more);
}

static void describe_number(const struct setting_number *number, char *text, size_t size)
{
    static const char *const nouns[] = {"", "integers", "numbers", "sizes such as 500MB,"};
    char least[NUMBER_TEXT], most[NUMBER_TEXT];
    if (number->kind == NUMBER_INTEGER) {
        snprintf(least, sizeof least, "%.0f", number->least);
        snprintf(most, sizeof most, "%.0f", number->most);
    } else if (number->kind == NUMBER_SIZE) {
        number_bytes_text((uint64_t)number->least, least);
        number_bytes_text((uint64_t)number->most, most);
    } else {
        number_real_text(number->least, false, least);
        number_real_text(number->most, false, most);
    }
    const char *before = number->before ? number->before : "";
    const char *after = number->after ? number->after : "";
    if (number->before || number->after)
        snprintf(text, size, "%s%s%s ... %s%s%s", before, least, after, before, most, after);
    else
        snprintf(text, size, "%s %s ... %s%s", number->noun ? number->noun : nouns[number->kind],
                 least, most, number->kilo ? " (8k is 8192)" : "");
}

const char *setting_allowed(const struct setting *row, char *text, size_t size)
{
    char number[128];
    size_t used = 0;
    text[0] = '\0';
    if (row->kind == SETTING_FLAG)
        append(text, size, 0, "on, off");
    if (row->kind == SETTING_PART)
        snprintf(text, size, "%s, such as 0/64", row->arg);
    for (const struct setting_word *w = row->words; w && w->text; w++)
        if (!w->hidden && is_offered(row, w))
            used = append(text, size, used, w->text);
    for (int i = 0; i < NUMBERS && row->kind == SETTING_VALUE; i++)
        if (row->numbers[i].kind != NUMBER_NONE) {
            describe_number(&row->numbers[i], number, sizeof number);
            used = append(text, size, used, number);
        }
    for (uint32_t i = 0; row->kind == SETTING_NAME && row->names->at(i); i++)
        used = append(text, size, used, row->names->at(i));
    return text;
}

/* "2.15.1": 2 and 15. False: that is no version. */
static bool read_version(const char *text, long *major, long *minor)
{
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return false;
    *major = strtol(text, &end, 10);
    if (end[0] != '.' || !isdigit((unsigned char)end[1]))
        return false;
    *minor = strtol(end + 1, &end, 10);
    return *end == '\0' || *end == '.';
}

/* Where words are versions, the one with the nearest number; NULL: they are not. */
static const char *nearest_version(const struct setting *row, const char *text)
{
    const char *nearest = NULL;
    long major, minor, best = 0, other, number;
    for (const struct setting_word *w = row->words; w && w->text; w++) {
        if (w->hidden || !read_version(text, &major, &minor) ||
            !read_version(w->text, &other, &number) || other != major)
            continue;
        const long distance = labs(number - minor);
        if (!nearest || distance < best) {
            nearest = w->text;
            best = distance;
        }
    }
    return nearest;
}

/* The word or name that was probably meant, NULL: none is near. */
static const char *nearest_value(const struct setting *row, const char *text)
{
    const char *nearest = nearest_version(row, text);
    if (row->kind == SETTING_NAME)
        return row->names->nearest(text);
    if (nearest)
        return nearest;
    for (const struct setting_word *w = row->words; w && w->text; w++)
        if (is_offered(row, w) && names_near(text, w->text) && names_nearer(text, w->text, nearest))
            nearest = w->text;
    return nearest;
}

/* Of a text where numbers alone are allowed, that it is none; "": it is one, but not of these. */
static const char *no_number(const struct setting *row, const char *text, char said[128])
{
    uint64_t integer;
    double real;
    const enum number_kind kind = row->kind == SETTING_VALUE ? row->numbers[0].kind : NUMBER_NONE;
    said[0] = '\0';
    if ((row->words && row->words->text) || (kind != NUMBER_INTEGER && kind != NUMBER_REAL))
        return said;
    if (kind == NUMBER_INTEGER ? !number_integer(text, &integer) : !number_real(text, &real))
        snprintf(said, 128, "; \"%.60s\" is no %s", text,
                 kind == NUMBER_REAL             ? "number"
                 : number_real(text, &real)      ? "integer"
                 : isdigit((unsigned char)*text) ? "integer in digits alone"
                                                 : "number");
    return said;
}

static enum err_code refuse(const struct setting *row, const char *text, struct err *err)
{
    char allowed[800], said[128];
    const char *others = elsewhere_value(row->name, text);
    const char *nearest = others ? NULL : nearest_value(row, text);
    if (others)
        return err_set(err, ERR_INVALID, "--%s %.100s: it is not planned; %s", row->name, text,
                       others);
    return err_set(err, ERR_INVALID, "--%s %.100s: allowed are %s%s%s%s%s", row->name, text,
                   setting_allowed(row, allowed, sizeof allowed), no_number(row, text, said),
                   nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

/* ---- text to value ---- */

/* Sets the word's field, or, where words are names for numbers, the number's. */
static void store_word(const struct setting *row, struct settings *settings, int value)
{
    if (!row->field.size) {
        store_number(settings, &row->numbers[0], value);
        return;
    }
    store_integer(settings, row->field, (uint64_t)value);
    for (int i = 0; i < NUMBERS; i++)
        store_number(settings, &row->numbers[i], row->numbers[i].rest);
}

static bool write_word(const struct setting *row, struct settings *settings, const char *text)
{
    for (const struct setting_word *w = row->words; w && w->text; w++)
        if (strcasecmp(text, w->text) == 0 && is_offered(row, w)) {
            store_word(row, settings, w->value);
            return true;
        }
    return false;
}

/* The text without what is written around the number, in `bare`; NULL: that is not there. */
static const char *strip(const struct setting_number *number, const char *text,
                         char bare[NUMBER_TEXT])
{
    const size_t before = number->before ? strlen(number->before) : 0;
    const size_t after = number->after ? strlen(number->after) : 0, length = strlen(text);
    if (!before && !after)
        return text;
    if (length <= before + after || length >= NUMBER_TEXT ||
        (before && strncasecmp(text, number->before, before) != 0) ||
        (after && strcmp(text + length - after, number->after) != 0))
        return NULL;
    snprintf(bare, NUMBER_TEXT, "%.*s", (int)(length - before - after), text + before);
    return bare;
}

static bool write_number(const struct setting *row, const struct setting_number *number,
                         struct settings *settings, const char *text)
{
    char bare[NUMBER_TEXT];
    uint64_t integer = 0;
    double real = 0;
    bool good = false;
    text = number->kind == NUMBER_NONE ? NULL : strip(number, text, bare);
    if (!text)
        return false;
    if (number->kind == NUMBER_REAL)
        good = number_real(text, &real);
    else if (number->kind == NUMBER_INTEGER)
        good = number_integer(text, &integer) || (number->kilo && number_kilo(text, &integer));
    else if (number->kind == NUMBER_SIZE) /* beside plain numbers, a size has a unit */
        good = !(number_integer(text, &integer) && number > row->numbers) &&
               number_bytes(text, &integer);
    if (number->kind != NUMBER_REAL)
        real = (double)integer;
    if (!good || !(real >= number->least) || !(real <= number->most))
        return false;
    if (row->field.size)
        store_word(row, settings, number->word);
    if (number->kind == NUMBER_REAL)
        store_real(settings, number->field, real);
    else
        store_integer(settings, number->field, integer);
    return true;
}

static bool write_part(const struct setting *row, struct settings *settings, const char *text)
{
    char part[NUMBER_TEXT];
    uint64_t i, n;
    const size_t length = strcspn(text, "/");
    if (text[length] != '/' || length >= sizeof part)
        return false;
    memcpy(part, text, length);
    part[length] = '\0';
    if (!number_integer(part, &i) || !number_integer(text + length + 1, &n) || i >= n ||
        (double)n > row->numbers[0].most)
        return false;
    store_integer(settings, row->field, i);
    store_integer(settings, row->numbers[0].field, n);
    return true;
}

static bool write_list(const struct setting *row, struct settings *settings, const char *text)
{
    struct text_list *list = list_of(settings, row);
    if (list->count == SETTINGS_MOST_FILES)
        return false;
    list->at[list->count++] = text;
    return true;
}

static bool write_flag(const struct setting *row, struct settings *settings, const char *text)
{
    const bool on = strcasecmp(text, "on") == 0;
    if (!on && strcasecmp(text, "off") != 0)
        return false;
    store_integer(settings, row->field, on);
    return true;
}

static bool write_name(const struct setting *row, struct settings *settings, const char *text)
{
    const char *name = row->names->find(text);
    if (name)
        store_text(settings, row->field, name);
    return name != NULL;
}

enum err_code setting_write(const struct setting *row, struct settings *settings, const char *text,
                            struct err *err)
{
    bool good = false;
    switch (row->kind) {
    case SETTING_VALUE:
        good = write_word(row, settings, text);
        for (int i = 0; i < NUMBERS && !good; i++)
            good = write_number(row, &row->numbers[i], settings, text);
        break;
    case SETTING_FLAG:
        good = write_flag(row, settings, text);
        break;
    case SETTING_TEXT:
        store_text(settings, row->field, text);
        good = true;
        break;
    case SETTING_NAME:
        good = write_name(row, settings, text);
        break;
    case SETTING_PART:
        good = write_part(row, settings, text);
        break;
    case SETTING_LIST:
        if (!write_list(row, settings, text))
            return err_set(err, ERR_INVALID, "--%s %s: at most %d", row->name, text,
                           SETTINGS_MOST_FILES);
        good = true;
        break;
    }
    return good ? ERR_OK : refuse(row, text, err);
}

/* What a number that has no default is while it is not given: 0, or where 0 may be given NAN of a
 * real and one more than the most of an integer. */
static double not_given(const struct setting_number *number)
{
    if (number->least > 0)
        return 0;
    return number->kind == NUMBER_REAL ? (double)NAN : number->most + 1;
}

void setting_reset(const struct setting *row, struct settings *settings)
{
    if (row->initial) {
        const enum err_code rc = setting_write(row, settings, row->initial, NULL);
        assert(rc == ERR_OK);
        (void)rc;
        return;
    }
    switch (row->kind) {
    case SETTING_TEXT:
    case SETTING_NAME:
        store_text(settings, row->field, NULL);
        break;
    case SETTING_LIST:
        list_of(settings, row)->count = 0;
        break;
    case SETTING_FLAG:
        store_integer(settings, row->field, false);
        break;
    case SETTING_PART:
        store_integer(settings, row->field, 0);
        store_integer(settings, row->numbers[0].field, 0);
        break;
    case SETTING_VALUE:
        if (row->field.size)
            store_word(row, settings, row->unset);
        else
            store_number(settings, &row->numbers[0], not_given(&row->numbers[0]));
        break;
    }
}

static void copy_field(struct setting_field field, const struct settings *from, struct settings *to)
{
    memcpy((char *)to + field.offset, (const char *)from + field.offset, field.size);
}

void setting_copy(const struct setting *row, const struct settings *from, struct settings *to)
{
    copy_field(row->field, from, to);
    for (size_t i = 0; i < sizeof row->numbers / sizeof row->numbers[0]; i++)
        copy_field(row->numbers[i].field, from, to);
}

/* ---- value to text ---- */

static const char *word_of(const struct setting *row, int value)
{
    for (const struct setting_word *w = row->words; w && w->text; w++)
        if (w->value == value && !w->hidden)
            return w->text;
    return NULL;
}

static const char *number_text(const struct settings *settings, const struct setting_number *number,
                               char buffer[NUMBER_TEXT])
{
    const uint64_t integer =
        number->kind == NUMBER_REAL ? 0 : load_integer(settings, number->field);
    if (number->kind == NUMBER_REAL)
        return number_real_text(load_real(settings, number->field),
                                number->field.size == sizeof(float), buffer);
    if (number->kind == NUMBER_SIZE)
        return number_bytes_text(integer, buffer);
    snprintf(buffer, NUMBER_TEXT, "%s%llu%s", number->before ? number->before : "",
             (unsigned long long)integer, number->after ? number->after : "");
    return buffer;
}

/* Where there is no word field: the number, a word for it, or "not given". */
static const char *read_number(const struct setting *row, const struct settings *settings,
                               char buffer[NUMBER_TEXT])
{
    const struct setting_number *number = &row->numbers[0];
    const double value = number->kind == NUMBER_REAL
                             ? load_real(settings, number->field)
                             : (double)load_integer(settings, number->field);
    const bool given = !isnan(value) && value != not_given(number);
    const char *word =
        value == trunc(value) && fabs(value) < INT32_MAX ? word_of(row, (int)value) : NULL;
    if (word)
        return word;
    return row->initial || given ? number_text(settings, number, buffer) : NULL;
}

static const char *read_value(const struct setting *row, const struct settings *settings,
                              char buffer[NUMBER_TEXT])
{
    if (!row->field.size)
        return read_number(row, settings, buffer);
    const int value = (int)load_integer(settings, row->field);
    for (int i = 0; i < NUMBERS; i++) {
        const struct setting_number *number = &row->numbers[i];
        if (number->kind != NUMBER_NONE && number->word == value &&
            load_integer(settings, number->field) != number->rest)
            return number_text(settings, number, buffer);
    }
    return word_of(row, value);
}

const char *setting_read(const struct setting *row, const struct settings *settings,
                         char buffer[NUMBER_TEXT])
{
    switch (row->kind) {
    case SETTING_VALUE:
        return read_value(row, settings, buffer);
    case SETTING_FLAG:
        return load_integer(settings, row->field) ? "on" : "off";
    case SETTING_TEXT:
    case SETTING_NAME:
        return load_text(settings, row->field);
    case SETTING_PART:
        if (!load_integer(settings, row->numbers[0].field))
            return NULL;
        snprintf(buffer, NUMBER_TEXT, "%u/%u", (uint32_t)load_integer(settings, row->field),
                 (uint32_t)load_integer(settings, row->numbers[0].field));
        return buffer;
    default:
        return NULL; /* a list has many */
    }
}

bool setting_is(const struct setting *row, const struct settings *settings, const char *text)
{
    char buffer[NUMBER_TEXT];
    const char *present = setting_read(row, settings, buffer);
    return present && strcmp(present, text) == 0;
}

json_t *setting_json(const struct setting *row, const struct settings *settings)
{
    char buffer[NUMBER_TEXT];
    const char *text = setting_read(row, settings, buffer);
    const enum number_kind number =
        row->kind == SETTING_VALUE && !row->field.size ? row->numbers[0].kind : NUMBER_NONE;
    uint64_t integer;
    double real;
    if (row->kind == SETTING_LIST) {
        const struct text_list *list = list_of((struct settings *)(uintptr_t)settings, row);
        json_t *array = json_array();
        for (uint32_t i = 0; i < list->count; i++)
            json_array_append_new(array, json_string(list->at[i]));
        return array;
    }
    if (row->kind == SETTING_FLAG)
        return json_boolean(load_integer(settings, row->field));
    if (number == NUMBER_REAL && text && number_real(text, &real))
        return json_real(real);
    if (number != NUMBER_NONE && text && number_bytes(text, &integer))
        return json_integer((json_int_t)integer);
    return text ? json_string(text) : json_null();
}

/* ---- axes ---- */

static bool word_at(const struct setting *row, uint32_t i, char text[NUMBER_TEXT])
{
    for (const struct setting_word *w = row->words; w->text; w++)
        if (!w->hidden && is_offered(row, w) && i-- == 0) {
            snprintf(text, NUMBER_TEXT, "%s", w->text);
            return true;
        }
    return false;
}

/* Value i of a list by commas, NULL: an empty one. */
static bool list_value(const char *at, uint32_t i, char text[NUMBER_TEXT])
{
    if (!at)
        return false;
    for (; i > 0 && *at; i--) {
        at += strcspn(at, ",");
        at += *at == ',';
    }
    snprintf(text, NUMBER_TEXT, "%.*s", (int)strcspn(at, ","), at);
    return *at != '\0';
}

bool setting_axis_value(const struct setting *row, uint32_t i, char text[NUMBER_TEXT])
{
    return row->axis && strcmp(row->axis, AXIS_WORDS) == 0 ? word_at(row, i, text)
                                                           : list_value(row->axis, i, text);
}

bool setting_wide_value(const struct setting *row, uint32_t i, char text[NUMBER_TEXT])
{
    uint32_t count = 0;
    while (setting_axis_value(row, count, text))
        if (count++ == i)
            return true;
    return list_value(row->wide, i - count, text);
}
