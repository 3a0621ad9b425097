/* validate_kernels.c - prints reports/validation/kernels.md: single kernels on real GPUs beside the
 * cost model, class by class and row by row. */
#include "tests/support/delta_rule.h"
#include "tests/support/kernel_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_S 15e-6 /* what is shorter is launch, mostly */

static const char *const tables[] = {"kernels", "matmul_h100", "attention_training",
                                     "norms_training"};
enum { TABLES = sizeof tables / sizeof tables[0], GROUPS_MOST = 64 };

struct group { /* rows of one class on one GPU */
    const char *class, *gpu;
};

/* Groups in the order in which their rows come. */
static size_t groups_of(const struct kernel_row *rows, size_t count, struct group *groups)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        size_t g = 0;
        while (g < n && (strcmp(groups[g].class, rows[i].class) != 0 ||
                         strcmp(groups[g].gpu, rows[i].gpu) != 0))
            g++;
        if (g == n && n < GROUPS_MOST && *rows[i].class && !isnan(rows[i].predicted_s))
            groups[n++] = (struct group){rows[i].class, rows[i].gpu};
    }
    return n;
}

static void print_group(const struct group *group, const struct kernel_row *rows, size_t count)
{
    const struct kernel_errors e = kernel_errors_of(rows, count, group->class, group->gpu, LEAST_S);
    const struct kernel_errors all = kernel_errors_of(rows, count, group->class, group->gpu, 0);
    if (e.count)
        printf("| %s | %s | %zu | %+.1f %% | %.1f %% | %+.1f %% | %zu |\n", group->class,
               group->gpu, e.count, 100 * e.median, 100 * e.median_absolute, 100 * e.worst,
               all.count - e.count);
    else
        printf("| %s | %s | 0 | | | | %zu |\n", group->class, group->gpu, all.count);
}

static void print_summary(const char *table, const struct kernel_row *rows, size_t count)
{
    struct group groups[GROUPS_MOST];
    const size_t n = groups_of(rows, count, groups);
    size_t unknown = 0;
    for (size_t i = 0; i < count; i++)
        unknown += isnan(rows[i].predicted_s) ? 1 : 0;
    printf("\n### %s.csv\n\n"
           "| class | GPU | rows of 15 us and more | median error | median, absolute | worst | "
           "shorter rows |\n|---|---|---:|---:|---:|---:|---:|\n",
           table);
    for (size_t g = 0; g < n; g++)
        print_group(&groups[g], rows, count);
    if (unknown)
        printf("\n%zu of %zu rows are of what the model does not know.\n", unknown, count);
}

/* What was fitted, beside what was not: of every second pair of products. */
static void print_halves(struct kernel_row *rows, size_t count)
{
    printf("\nThe constants of products on Hopper were fitted to the first half of the bf16 rows "
           "(every second pair\nof the file); the other half was not fitted to:\n\n"
           "| half | rows of 15 us and more | median error | median, absolute | worst |\n"
           "|---|---:|---:|---:|---:|\n");
    for (int fitted = 1; fitted >= 0; fitted--) {
        struct kernel_row *half = malloc((count + 1) * sizeof *half);
        size_t n = 0;
        for (size_t i = 0; half && i < count; i++)
            if (rows[i].fitted == (fitted == 1))
                half[n++] = rows[i];
        const struct kernel_errors e = kernel_errors_of(half, n, "gemm", NULL, LEAST_S);
        printf("| %s | %zu | %+.1f %% | %.1f %% | %+.1f %% |\n", fitted ? "fitted" : "the other",
               e.count, 100 * e.median, 100 * e.median_absolute, 100 * e.worst);
        free(half);
    }
}

static void print_rows(const char *table, const struct kernel_row *rows, size_t count)
{
    printf("\n## %s.csv, row by row\n\n"
           "| GPU | kernel | class | measured us | predicted us | error |\n"
           "|---|---|---|---:|---:|---:|\n",
           table);
    for (size_t i = 0; i < count; i++) {
        const struct kernel_row *r = &rows[i];
        printf("| %s | %s | %s | %.1f |", r->gpu, r->name, r->class, 1e6 * r->measured_s);
        if (isnan(r->predicted_s))
            printf(" | |\n");
        else
            printf(" %.1f | %+.1f %% |\n", 1e6 * r->predicted_s,
                   100 * (r->predicted_s / r->measured_s - 1));
    }
}

static void print_delta(void)
{
    struct delta_group groups[DELTA_GROUPS];
    size_t count;
    struct delta_row *rows = delta_rows_read(&count);
    delta_groups(rows, count, groups);
    printf(
        "\n### delta_rule.csv\n\n"
        "The gated delta rule of linear attention by flash-linear-attention, all of its kernels "
        "together. Two numbers were fitted to H200's forward, one to GB200's, and one to RTX "
        "5090's (planner/cost/delta_cost.c); backward, and heads of 64 (tileops), to nothing.\n\n"
        "| GPU | pass | source | rows | mean error, absolute | bias | worst |\n"
        "|---|---|---|---:|---:|---:|---:|\n");
    for (size_t g = 0; g < DELTA_GROUPS; g++)
        printf("| %s | %s | %s | %zu | %.1f %% | %+.1f %% | %+.1f %% |\n", groups[g].gpu,
               groups[g].backward ? "backward" : "forward", groups[g].source, groups[g].count,
               100 * groups[g].error, 100 * groups[g].bias, 100 * groups[g].worst);
    free(rows);
}

int main(void)
{
    struct kernel_row *rows[TABLES];
    size_t counts[TABLES];
    puts("## Classes");
    for (size_t t = 0; t < TABLES; t++) {
        rows[t] = kernel_rows_read(tables[t], CLOCK_BURST, &counts[t]);
        print_summary(tables[t], rows[t], counts[t]);
        if (strcmp(tables[t], "matmul_h100") == 0)
            print_halves(rows[t], counts[t]);
    }
    print_delta();
    for (size_t t = 0; t < TABLES; t++) {
        print_rows(tables[t], rows[t], counts[t]);
        free(rows[t]);
    }
    return 0;
}
