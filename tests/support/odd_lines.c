/* odd_lines.c - see odd_lines.h: what is typed. */
#include "tests/support/odd_lines.h"

#include "tests/support/mutation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t place; /* in the sequence of draws */

void odd_begin(uint64_t seed)
{
    place = seed;
}

uint64_t odd_below(uint64_t n)
{
    return mutation_draw(&place) % (n ? n : 1);
}

void odd_add(struct odd_line *line, const char *fmt, ...)
{
    va_list args;
    assert_true(line->count < ODD_WORDS - 1);
    va_start(args, fmt);
    assert_true(vasprintf(&line->words[line->count++], fmt, args) >= 0);
    va_end(args);
    line->words[line->count] = NULL;
}

void odd_free(struct odd_line *line)
{
    for (uint32_t i = 0; i < line->count; i++)
        free(line->words[i]);
}

/* ---- values ---- */

/* What no setting expects. */
static const char *ugly(void)
{
    static const char *const texts[] = {
        "",      "-1",   "0",   "nan",  "inf",   "-inf", "1e309", "1e-400", "0x10",
        "%s%n",  "\xff", "1,5", "1..",  "..",    "=",    ",",     ",,",     "18446744073709551616",
        "./.",   "/",    "-",   "--",   "1e5",   "+1",   " 1",    "1 ",     "9223372036854775807",
        "a=b=c", "*",    "[",   "\n",   "1GiBB", "KiB",  "1/0",   "0/0",    "4294967296",
        "'",     "\"",   "{}",  "true", "null",  "\\",   "~",     "0.1",    "99999999999999999999",
    };
    static char long_text[6000];
    if (odd_below(40) == 0)
        return memset(long_text, 'a', sizeof long_text - 1);
    return ODD_ONE_OF(texts);
}

static uint32_t names_of(const struct setting *row)
{
    uint32_t count = 0;
    while (row->names && row->names->at(count))
        count++;
    return count;
}

static const char *any_name(const struct setting *row)
{
    return row->names->at((uint32_t)odd_below(names_of(row)));
}

const char *odd_model(void)
{
    static const char *const names[] = {"gpt2",     "fsdp2-tutorial", "config.json", "least.json",
                                        "t5-small", "recorded.json",  "qwen3-0.6b"};
    return ODD_ONE_OF(names);
}

const char *odd_file(void)
{
    static const char *const names[] = {
        "plan.json",      "trace.json",      "config.json", "recorded.json", "torchtitan.toml",
        "deepspeed.json", "profile.json",    "kernels.csv", "absent.json",   "empty.json",
        "folder.json",    "accelerate.yaml", "nccl.txt",    "zero.json",     "older/plan.json",
    };
    return ODD_ONE_OF(names);
}

/* A number that the form allows: its limits, or as likely within each octave from the least on. */
static void number_of(const struct setting_number *form, char text[static NUMBER_TEXT * 2])
{
    const double least = form->least > 0 ? form->least : 0;
    double value = least;
    if (odd_below(12) == 0)
        value = odd_below(2) ? form->least : form->most;
    else
        for (uint64_t octave = odd_below(odd_below(4) ? 5 : 40); octave > 0; octave--)
            value = 2 * value + (double)odd_below(2);
    if (value > form->most)
        value = form->most;
    if (form->kind == NUMBER_REAL && odd_below(2))
        value = least + (value - least) / 3;
    if (form->kind == NUMBER_REAL)
        snprintf(text, 2 * NUMBER_TEXT, "%s%.9g%s", form->before ? form->before : "", value,
                 form->after ? form->after : "");
    else
        snprintf(text, 2 * NUMBER_TEXT, "%s%.0f%s", form->before ? form->before : "", value,
                 form->after ? form->after : "");
}

static uint64_t count_of(const struct setting *row, bool words)
{
    uint64_t count = 0;
    if (words)
        while (row->words && row->words[count].text)
            count++;
    else
        while (count < 3 && row->numbers[count].kind != NUMBER_NONE)
            count++;
    return count;
}

static const struct setting *any_row(enum command command)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count), *row;
    do
        row = &rows[odd_below(count)];
    while (!setting_is_of(row, command));
    return row;
}

