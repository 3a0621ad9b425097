/* compare_report.c - see compare_report.h. */
#include "cli/compare_report.h"

#include "base/file.h"
#include "cli/files.h"

#include "compare_gp.h" /* generated from reports/compare.gp */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 4096 };

struct report {
    const struct plan *plan;
    const struct comparison *comparison;
    const struct compare_verdict *verdict;
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

enum { CURVE_POINTS = 2000, TIME_PIXELS = 2000 }; /* more than a picture is wide */

struct picture {
    const char *name; /* "memory": also what the script calls it */
    const char *svg;
    void (*data)(FILE *file, const struct report *r);
    void (*settings)(FILE *file, const struct report *r);
};

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

static void memory_data(FILE *file, const struct report *r)
{
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

static void memory_settings(FILE *file, const struct report *r)
{
    const char *name;
    const struct compare_memory *m = &r->comparison->memory;
    const double unit = memory_unit(r, &name);
    double top = 0;
    for (int q = 0; q < COMPARE_QUANTITIES; q++)
        top = fmax(top, fmax((double)m->of[q].predicted_peak, (double)m->of[q].recorded_peak));
    fprintf(file, "unit = '%s'\ntop = %.7f\ndiffering = %" PRIu32 "\nend_id = %" PRIu32 "\n", name,
            1.15 * top / unit, m->differing, r->plan->instruction_count);
    fprintf(file, "title = 'memory, rank %" PRIu32 ": ", r->comparison->rank);
    if (r->verdict->memory_equal)
        fputs("equal at every instruction'\n", file);
    else
        fprintf(file, "%" PRIu32 " of %" PRIu32 " instructions differ'\n",
                m->differing + m->missing, m->point_count);
}

/* Lanes that worked, from top to bottom as enum stream_id has them; below them what was exposed.
 * Returns the row of that; rows of idle lanes are -1. */
static int place_lanes(const struct report *r, int rows[STREAM_COUNT])
{
    int count = 0;
    for (int lane = 0; lane < STREAM_COUNT; lane++) {
        rows[lane] = -1;
        for (uint32_t i = 0; i < r->plan->instruction_count && rows[lane] < 0; i++)
            if (r->plan->instructions[i].stream == lane &&
                !isnan(r->comparison->time.spans[i].begin_s))
                rows[lane] = count++;
    }
    return count;
}

static void write_box(FILE *file, const struct compare_interval *span, int row, unsigned colour)
{
    fprintf(file, "%.6f %.6f %d %u\n", 1e3 * span->begin_s, 1e3 * span->end_s, row, colour);
}

static unsigned colour_of(const struct plan_instruction *instruction)
{
    static const unsigned phases[] = {0x4c72b0, 0xdd8452, 0x8172b3}; /* as in compare.gp */
    return plan_op_is_collective((enum plan_op)instruction->op) ? 0x55a868
           : instruction->stream != STREAM_COMPUTE              ? 0xaaaaaa
                                                                : phases[instruction->phase];
}

/* Boxes less than a pixel apart and of one colour are drawn as one. */
static void write_lane(FILE *file, const struct report *r, int lane, int row, double pixel_s)
{
    struct compare_interval open = {NAN, NAN};
    unsigned colour = 0;
    for (uint32_t i = 0; i < r->plan->instruction_count; i++) {
        const struct plan_instruction *instruction = &r->plan->instructions[i];
        const struct compare_interval *span = &r->comparison->time.spans[i];
        if (instruction->stream != lane || isnan(span->begin_s))
            continue;
        if (colour_of(instruction) == colour && span->begin_s - open.end_s < pixel_s) {
            open.end_s = fmax(open.end_s, span->end_s);
            continue;
        }
        if (!isnan(open.begin_s))
            write_box(file, &open, row, colour);
        open = *span;
        colour = colour_of(instruction);
    }
    if (!isnan(open.begin_s))
        write_box(file, &open, row, colour);
}

static void timeline_data(FILE *file, const struct report *r)
{
    const struct compare_time *t = &r->comparison->time;
    const double pixel_s = t->step_s / TIME_PIXELS;
    int rows[STREAM_COUNT];
    const int last = place_lanes(r, rows);
    for (int lane = 0; lane < STREAM_COUNT; lane++)
        write_lane(file, r, lane, rows[lane], pixel_s);
    for (uint32_t i = 0; i < t->exposed_count; i++)
        if (t->exposed[i].end_s - t->exposed[i].begin_s >= 0.2 * pixel_s)
            write_box(file, &t->exposed[i], last, 0xc44e52);
}

static void timeline_settings(FILE *file, const struct report *r)
{
    char step[32], exposed[32];
    int rows[STREAM_COUNT];
    const struct compare_time *t = &r->comparison->time;
    place_lanes(r, rows);
    fprintf(file, "lanes = '");
    for (int lane = 0; lane < STREAM_COUNT; lane++)
        if (rows[lane] >= 0)
            fprintf(file, "%s ", stream_name((enum stream_id)lane));
    fprintf(file, "exposed'\nend_ms = %.6f\n", 1e3 * t->step_s);
    fprintf(file,
            "title = 'recorded step, rank %" PRIu32 ": %s, of which %s exposed communication'\n",
            r->comparison->rank, compare_seconds(t->step_s, step),
            compare_seconds(t->exposed_s, exposed));
}

static const struct picture pictures[] = {
    {"memory", "memory-compare.svg", memory_data, memory_settings},
    {"timeline", "timeline.svg", timeline_data, timeline_settings},
};
enum { PICTURES = sizeof pictures / sizeof pictures[0] };

static FILE *open_file(const char *path, struct err *err)
{
    FILE *file = fopen(path, "w");
    if (!file)
        err_set(err, ERR_IO, "create %s: %s", path, strerror(errno));
    return file;
}

static enum err_code draw(const struct report *r, const struct picture *picture, bool *drawn,
                          struct err *err)
{
    char data[PATH], script[PATH], partial[PATH], path[PATH];
    files_path(r->dir, "compare.tsv.tmp", data, sizeof data);
    files_path(r->dir, "compare.gp.tmp", script, sizeof script);
    files_path(r->dir, "compare.svg.tmp", partial, sizeof partial);
    files_path(r->dir, picture->svg, path, sizeof path);
    FILE *file = open_file(data, err);
    if (!file)
        return err->code;
    picture->data(file, r);
    fclose(file);
    if ((file = open_file(script, err))) {
        fprintf(file, "picture = '%s'\ndata = '%s'\nout = '%s'\n", picture->name, data, partial);
        picture->settings(file, r);
        fputs(compare_gp, file);
        fclose(file);
        *drawn = files_gnuplot(script) && rename(partial, path) == 0;
        if (!*drawn)
            remove(partial);
        remove(script);
    }
    remove(data);
    return file ? ERR_OK : err->code;
}

/* ---- compare.html ---- */

static void put_escaped(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '&')
            fputs("&amp;", file);
        else
            fputc(*text, file);
    }
}

