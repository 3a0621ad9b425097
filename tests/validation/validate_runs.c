/* validate_runs.c - prints the tables of reports/validation/runs.md: published training runs that
 * nothing was fitted to (tests/data/published/runs.csv), each planned from a command line. */
#include "tests/support/csv.h"

#include "base/arena.h"
#include "job/step_time.h"
#include "settings/settings_parse.h"
#include "settings/settings_resolve.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 96, LARGE_GIB = 10 /* below it a digit of the source is over 1 % */ };

struct row {
    const char *group, *name, *model; /* lent by the table */
    uint32_t gpus;
    double tokens; /* of a GPU's step */
    double measured_s, simulated_s, low_s, high_s;
    double allocated_gib; /* measured; 0: the source says nothing */
    double planned_gib;   /* with what the training script held besides (held_bytes) */
    double reserved_percent, planned_percent; /* of the card: likewise 0, or measured and planned,
                                               * with the same */
};

/* Not among all: steps of some ten milliseconds, which a host and its data loader bound, and jobs
 * whose sources do not say what their times hang on. */
static bool is_apart(const char *group)
{
    return strstr(group, "tiny models") || strstr(group, "not stated");
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

static struct row row_of(const struct csv *csv, size_t i)
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
    const struct row row = {
        .group = csv_text(csv, i, "group"),
        .name = csv_text(csv, i, "name"),
        .model = csv_text(csv, i, "model"),
        .gpus = job.strategy.world,
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
    return row;
}

static double error_of(const struct row *row)
{
    return row->simulated_s / row->measured_s - 1;
}

static bool is_inside(const struct row *row)
{
    return row->measured_s >= row->low_s && row->measured_s <= row->high_s;
}

/* Whether the row is of a group, or of any that is among all (NULL). */
static bool is_meant(const char *group, const struct row *row)
{
    assert(row->group); /* a cell */
    return group ? strcmp(row->group, group) == 0 : !is_apart(row->group);
}

/* Sums over a group's rows, or over all (NULL). */
static void print_summary(const char *group, const struct row *rows, size_t count)
{
    double sum = 0, absolute = 0, largest = 0;
    size_t n = 0, inside = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_meant(group, &rows[i]))
            continue;
        const double error = error_of(&rows[i]);
        sum += error;
        absolute += fabs(error);
        largest = fabs(error) > fabs(largest) ? error : largest;
        inside += is_inside(&rows[i]);
        n++;
    }
    printf("| %s | %zu | %.1f %% | %+.1f %% | %+.1f %% | %zu |\n", group ? group : "all", n,
           100 * absolute / (double)n, 100 * sum / (double)n, 100 * largest, inside);
}

static bool is_first_of_group(const struct row *rows, size_t i)
{
    return i == 0 || strcmp(rows[i].group, rows[i - 1].group) != 0;
}

static void print_group(const struct row *rows, size_t count, size_t first)
{
    printf("\n## %s\n\n| run | measured s | simulated s | range | error |\n"
           "|---|---:|---:|---:|---:|\n",
           rows[first].group);
    for (size_t i = first; i < count && strcmp(rows[i].group, rows[first].group) == 0; i++)
        printf("| %s | %.3f | %.3f | %.3f to %.3f%s | %+.1f %% |\n", rows[i].name,
               rows[i].measured_s, rows[i].simulated_s, rows[i].low_s, rows[i].high_s,
               is_inside(&rows[i]) ? "" : ", outside", 100 * error_of(&rows[i]));
}

static void print_memory(const struct row *rows, size_t count)
{
    double largest = 0;
    size_t n = 0;
    printf("\n## Allocated memory\n\n| run | measured GiB | planned GiB | difference |\n"
           "|---|---:|---:|---:|\n");
    for (size_t i = 0; i < count; i++) {
        if (rows[i].allocated_gib <= 0)
            continue;
        const double error = rows[i].planned_gib / rows[i].allocated_gib - 1;
        printf("| %s | %.1f | %.2f | %+.2f %% |\n", rows[i].name, rows[i].allocated_gib,
               rows[i].planned_gib, 100 * error);
        if (rows[i].allocated_gib < LARGE_GIB)
            continue;
        largest = fabs(error) > fabs(largest) ? error : largest;
        n++;
    }
    printf("\n| | count | largest difference |\n|---|---:|---:|\n"
           "| runs of %d GiB and more | %zu | %+.2f %% |\n",
           LARGE_GIB, n, 100 * largest);
}

static void print_reserved(const struct row *rows, size_t count)
{
    printf("\n## Reserved memory\n\n| run | measured, of the card | planned |\n|---|---:|---:|\n");
    for (size_t i = 0; i < count; i++)
        if (rows[i].reserved_percent > 0)
            printf("| %s | %.0f %% | %.0f %% |\n", rows[i].name, rows[i].reserved_percent,
                   rows[i].planned_percent);
}

/* Whether two rows are one job under different settings. */
static bool is_pair(const struct row *a, const struct row *b)
{
    return !is_apart(a->group) && strcmp(a->group, b->group) == 0 &&
           strcmp(a->model, b->model) == 0 && a->gpus == b->gpus &&
           a->simulated_s / a->tokens != b->simulated_s / b->tokens;
}

static void print_pairs(const struct row *rows, size_t count)
{
    size_t pairs = 0, ordered = 0;
    printf("\n## Settings of one job\n\n| faster in measurement | than | measured | predicted |\n"
           "|---|---|---:|---:|\n");
    for (size_t i = 0; i < count; i++)
        for (size_t k = i + 1; k < count; k++) {
            const struct row *a = &rows[i], *b = &rows[k];
            if (!is_pair(a, b))
                continue;
            if (a->tokens / a->measured_s < b->tokens / b->measured_s) {
                a = &rows[k];
                b = &rows[i];
            }
            const double measured = a->tokens / a->measured_s / (b->tokens / b->measured_s) - 1;
            const double predicted = a->tokens / a->simulated_s / (b->tokens / b->simulated_s) - 1;
            printf("| %s, %s | %s | %+.1f %% | %+.1f %% |\n", a->group, a->name, b->name,
                   100 * measured, 100 * predicted);
            pairs++;
            ordered += predicted > 0;
        }
    printf("\n| | |\n|---|---:|\n| pairs in the measured order | %zu of %zu |\n", ordered, pairs);
}

int main(void)
{
    struct csv csv = csv_read("tests/data/published/runs.csv");
    struct row *rows = xmalloc((csv.rows + 1) * sizeof *rows);
    for (size_t i = 0; i < csv.rows; i++)
        rows[i] = row_of(&csv, i);
    printf("| runs | count | mean error, absolute | bias | largest | inside the range |\n"
           "|---|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < csv.rows; i++)
        if (is_first_of_group(rows, i))
            print_summary(rows[i].group, rows, csv.rows);
    print_summary(NULL, rows, csv.rows);
    for (size_t i = 0; i < csv.rows; i++)
        if (is_first_of_group(rows, i))
            print_group(rows, csv.rows, i);
    print_memory(rows, csv.rows);
    print_reserved(rows, csv.rows);
    print_pairs(rows, csv.rows);
    free(rows);
    csv_free(&csv);
    return 0;
}