/* "name", "name=value", "name=value,value", "profile.KEY=x0.5,x2" */
static void axis(enum command command, char *text, size_t size)
{
    char one[256], two[256];
    const struct setting *row;
    do
        row = any_row(command);
    while (row->kind != SETTING_VALUE && row->kind != SETTING_NAME && odd_below(8));
    odd_value(row, command, one, sizeof one);
    odd_value(row, command, two, sizeof two);
    switch (odd_below(5)) {
    case 0:
        snprintf(text, size, "%s", row->name);
        return;
    case 1:
        snprintf(text, size, "profile.nic_bytes_per_s=x0.5,x1");
        return;
    case 2:
        snprintf(text, size, "%s=%s..%s", row->name, one, two);
        return;
    default:
        snprintf(text, size, "%s=%s,%s", row->name, one, two);
        return;
    }
}

static void text_of(const struct setting *row, enum command command, char *text, size_t size)
{
    static const char *const globs[] = {"*embed*", "*", "*.0.*", "*norm*,*ln*", "[", "lm_head*"};
    const char *arg = row->arg ? row->arg : "";
    if (strcmp(row->name, "model") == 0 || strcmp(row->name, "a") == 0)
        snprintf(text, size, "%s", odd_below(3) ? odd_model() : any_name(row));
    else if (strcmp(arg, "GLOBS") == 0)
        snprintf(text, size, "%s", ODD_ONE_OF(globs));
    else if (strstr(arg, "NAMES"))
        snprintf(text, size, "%u%s", (unsigned)odd_below(70), odd_below(2) ? ",*q*" : "");
    else if (strcmp(arg, "AXIS") == 0 || strcmp(arg, "B") == 0 || strcmp(arg, "NAME=VALUE") == 0)
        axis(strcmp(arg, "B") == 0 ? COMMAND_PLAN : command, text, size);
    else if (strcmp(arg, "NAME") == 0)
        snprintf(text, size, "%s", any_row(command)->name);
    else if (strcmp(row->name, "output") == 0 || strcmp(row->name, "events") == 0 ||
             strncmp(row->name, "save", 4) == 0)
        snprintf(text, size, "%s", strcmp(arg, "DIR") == 0 ? "out" : "out.json");
    else
        snprintf(text, size, "%s", odd_file());
}

void odd_value(const struct setting *row, enum command command, char *text, size_t size)
{
    const uint64_t words = count_of(row, true), numbers = count_of(row, false);
    const uint64_t names = names_of(row);
    text[0] = '\0';
    if (odd_below(25) == 0) {
        snprintf(text, size, "%s", ugly());
        return;
    }
    if (row->kind == SETTING_TEXT || row->kind == SETTING_LIST) {
        text_of(row, command, text, size);
        return;
    }
    if (row->kind == SETTING_PART) {
        snprintf(text, size, "%u/%u", (unsigned)odd_below(3), (unsigned)odd_below(4));
        return;
    }
    const uint64_t at = odd_below(words + 2 * numbers + names);
    if (at < words)
        snprintf(text, size, "%s", row->words[at].text);
    else if (at < words + 2 * numbers)
        number_of(&row->numbers[(at - words) / 2], text);
    else if (names)
        snprintf(text, size, "%s", any_name(row));
}

/* ---- drawing ---- */

void odd_add_option(struct odd_line *line, const struct setting *row)
{
    char value[6100];
    if (row->kind == SETTING_FLAG) {
        odd_add(line, "--%s", row->name);
        return;
    }
    odd_value(row, line->command, value, sizeof value);
    if (odd_below(2) && row->kind != SETTING_FLAG) {
        odd_add(line, "--%s=%s", row->name, value);
        return;
    }
    odd_add(line, "--%s", row->name);
    odd_add(line, "%s", value);
}

const struct setting *odd_row(enum command command, uint32_t system)
{
    const struct setting *row = any_row(command);
    if (odd_below(20))
        while (row->positional || !setting_is_offered(row) || !setting_suits(row, system))
            row = any_row(command);
    return row;
}

uint64_t odd_words(const struct setting *row)
{
    return count_of(row, true);
}
