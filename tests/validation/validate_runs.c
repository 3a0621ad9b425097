/* validate_runs.c - prints the tables of reports/validation/runs.md: published training runs that
 * nothing was fitted to (tests/data/published/runs.csv), each planned from a command line. */
#include "tests/support/published_runs.h"
#include "tests/validation/errors.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE_GIB = 10 /* below it a digit of the source is over 1 % */ };

static double error_of(const struct published_run *row)
{
    return row->simulated_s / row->measured_s - 1;
}

static bool is_inside(const struct published_run *row)
{
    return row->measured_s >= row->low_s && row->measured_s <= row->high_s;
}

/* Whether the row is of a group, or of any that is among all (NULL). */
static bool is_meant(const char *group, const struct published_run *row)
{
    assert(row->group); /* a cell */
    return group ? strcmp(row->group, group) == 0 : !published_run_is_apart(row);
}

/* Sums over a group's rows, or over all (NULL). */
static void print_summary(const char *group, const struct published_run *rows, size_t count)
{
    struct errors all = {0};
    size_t inside = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_meant(group, &rows[i]))
            continue;
        errors_add(&all, error_of(&rows[i]));
        inside += is_inside(&rows[i]);
    }
    printf("| %s | %zu | %.1f %% | %+.1f %% | %+.1f %% | %zu |\n", group ? group : "all", all.count,
           errors_mean(&all), errors_bias(&all), errors_largest(&all), inside);
}

static bool is_first_of_group(const struct published_run *rows, size_t i)
{
    return i == 0 || strcmp(rows[i].group, rows[i - 1].group) != 0;
}

static void print_group(const struct published_run *rows, size_t count, size_t first)
{
    printf("\n## %s\n\n| run | measured s | simulated s | range | error |\n"
           "|---|---:|---:|---:|---:|\n",
           rows[first].group);
    for (size_t i = first; i < count && strcmp(rows[i].group, rows[first].group) == 0; i++)
        printf("| %s | %.3f | %.3f | %.3f to %.3f%s | %+.1f %% |\n", rows[i].name,
               rows[i].measured_s, rows[i].simulated_s, rows[i].low_s, rows[i].high_s,
               is_inside(&rows[i]) ? "" : ", outside", 100 * error_of(&rows[i]));
}

static void print_memory(const struct published_run *rows, size_t count)
{
    struct errors large = {0};
    printf("\n## Allocated memory\n\n| run | measured GiB | planned GiB | difference |\n"
           "|---|---:|---:|---:|\n");
    for (size_t i = 0; i < count; i++) {
        if (rows[i].allocated_gib <= 0)
            continue;
        const double error = rows[i].planned_gib / rows[i].allocated_gib - 1;
        printf("| %s | %.1f | %.2f | %+.2f %% |\n", rows[i].name, rows[i].allocated_gib,
               rows[i].planned_gib, 100 * error);
        if (rows[i].allocated_gib >= LARGE_GIB)
            errors_add(&large, error);
    }
    printf("\n| | count | largest difference |\n|---|---:|---:|\n"
           "| runs of %d GiB and more | %zu | %+.2f %% |\n",
           LARGE_GIB, large.count, errors_largest(&large));
}

static void print_reserved(const struct published_run *rows, size_t count)
{
    printf("\n## Reserved memory\n\n| run | measured, of the card | planned |\n|---|---:|---:|\n");
    for (size_t i = 0; i < count; i++)
        if (rows[i].reserved_percent > 0)
            printf("| %s | %.0f %% | %.0f %% |\n", rows[i].name, rows[i].reserved_percent,
                   rows[i].planned_percent);
}

static void print_pairs(const struct published_run *rows, size_t count)
{
    size_t pairs = 0, ordered = 0;
    printf("\n## Settings of one job\n\n| faster in measurement | than | measured | predicted |\n"
           "|---|---|---:|---:|\n");
    for (size_t i = 0; i < count; i++)
        for (size_t k = i + 1; k < count; k++) {
            const struct published_run *a = &rows[i], *b = &rows[k];
            if (!published_runs_pair(a, b))
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
    struct published_run *rows = published_runs(&csv);
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
