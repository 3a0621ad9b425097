/* difference_report.c - the files of `diff -o DIR`; see difference_report.h. */
#include "report/difference_report.h"

#include "report/files.h"
#include "report/picture.h"

#include "diff_gp.h" /* generated from reports/diff.gp */

#include <math.h>

/* "sharded param" 3.74 1.87: a name and both sides, where either has something. */
static void put_pair(FILE *file, const char *name, double a, double b, double unit)
{
    const double of_a = isnan(a) ? 0 : a / unit, of_b = isnan(b) ? 0 : b / unit;
    if (of_a == 0 && of_b == 0)
        return;
    fputc('"', file);
    for (const char *c = name; *c; c++)
        fputc(*c == '_' ? ' ' : *c, file);
    fprintf(file, "\" %.7f %.7f\n", of_a, of_b);
}

static void put_members(FILE *file, const json_t *a, const json_t *b, double unit)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)a, name, value)
    {
        put_pair(file, name, json_number_value(value), difference_number(b, name), unit);
    }
}

/* Two blocks: bytes at the peak in GiB, and what the step is spent on in ms. */
static void pair_data(FILE *file, const void *context)
{
    const struct difference_report *r = context;
    const double gib = 1073741824.0;
    put_members(file, json_object_get(r->memory[0], "categories"),
                json_object_get(r->memory[1], "categories"), gib);
    put_pair(file, "device", difference_number(r->memory[0], "peak.device_bytes"),
             difference_number(r->memory[1], "peak.device_bytes"), gib);
    fputs("\n\n", file);
    put_members(file, json_object_get(r->side[0].time, "spent_s"),
                json_object_get(r->side[1].time, "spent_s"), 1e-3);
    put_pair(file, "communication", difference_number(r->side[0].time, "communication_s"),
             difference_number(r->side[1].time, "communication_s"), 1e-3);
    put_pair(file, "step", difference_number(r->side[0].time, "step_s"),
             difference_number(r->side[1].time, "step_s"), 1e-3);
}

static void pair_settings(FILE *file, const void *context)
{
    const struct difference_report *r = context;
    for (int s = 0; s < SIDES; s++) {
        fprintf(file, "label_%c = ", 'a' + s);
        files_gnuplot_text(file, r->label[s]);
        fputc('\n', file);
    }
}

enum err_code difference_report_write(const struct difference_report *report, const char *dir,
                                      const char **note, struct err *err)
{
    static const struct picture picture = {"diff.svg", diff_gp, pair_data, pair_settings};
    bool drawn = false;
    *note = NULL;
    TRY(files_write_json(dir, "diff.json", difference_json(report), err));
    if (!report->memory[0] || !report->memory[1] || !report->difference->timed) {
        *note = "no diff.svg: a plan without predictions";
        return ERR_OK;
    }
    TRY(picture_draw(&picture, report, dir, &drawn, err));
    if (!drawn)
        *note = "gnuplot is not there or failed: no diff.svg";
    return ERR_OK;
}
