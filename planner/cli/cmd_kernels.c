/* cmd_kernels.c - shardplan kernels: a table of kernels, and what the cost model says of each. */
#include "cli/commands.h"
#include "kernels/kernel_csv.h"
#include "machine/builtin.h"
#include "settings/settings_parse.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Profiles by what a `gpu` column says: rows of one GPU follow each other. */
struct machines {
    const struct settings *settings;
    struct profile profile;
    char name[96]; /* of what is in `profile`; "": nothing */
    bool known;
};

/* Puts the profile of a row into machines->profile; known is false where the column names no GPU
 * of ours. "H100 (sm_90)" is an H100. */
static enum err_code find_profile(struct machines *m, const char *gpu, struct err *err)
{
    char name[96];
    snprintf(name, sizeof name, "%s", m->settings->gpu ? m->settings->gpu : gpu);
    char *remark = strstr(name, " (");
    if (remark)
        *remark = '\0';
    if (m->name[0] && strcmp(name, m->name) == 0)
        return ERR_OK;
    profile_free(&m->profile);
    snprintf(m->name, sizeof m->name, "%s", name);
    m->known = *name && builtin_find(builtin_gpus(), name) < builtin_gpus()->count;
    if (!m->known)
        return ERR_OK;
    TRY(profile_find(name, &m->profile, err));
    m->profile.clock = m->settings->clock;
    return ERR_OK;
}

static void print_microseconds(double seconds)
{
    putchar(',');
    if (!isnan(seconds))
        printf("%.3f", 1e6 * seconds);
}

static void print_header(const struct kernel_csv *csv)
{
    for (uint32_t i = 0; i < csv->table->columns; i++) {
        if (i)
            putchar(',');
        csv_write(stdout, csv->table->cells[i]);
    }
    puts(csv->form == KERNEL_CSV_NORMS ? ",predicted_us,predicted_fwd_us,predicted_bwd_us"
                                       : ",predicted_us");
}

static void print_row(const struct kernel_csv *csv, uint32_t row, const struct kernel_csv_row *out)
{
    for (uint32_t i = 0; i < csv->table->columns; i++) {
        if (i)
            putchar(',');
        csv_write(stdout, csv_table_cell(csv->table, row, i));
    }
    print_microseconds(out->seconds);
    if (csv->form == KERNEL_CSV_NORMS) {
        print_microseconds(out->seconds - out->backward_s);
        print_microseconds(out->backward_s);
    }
    putchar('\n');
}

static json_t *microseconds_json(double seconds)
{
    return isnan(seconds) ? json_null() : json_real(1e6 * seconds);
}

/* {"kernels": [{every column as text, "predicted_us": ...}, ...]} */
static void print_json(const struct kernel_csv *csv, const struct kernel_csv_row *rows)
{
    json_t *array = json_array(), *object = json_pack("{s:o}", "kernels", array);
    for (uint32_t i = 0; i < csv->table->rows; i++) {
        json_t *row = json_object();
        for (uint32_t k = 0; k < csv->table->columns; k++)
            json_object_set_new(row, csv->table->cells[k],
                                json_string(csv_table_cell(csv->table, i, k)));
        json_object_set_new(row, "predicted_us", microseconds_json(rows[i].seconds));
        if (csv->form == KERNEL_CSV_NORMS) {
            json_object_set_new(row, "predicted_fwd_us",
                                microseconds_json(rows[i].seconds - rows[i].backward_s));
            json_object_set_new(row, "predicted_bwd_us", microseconds_json(rows[i].backward_s));
        }
        json_array_append_new(array, row);
    }
    report_json(object);
}

static void print_csv(const struct kernel_csv *csv, const struct kernel_csv_row *rows)
{
    print_header(csv);
    for (uint32_t i = 0; i < csv->table->rows; i++)
        print_row(csv, i, &rows[i]);
}

/* Everything is predicted before a line is printed: a bad row leaves no half of a table. */
static enum err_code predict_rows(const struct kernel_csv *csv, const struct settings *settings,
                                  struct kernel_csv_row *rows, struct err *err)
{
    const uint32_t gpu = csv_table_column(csv->table, "gpu");
    struct machines machines = {.settings = settings};
    enum err_code rc = ERR_OK;
    if (gpu == UINT32_MAX && !settings->gpu)
        return err_set(err, ERR_INVALID, "%s:1: there is no column gpu: --gpu NAME says which",
                       csv->path);
    for (uint32_t i = 0; i < csv->table->rows && rc == ERR_OK; i++) {
        rc = find_profile(&machines, gpu == UINT32_MAX ? "" : csv_table_cell(csv->table, i, gpu),
                          err);
        rows[i] = (struct kernel_csv_row){.seconds = NAN, .backward_s = NAN, .class = ""};
        if (rc == ERR_OK && machines.known)
            rc = kernel_csv_predict(csv, i, &machines.profile, &rows[i], err);
    }
    profile_free(&machines.profile);
    return rc;
}

static enum err_code print_table(const struct settings *settings, struct err *err)
{
    struct csv_table table;
    struct kernel_csv csv;
    TRY(csv_table_read(settings->table, &table, err));
    struct kernel_csv_row *rows = xmalloc((table.rows + 1) * sizeof *rows);
    enum err_code rc = kernel_csv_open(settings->table, &table, &csv, err);
    if (rc == ERR_OK)
        rc = predict_rows(&csv, settings, rows, err);
    if (rc == ERR_OK && settings->json)
        print_json(&csv, rows);
    else if (rc == ERR_OK && !settings->quiet)
        print_csv(&csv, rows);
    free(rows);
    csv_table_free(&table);
    return rc;
}

int command_kernels(int argc, char **argv)
{
    struct settings settings;
    struct err err = {0};
    settings_parse(COMMAND_KERNELS, argc, argv, &settings);
    return print_table(&settings, &err) == ERR_OK ? EXIT_DONE : report_error(&err);
}
