/* validate_verdicts.c - prints the tables of reports/validation/verdicts.md: reports of others that
 * a job ran out of memory or trained (tests/data/published/verdicts.csv), beside what fit says. */
#include "tests/validation/errors.h"
#include "tests/validation/published_verdicts.h"

#include "lower/lower.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const answer_texts[ANSWERS] = {"fits", "fits, tight", "fits by the clock",
                                                  "fits by giving segments back", "does not fit"};
static const char *const figure_texts[FIGURES] = {"allocated", "reserved", "device"};

struct counts {
    size_t rows, trained, counted, right, fits_ran_out, no_trained, open, apart;
};

static void count(const struct published_verdict *row, struct counts *c)
{
    const bool right = published_verdict_is_right(row), open = published_verdict_is_open(row);
    c->rows++;
    c->trained += row->trained;
    c->apart += *row->apart != '\0';
    c->open += !*row->apart && open;
    if (!published_verdict_counts(row))
        return;
    c->counted++;
    c->right += right;
    c->fits_ran_out += !right && !row->trained;
    c->no_trained += !right && row->trained;
}

static void print_counts(const char *name, const struct counts *c)
{
    printf("| %s | %zu | %zu | %zu | %zu | %zu | %zu | %zu | %zu | %zu |\n", name, c->rows,
           c->trained, c->rows - c->trained, c->counted, c->right, c->fits_ran_out, c->no_trained,
           c->open, c->apart);
}

static void print_sums(const struct published_verdict *rows, size_t n)
{
    printf("| reports | in all | trained | ran out | counted | right | said to fit, ran out | "
           "said not to, trained | open | not planned |\n"
           "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    struct counts all = {0};
    for (int system = 0; system < SYSTEM_COUNT; system++) {
        struct counts c = {0};
        for (size_t i = 0; i < n; i++)
            if ((int)rows[i].system == system)
                count(&rows[i], &c);
        if (c.rows)
            print_counts(system_name((enum system_kind)system), &c);
    }
    for (size_t i = 0; i < n; i++)
        count(&rows[i], &all);
    print_counts("all", &all);
}

static void print_answers(const struct published_verdict *rows, size_t n)
{
    printf("\n| fit says | trained | ran out |\n|---|---:|---:|\n");
    for (int answer = 0; answer < ANSWERS; answer++) {
        size_t of[2] = {0};
        for (size_t i = 0; i < n; i++)
            if (published_verdict_counts(&rows[i]) && (int)rows[i].answer == answer)
                of[rows[i].trained]++;
        printf("| %s | %zu | %zu |\n", answer_texts[answer], of[true], of[false]);
    }
}

/* A figure of a job whose lengths are those of its data is no measurement of the planned one. */
static bool is_measured(const struct published_verdict *row, int figure)
{
    return row->reported[figure] > 0 && !row->has_other && !*row->apart;
}

static void print_figures(const struct published_verdict *rows, size_t n)
{
    printf("\n## Figures\n\n| report | of | reported GiB | planned GiB | difference |\n"
           "|---|---|---:|---:|---:|\n");
    for (int f = 0; f < FIGURES; f++)
        for (size_t i = 0; i < n; i++)
            if (rows[i].reported[f] > 0)
                printf("| %s | %s | %.2f | %.2f | %+.1f %%%s |\n", rows[i].name, figure_texts[f],
                       rows[i].reported[f], rows[i].planned[f],
                       100 * (rows[i].planned[f] / rows[i].reported[f] - 1),
                       is_measured(&rows[i], f) ? "" : ", not counted");
    printf("\n| figures | count | mean error, absolute | bias | largest |\n"
           "|---|---:|---:|---:|---:|\n");
    for (int f = 0; f < FIGURES; f++) {
        struct errors e = {0};
        for (size_t i = 0; i < n; i++)
            if (is_measured(&rows[i], f))
                errors_add(&e, rows[i].planned[f] / rows[i].reported[f] - 1);
        if (e.count)
            printf("| %s | %zu | %.1f %% | %+.1f %% | %+.1f %% |\n", figure_texts[f], e.count,
                   errors_mean(&e), errors_bias(&e), errors_largest(&e));
    }
}

static const char *mark_of(const struct published_verdict *row)
{
    return *row->apart                       ? "not planned"
           : published_verdict_is_open(row)  ? "open"
           : published_verdict_is_right(row) ? "right"
                                             : "**wrong**";
}

static void print_group(const struct published_verdict *rows, size_t n, size_t first)
{
    printf("\n### %s\n\n| report | reported | needed at the least, GiB | held without end, GiB | "
           "device, GiB | fit says | |\n|---|---|---:|---:|---:|---|---|\n",
           rows[first].group);
    size_t last = first;
    for (; last < n && strcmp(rows[last].group, rows[first].group) == 0; last++) {
        const struct published_verdict *row = &rows[last];
        printf("| %s | %s | %.2f | %.2f | %.2f | %s", row->name, row->trained ? "trained" : "OOM",
               row->least_gib, row->held_gib, row->card_gib, answer_texts[row->answer]);
        if (row->other != row->answer)
            printf(", or %s", answer_texts[row->other]);
        printf(" | %s |\n", mark_of(row));
    }
    const char *before = "\n";
    for (size_t i = first; i < last; i++) {
        if (!*rows[i].apart && !*rows[i].note)
            continue;
        printf("%s- %s: %s%s%s.\n", before, rows[i].name, rows[i].apart,
               *rows[i].apart && *rows[i].note ? "; " : "", rows[i].note);
        before = "";
    }
}

int main(void)
{
    struct csv csv = csv_read("tests/data/published/verdicts.csv");
    struct published_verdict *rows = published_verdicts(&csv);
    print_sums(rows, csv.rows);
    print_answers(rows, csv.rows);
    print_figures(rows, csv.rows);
    printf("\n## Report by report\n");
    for (size_t i = 0; i < csv.rows; i++)
        if (i == 0 || strcmp(rows[i].group, rows[i - 1].group) != 0)
            print_group(rows, csv.rows, i);
    free(rows);
    csv_free(&csv);
    return 0;
}
