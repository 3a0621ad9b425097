/* kernel_rows.c - see kernel_rows.h. */
#include "tests/support/kernel_rows.h"

#include "base/arena.h"
#include "kernels/kernel_csv.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const struct err *err)
{
    fprintf(stderr, "%s\n", err->text);
    exit(2);
}

static const char *cell(const struct kernel_csv *csv, uint32_t row, const char *column)
{
    const uint32_t at = csv_table_column(csv->table, column);
    return at == UINT32_MAX ? "" : csv_table_cell(csv->table, row, at);
}

static void name_row(const struct kernel_csv *csv, uint32_t row, struct kernel_row *out)
{
#define CELL(column) cell(csv, row, column)
    switch (csv->form) {
    case KERNEL_CSV_PROFILER:
        snprintf(out->name, sizeof out->name, "%.40s %.110s", CELL("op"), CELL("input_dims"));
        break;
    case KERNEL_CSV_MATMUL:
        snprintf(out->name, sizeof out->name, "%s x (%s x %s x %s) %s", CELL("batch"), CELL("m"),
                 CELL("n"), CELL("k"), CELL("dtypes"));
        break;
    case KERNEL_CSV_ATTENTION:
        snprintf(out->name, sizeof out->name, "%s %s, %s x %s, %s heads of %s, %s%s%s%s",
                 CELL("model"), CELL("dtype"), CELL("batch"), CELL("q_seq"), CELL("q_heads"),
                 CELL("head_qk"), CELL("mask"), *CELL("sliding_window") ? ", window " : "",
                 CELL("sliding_window"),
                 strcmp(CELL("deterministic"), "True") == 0 ? ", deterministic" : "");
        break;
    default:
        snprintf(out->name, sizeof out->name, "%s %s, %s x %s", CELL("norm"), CELL("backend"),
                 CELL("rows"), CELL("columns"));
    }
#undef CELL
}

/* Two classes of a table whose rows are predicted by pass, and what no class is known of. */
static void add(struct kernel_row *rows, size_t *count, const struct kernel_row *row,
                const char *class, const char *pass, double measured_s, double predicted_s)
{
    struct kernel_row *to = &rows[(*count)++];
    *to = *row;
    snprintf(to->class, sizeof to->class, "%s%s", class, pass);
    to->measured_s = measured_s;
    to->predicted_s = predicted_s;
}

static void find(const char *gpu, enum clock clock, struct profile *profile, struct err *err)
{
    char name[64];
    snprintf(name, sizeof name, "%s", gpu);
    name[strcspn(name, "(")] = '\0';
    while (*name && name[strlen(name) - 1] == ' ')
        name[strlen(name) - 1] = '\0';
    if (profile_find(name, profile, err) != ERR_OK)
        fail(err);
    profile->clock = clock;
}

struct kernel_row *kernel_rows_read(const char *table, enum clock clock, size_t *count)
{
    char path[128];
    struct csv_table cells;
    struct kernel_csv csv;
    struct err err = {0};
    snprintf(path, sizeof path, "tests/data/gpu/%s.csv", table);
    if (csv_table_read(path, &cells, &err) != ERR_OK ||
        kernel_csv_open(path, &cells, &csv, &err) != ERR_OK)
        fail(&err);
    struct kernel_row *rows = xmalloc((2 * (size_t)cells.rows + 1) * sizeof *rows);
    struct profile profile = {.name = ""};
    const char *last = NULL; /* the GPU that it is of: rows of one follow each other */
    *count = 0;
    for (uint32_t i = 0; i < cells.rows; i++) {
        struct kernel_row row = {.name = ""};
        struct kernel_csv_row out;
        double backward_s;
        const char *gpu = cell(&csv, i, "gpu");
        if (!last || strcmp(gpu, last) != 0) {
            profile_free(&profile);
            find(gpu, clock, &profile, &err);
            last = gpu;
        }
        snprintf(row.gpu, sizeof row.gpu, "%s", profile.name);
        name_row(&csv, i, &row);
        if (kernel_csv_predict(&csv, i, &profile, &out, &err) != ERR_OK)
            fail(&err);
        const double measured_s = kernel_csv_measured(&csv, i, &backward_s);
        row.fitted = csv.form == KERNEL_CSV_MATMUL && i / 2 % 2 == 0;
        if (csv.form != KERNEL_CSV_NORMS) {
            add(rows, count, &row, out.class, "", measured_s, out.seconds);
        } else {
            const char *class = *out.class ? out.class : "norm";
            add(rows, count, &row, class, ", forward", measured_s - backward_s,
                out.seconds - out.backward_s);
            add(rows, count, &row, class, ", backward", backward_s, out.backward_s);
        }
    }
    profile_free(&profile);
    csv_table_free(&cells);
    return rows;
}

struct kernel_errors kernel_errors_of(const struct kernel_row *rows, size_t count,
                                      const char *class, const char *gpu, double least_s)
{
    struct kernel_errors out = {0};
    double *errors = xmalloc((count + 1) * sizeof *errors);
    for (size_t i = 0; i < count; i++) {
        const struct kernel_row *r = &rows[i];
        if ((class && strcmp(r->class, class) != 0) || (gpu && strcmp(r->gpu, gpu) != 0) ||
            !(r->measured_s >= least_s) || isnan(r->predicted_s))
            continue;
        const double error = r->predicted_s / r->measured_s - 1;
        out.worst = fabs(error) > fabs(out.worst) ? error : out.worst;
        errors[out.count++] = error;
    }
    gsl_sort(errors, 1, out.count);
    out.median = out.count ? gsl_stats_median_from_sorted_data(errors, 1, out.count) : NAN;
    for (size_t i = 0; i < out.count; i++)
        errors[i] = fabs(errors[i]);
    gsl_sort(errors, 1, out.count);
    out.median_absolute = out.count ? gsl_stats_median_from_sorted_data(errors, 1, out.count) : NAN;
    free(errors);
    return out;
}
