/* published_verdicts.c - see published_verdicts.h. */
#include "tests/validation/published_verdicts.h"

#include "base/arena.h"
#include "frameworks/import.h"
#include "job/predict.h"
#include "settings/settings_parse.h"
#include "settings/settings_resolve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 96, MOST_TEXT = 2048 };

#define GIB 0x1p30

bool published_verdict_is_open(const struct published_verdict *row)
{
    return answer_fits(row->answer) != answer_fits(row->other);
}

bool published_verdict_counts(const struct published_verdict *row)
{
    return !*row->apart && !published_verdict_is_open(row);
}

bool published_verdict_is_right(const struct published_verdict *row)
{
    return answer_fits(row->answer) == row->trained;
}

static void fail(const char *name, const char *text)
{
    fprintf(stderr, "verdicts.csv: %s: %s\n", name, text);
    exit(2);
}

static enum fit_answer answer_of(const struct prediction *p)
{
    return !p->fits_gpu       ? ANSWER_NO
           : p->after_release ? ANSWER_RELEASING
           : p->by_clock      ? ANSWER_BY_CLOCK
           : p->tight         ? ANSWER_TIGHT
                              : ANSWER_FITS;
}

/* A job as the command line has it, planned: the model, the row's options, and what `more` says
 * over them. */
struct asked {
    char line[MOST_TEXT];
    char *words[MOST_WORDS];
    struct import import;
    struct settings settings;
    struct job job;
    struct machine machine;
    struct prediction prediction;
};

static void ask(const struct csv *csv, size_t i, const char *more, struct asked *a)
{
    struct err err = {0};
    int count = 1;
    const char *name = csv_text(csv, i, "name"), *model = csv_text(csv, i, "model");
    *a = (struct asked){.words = {(char *)"fit"}};
    if (*model) /* or a file of --from names it */
        a->words[count++] = (char *)(uintptr_t)model;
    const int length = snprintf(a->line, MOST_TEXT, "%s %s", csv_text(csv, i, "options"), more);
    if (length >= MOST_TEXT)
        fail(name, "too long");
    for (char *word = strtok(a->line, " "); word; word = strtok(NULL, " ")) {
        if (count == MOST_WORDS - 1)
            fail(name, "too many words");
        a->words[count++] = word;
    }
    settings_parse_from(COMMAND_FIT, count, a->words, import_files, &a->import, &a->settings);
    if (settings_resolve(&a->settings, &a->job, &a->machine, &err) != ERR_OK ||
        predict(&a->job, &a->machine, &a->prediction, &err) != ERR_OK)
        fail(name, err.text);
}

static void asked_free(struct asked *a)
{
    prediction_free(&a->prediction);
    settings_release(&a->job, &a->machine);
    import_free(&a->import);
}

static struct published_verdict verdict_of(const struct csv *csv, size_t i)
{
    struct asked a;
    const char *more = csv_text(csv, i, "or");
    ask(csv, i, "", &a);
    const struct prediction *p = &a.prediction;
    struct published_verdict row = {
        .group = csv_text(csv, i, "group"),
        .name = csv_text(csv, i, "name"),
        .apart = csv_text(csv, i, "apart"),
        .note = csv_text(csv, i, "note"),
        .system = a.job.strategy.system,
        .trained = strcmp(csv_text(csv, i, "reported"), "trained") == 0,
        .answer = answer_of(p),
        .other = answer_of(p),
        .has_other = *more != '\0',
        .least_gib = (double)p->least_bytes / GIB,
        .held_gib = (double)p->unconstrained_bytes / GIB,
        .card_gib = (double)profile_bytes(&a.machine.profile, PROFILE_CAPACITY) / GIB,
        .reported = {[FIGURE_ALLOCATED] = csv_number(csv, i, "allocated_gib"),
                     [FIGURE_RESERVED] = csv_number(csv, i, "reserved_gib"),
                     [FIGURE_DEVICE] = csv_number(csv, i, "device_gib")},
        .planned = {[FIGURE_ALLOCATED] = (double)p->memory.allocated.bytes / GIB,
                    [FIGURE_RESERVED] = (double)p->memory.reserved_bytes / GIB,
                    [FIGURE_DEVICE] = (double)p->device_bytes / GIB},
    };
    asked_free(&a);
    if (row.has_other) {
        ask(csv, i, more, &a);
        row.other = answer_of(&a.prediction);
        asked_free(&a);
    }
    return row;
}

struct published_verdict *published_verdicts(const struct csv *csv)
{
    struct published_verdict *rows = xmalloc((csv->rows + 1) * sizeof *rows);
    for (size_t i = 0; i < csv->rows; i++)
        rows[i] = verdict_of(csv, i);
    return rows;
}
