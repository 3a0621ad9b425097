/* published_runs.c - see published_runs.h. */
#include "tests/support/published_runs.h"

#include "job/step_time.h"
#include "settings/settings_parse.h"
#include "settings/settings_resolve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 96 };

bool published_run_is_apart(const struct published_run *run)
{
    return strstr(run->group, "tiny models") || strstr(run->group, "not stated");
}

static void fail(const char *text)
{
    fprintf(stderr, "%s\n", text);
    exit(2);
}

/* Settings as `shardplan fit` takes them; `line` is cut into words, which they lend. */
static struct settings settings_of(const struct csv *csv, size_t i, char *line)
{
    char *words[MOST_WORDS] = {(char *)"fit", (char *)(uintptr_t)csv_text(csv, i, "model")};
    int count = 2;
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) {
        if (count == MOST_WORDS - 1)
            fail("runs.csv: too many words in a row's options");
        words[count++] = word;
    }
    struct settings settings;
    settings_parse(COMMAND_FIT, count, words, &settings);
    return settings;
}

static struct published_run run_of(const struct csv *csv, size_t i)
{
    struct err err = {0};
    struct job job;
    struct machine machine;
    struct prediction prediction;
    struct step_time time;
    char *line = strdup(csv_text(csv, i, "options"));
    if (!line)
        fail("out of memory");
    struct settings settings = settings_of(csv, i, line);
    if (settings_resolve(&settings, &job, &machine, &err) != ERR_OK ||
        predict(&job, &machine, &prediction, &err) != ERR_OK ||
        step_time(&prediction, &job, &machine, STEP_TIME_DRAWS, &time, &err) != ERR_OK)
        fail(err.text);
    const double tokens =
        (double)job.model.batch * (double)job.model.seq * (double)job.strategy.accumulate;
    const double held = csv_number(csv, i, "held_bytes");
    const struct published_run run = {
        .group = csv_text(csv, i, "group"),
        .name = csv_text(csv, i, "name"),
        .model = csv_text(csv, i, "model"),
        .gpus = job.strategy.world,
        .seq = job.model.seq,
        .tokens = tokens,
        .measured_s = tokens / csv_number(csv, i, "tokens_per_s_per_gpu"),
        .simulated_s = time.timeline.step_s,
        .low_s = time.low_s,
        .high_s = time.high_s,
        .allocated_gib = csv_number(csv, i, "allocated_gib"),
        .planned_gib = ((double)prediction.memory.allocated.bytes + held) / (double)(1UL << 30),
        .reserved_percent = csv_number(csv, i, "reserved_percent"),
        .planned_percent = 100 * ((double)prediction.memory.reserved_bytes + held) /
                           (double)profile_bytes(&machine.profile, PROFILE_CAPACITY),
    };
    step_time_free(&time);
    prediction_free(&prediction);
    settings_release(&job, &machine);
    free(line);
    return run;
}

struct published_run *published_runs(const struct csv *csv)
{
    struct published_run *runs = xmalloc((csv->rows + 1) * sizeof *runs);
    for (size_t i = 0; i < csv->rows; i++)
        runs[i] = run_of(csv, i);
    return runs;
}

bool published_runs_pair(const struct published_run *a, const struct published_run *b)
{
    return !published_run_is_apart(a) && strcmp(a->group, b->group) == 0 &&
           strcmp(a->model, b->model) == 0 && a->gpus == b->gpus && a->seq == b->seq &&
           a->simulated_s / a->tokens != b->simulated_s / b->tokens;
}