static void put_tables(FILE *file, const struct report *r)
{
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (!memory)
        return;
    compare_print(memory, r->plan, r->comparison, r->verdict);
    fclose(memory);
    put_escaped(file, text);
    free(text);
}

static enum err_code write_html(const struct report *r, struct err *err)
{
    char path[PATH], svg[PATH];
    struct file_writer to;
    files_path(r->dir, "compare.html", path, sizeof path);
    TRY(file_create(path, &to, err));
    FILE *file = to.file;
    fputs("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n"
          "<title>shardplan: predicted beside recorded</title>\n"
          "<style>body{font:15px/1.45 Helvetica,Arial,sans-serif;max-width:1150px;"
          "margin:2em auto;color:#222}pre{background:#f6f6f6;padding:1em;overflow:auto;"
          "font:13px/1.4 monospace}svg{width:100%;height:auto}</style>\n"
          "<h1>Predicted beside recorded</h1>\n",
          file);
    for (int i = 0; i < PICTURES; i++)
        files_inline_svg(file, files_path(r->dir, pictures[i].svg, svg, sizeof svg));
    fputs("<pre>", file);
    put_tables(file, r);
    fputs("</pre>\n<p>Errors are predicted minus recorded. Communication is exposed while a "
          "collective runs and the compute lane does not. <code>compare.json</code> has every "
          "number.</p>\n</html>\n",
          file);
    return file_commit(&to, ERR_OK, err);
}

enum err_code compare_report_write(const struct plan *plan, const struct comparison *comparison,
                                   const struct compare_verdict *verdict, const char *dir,
                                   const char **note, struct err *err)
{
    const struct report r = {plan, comparison, verdict, dir};
    *note = NULL;
    TRY(files_make_folder(dir, err));
    TRY(write_json(&r, err));
    for (int i = 0; i < PICTURES; i++) {
        bool drawn = false;
        TRY(draw(&r, &pictures[i], &drawn, err));
        if (!drawn)
            *note = "gnuplot is not there or failed: no memory-compare.svg and timeline.svg";
    }
    return write_html(&r, err);
}
