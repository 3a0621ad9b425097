/* validate_vram.c - prints the tables of reports/validation/vram.md: memory that others say a job
 * takes, of whole configurations (tests/data/published/vram.csv), beside what fit says. */
#include "tests/validation/errors.h"
#include "tests/validation/published_verdicts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double error_of(const struct published_verdict *row, enum figure figure)
{
    return row->planned[figure] / row->reported[FIGURE_DEVICE] - 1;
}

static void print_rows(const struct published_verdict *rows, size_t n, bool apart)
{
    printf("| configuration | said to take, GiB | reserved, GiB | difference | device, GiB | "
           "difference |\n|---|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < n; i++)
        if ((*rows[i].apart != '\0') == apart)
            printf("| %s | %.2f | %.2f | %+.1f %% | %.2f | %+.1f %% |\n", rows[i].name,
                   rows[i].reported[FIGURE_DEVICE], rows[i].planned[FIGURE_RESERVED],
                   100 * error_of(&rows[i], FIGURE_RESERVED), rows[i].planned[FIGURE_DEVICE],
                   100 * error_of(&rows[i], FIGURE_DEVICE));
    printf("\n");
    for (size_t i = 0; i < n; i++)
        if ((*rows[i].apart != '\0') == apart && (*rows[i].apart || *rows[i].note))
            printf("- %s: %s%s.\n", rows[i].name, rows[i].apart, rows[i].note);
    printf("\n");
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_sum(const char *name, enum figure figure, const struct published_verdict *rows,
                      size_t n)
{
    double *sizes = xmalloc((n + 1) * sizeof *sizes);
    struct errors all = {0};
    size_t near = 0;
    for (size_t i = 0; i < n; i++) {
        if (*rows[i].apart)
            continue;
        const double error = error_of(&rows[i], figure);
        sizes[all.count] = fabs(error);
        errors_add(&all, error);
        near += fabs(error) <= 0.05;
    }
    const size_t count = all.count;
    qsort(sizes, count, sizeof *sizes, by_size);
    const double median = count ? (sizes[(count - 1) / 2] + sizes[count / 2]) / 2 : 0;
    printf("| %s | %zu | %.1f %% | %.1f %% | %+.1f %% | %+.1f %% | %zu |\n", name, count,
           100 * median, errors_mean(&all), errors_bias(&all), errors_largest(&all), near);
    free(sizes);
}

int main(void)
{
    struct csv csv = csv_read("tests/data/published/vram.csv");
    struct published_verdict *rows = published_verdicts(&csv);
    print_rows(rows, csv.rows, false);
    printf("| beside what is said | count | median error, absolute | mean error, absolute | bias | "
           "largest | within 5 %% |\n|---|---:|---:|---:|---:|---:|---:|\n");
    print_sum("reserved", FIGURE_RESERVED, rows, csv.rows);
    print_sum("device", FIGURE_DEVICE, rows, csv.rows);
    printf("\n## Not counted\n\n");
    print_rows(rows, csv.rows, true);
    free(rows);
    csv_free(&csv);
    return 0;
}
