/* compare_report.c - see compare_report.h. */
#include "report/compare_report.h"

#include "base/file.h"
#include "report/files.h"
#include "report/picture.h"
#include "report/title.h"

#include "compare_gp.h" /* generated from reports/compare.gp */

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 4096 };

#define MEMORY_SVG "memory-compare.svg"

struct report {
    const struct plan *plan;
    const struct comparison *comparison;
    const struct compare_verdict *verdict;
    const char *title; /* what is said before what a picture is of: "toy-llama: ", "" */
    const char *dir;
};

/* ---- compare.json ---- */

/* A row a point: thousands of them stay readable, and line tools can be used on them. */
static void write_curve(FILE *file, const struct compare_memory *m)
{
    fputs(" \"curve\": {\"columns\": [\"instruction\", \"allocated_predicted\", "
          "\"allocated_recorded\", \"reserved_predicted\", \"reserved_recorded\"],\n  \"rows\": [",
          file);
    for (uint32_t i = 0; i < m->point_count; i++) {
        const struct compare_point *p = &m->points[i];
        fprintf(file, "%s\n   [%" PRIu32, i ? "," : "", p->instruction);
        for (int q = 0; q < COMPARE_QUANTITIES; q++) {
            fprintf(file, ", %" PRIu64 ", ", p->predicted[q]);
            if (p->sampled)
                fprintf(file, "%" PRIu64, p->recorded[q]);
            else
                fputs("null", file);
        }
        fputc(']', file);
    }
    fputs("]}", file);
}

static enum err_code write_json(const struct report *r, struct err *err)
{
    char path[PATH];
    struct file_writer to;
    files_path(r->dir, "compare.json", path, sizeof path);
    TRY(file_create(path, &to, err));
    FILE *file = to.file;
    json_t *object = compare_json(r->plan, r->comparison, r->verdict);
    const char *key;
    json_t *value;
    fputs("{\n", file);
    json_object_foreach(object, key, value)
    {
        fprintf(file, " \"%s\": ", key);
        json_dumpf(value, file, JSON_ENCODE_ANY);
        fputs(",\n", file);
    }
    write_curve(file, &r->comparison->memory);
    fputs("\n}\n", file);
    json_decref(object);
    return file_commit(&to, ERR_OK, err);
}

/* ---- pictures ---- */

enum { CURVE_POINTS = 2000 }; /* more than a picture is wide */

static double memory_unit(const struct report *r, const char **name)
{
    const bool large =
        r->comparison->memory.of[COMPARE_RESERVED].predicted_peak >= 4ULL * 1073741824;
    *name = large ? "GiB" : "MiB";
    return large ? 1073741824.0 : 1048576.0;
}

static bool differs(const struct compare_point *p)
{
    return p->sampled && memcmp(p->predicted, p->recorded, sizeof p->predicted) != 0;
}

/* Where points are too many, the one that says most stands for its stretch: a difference, else the
 * highest. */
static bool says_more(const struct compare_point *a, const struct compare_point *b)
{
    if (differs(a) != differs(b))
        return differs(a);
    return a->predicted[COMPARE_ALLOCATED] > b->predicted[COMPARE_ALLOCATED];
}

static void memory_data(FILE *file, const void *context)
{
    const struct report *r = context;
    const char *name;
    const double unit = memory_unit(r, &name);
    const struct compare_memory *m = &r->comparison->memory;
    const uint32_t stride = m->point_count / CURVE_POINTS + 1;
    for (uint32_t i = 0; i < m->point_count; i += stride) {
        const struct compare_point *best = &m->points[i];
        for (uint32_t k = i + 1; k < m->point_count && k < i + stride; k++)
            if (says_more(&m->points[k], best))
                best = &m->points[k];
        fprintf(file, "%" PRIu32, best->instruction);
        for (int q = 0; q < COMPARE_QUANTITIES; q++)
            fprintf(file, " %.7f %.7f", (double)best->predicted[q] / unit,
                    best->sampled ? (double)best->recorded[q] / unit : NAN);
        fprintf(file, " %d\n", differs(best));
    }
}

static void memory_settings(FILE *file, const void *context)
{
    const struct report *r = context;
    const char *name;
    const struct compare_memory *m = &r->comparison->memory;
    const double unit = memory_unit(r, &name);
    double top = 0;
    for (int q = 0; q < COMPARE_QUANTITIES; q++)
        top = fmax(top, fmax((double)m->of[q].predicted_peak, (double)m->of[q].recorded_peak));
    fprintf(file, "unit = '%s'\ntop = %.7f\ndiffering = %" PRIu32 "\nend_id = %" PRIu32 "\n", name,
            1.15 * top / unit, m->differing, r->plan->instruction_count);
    char title[TITLE_LINE], what[64] = "equal at every instruction";
    if (!r->verdict->memory_equal)
        snprintf(what, sizeof what, "%" PRIu32 " of %" PRIu32 " instructions differ",
                 m->differing + m->missing, m->point_count);
    snprintf(title, sizeof title, "%smemory of rank %" PRIu32 " in a recorded step, %s", r->title,
             r->comparison->rank, what);
    fputs("title = ", file);
    files_gnuplot_text(file, title);
    fputc('\n', file);
}

static enum err_code draw_memory(const struct report *r, bool *drawn, struct err *err)
{
    static const struct picture picture = {MEMORY_SVG, compare_gp, memory_data, memory_settings};
    return picture_draw(&picture, r, r->dir, drawn, err);
}

static enum err_code draw_timeline(const struct report *r, bool *drawn, struct err *err)
{
    char title[TITLE_LINE], step[32], exposed[32];
    const struct compare_time *t = &r->comparison->time;
    snprintf(title, sizeof title,
             "%srecorded step of rank %" PRIu32 ", %s, of which %s exposed communication", r->title,
             r->comparison->rank, compare_seconds(t->step_s, step),
             compare_seconds(t->exposed_s, exposed));
    const struct timeline_picture timeline = {.plan = r->plan, .time = t, .title = title};
    return timeline_draw(&timeline, r->dir, drawn, err);
}

/* ---- compare.html ---- */

static void put_tables(FILE *file, const void *context)
{
    const struct report *r = context;
    compare_print(file, r->plan, r->comparison, r->verdict);
}

static enum err_code write_html(const struct report *r, struct err *err)
{
    char path[PATH], svg[PATH];
    struct file_writer to;
    files_path(r->dir, "compare.html", path, sizeof path);
    TRY(file_create(path, &to, err));
    FILE *file = to.file;
    files_html_begin(file, "Predicted beside recorded");
    files_inline_svg(file, files_path(r->dir, MEMORY_SVG, svg, sizeof svg));
    files_inline_svg(file, files_path(r->dir, TIMELINE_SVG, svg, sizeof svg));
    files_html_pre(file, put_tables, r);
    fputs("<p>Errors are predicted minus recorded. Communication is exposed while a "
          "collective runs and the compute lane does not. <code>compare.json</code> has every "
          "number.</p>\n</html>\n",
          file);
    return file_commit(&to, ERR_OK, err);
}

static enum err_code write_files(const struct report *r, const char **note, struct err *err)
{
    bool memory_drawn, timeline_drawn;
    TRY(write_json(r, err));
    TRY(draw_memory(r, &memory_drawn, err));
    TRY(draw_timeline(r, &timeline_drawn, err));
    if (!memory_drawn || !timeline_drawn)
        *note = "gnuplot is not there or failed: no memory-compare.svg and timeline.svg";
    return write_html(r, err);
}

enum err_code compare_report_write(const struct plan *plan, const struct comparison *comparison,
                                   const struct compare_verdict *verdict, const char *model,
                                   const char *dir, const char **note, struct err *err)
{
    char title[TITLE_NAME + 2] = "", name[TITLE_NAME];
    if (model)
        snprintf(title, sizeof title, "%s: ", title_model(model, name));
    const struct report r = {plan, comparison, verdict, title, dir};
    *note = NULL;
    return write_files(&r, note, err);
}
