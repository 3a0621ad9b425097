/* sweep_report.c - the files of `sweep -o DIR`; see sweep_report.h. */
#include "report/sweep_report.h"

#include "report/files.h"
#include "report/picture.h"
#include "report/title.h"

#include "sweep_gp.h"     /* generated from reports/sweep.gp */
#include "sweep_map_gp.h" /* generated from reports/sweep_map.gp */

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define SWEEP_SVG "sweep.svg"

struct report {
    const struct sweep_question *question;
    const struct sweep *sweep;
};

static enum point_measure shown(const struct report *r)
{
    return (enum point_measure)r->question->base->sweep.show;
}

/* A search has its answers to show. */
static double value_of(const struct report *r, uint32_t i)
{
    double number;
    const struct sweep_point *at = &r->sweep->points[i];
    if (!r->question->searches)
        return sweep_measure_value(&at->point, shown(r));
    return at->found[0] && number_real(at->found, &number) ? number : (double)NAN;
}

static const char *title_of(const struct report *r)
{
    return r->question->searches && r->question->axis_count ? r->question->along.name
                                                            : sweep_measure_title(shown(r));
}

static void put_tics(FILE *file, const char *axis, const struct report *r, uint32_t count,
                     const struct axis *values)
{
    fprintf(file, "set %stics (", axis);
    for (uint32_t i = 0; i < count; i++) {
        fputs(i ? ", " : "", file);
        files_gnuplot_text(file,
                           values ? values->values[i] : sweep_row(r->sweep, r->question, i).value);
        fprintf(file, " %" PRIu32, i);
    }
    fputs(") noenhanced\n", file);
}

static void put_text(FILE *file, const char *name, const char *text)
{
    fprintf(file, "%s = ", name);
    files_gnuplot_text(file, text);
    fputc('\n', file);
}

/* ---- what both pictures say ---- */

enum { ROW_TITLE = 136, MAP_TITLE = 88 }; /* characters that a picture is wide */

/* What was given, with the model's name for its path. */
static void put_title(FILE *file, const struct report *r, size_t size)
{
    char given[ROW_TITLE], name[TITLE_NAME];
    struct settings named = *r->question->base; /* what it has is lent */
    named.model = title_model(named.model, name);
    settings_given_text(&named, given, size);
    if (strlen(given) + 1 == size)
        memcpy(given + size - 4, "...", 4);
    put_text(file, "title", given);
}

struct kinds { /* whether there is any of each */
    bool marked, fits, large, released;
};

static void note_kind(const struct point *p, bool marked, struct kinds *kinds)
{
    kinds->marked |= marked && p->verdict == POINT_FITS;
    kinds->fits |= !marked && p->verdict == POINT_FITS;
    kinds->large |= p->verdict == POINT_TOO_LARGE;
    kinds->released |= p->verdict == POINT_FITS && p->after_release;
}

/* A legend has no entry for what there is none of. */
static void put_kinds(FILE *file, struct kinds kinds)
{
    fprintf(file, "any_marked = %d\nany_fits = %d\nany_large = %d\nany_released = %d\n",
            kinds.marked, kinds.fits, kinds.large, kinds.released);
}

/* ---- one axis ---- */

static void row_data(FILE *file, const void *context)
{
    const struct report *r = context;
    const bool answers = r->question->searches && r->question->axis_count;
    for (uint32_t i = 0; i < sweep_rows(r->sweep, r->question); i++) {
        const struct point *p = sweep_row(r->sweep, r->question, i).point;
        if (p->verdict == POINT_REFUSED)
            continue;
        fprintf(file, "%" PRIu32 " %.7f %.7f %.7f %.9g %d %d\n", i,
                sweep_measure_value(p, MEASURE_DEVICE), sweep_measure_value(p, MEASURE_RESERVED),
                sweep_measure_value(p, MEASURE_REQUESTED),
                answers ? value_of(r, i) : sweep_measure_value(p, shown(r)),
                p->verdict != POINT_FITS                   ? 0
                : i == sweep_marked(r->sweep, r->question) ? 2
                                                           : 1,
                p->verdict == POINT_FITS && p->after_release);
    }
}

static void row_settings(FILE *file, const void *context)
{
    const struct report *r = context;
    const uint32_t rows = sweep_rows(r->sweep, r->question);
    const bool answers = r->question->searches && !r->question->axis_count;
    struct kinds kinds = {false};
    double capacity = 0;
    bool same = true;
    for (uint32_t i = 0; i < rows; i++) {
        const struct point *p = sweep_row(r->sweep, r->question, i).point;
        const double its = (double)p->capacity_bytes / 1073741824.0;
        note_kind(p, i == sweep_marked(r->sweep, r->question), &kinds);
        same = same && (its == 0 || capacity == 0 || its == capacity);
        capacity = fmax(capacity, its);
    }
    fprintf(file, "rows = %" PRIu32 "\ncapacity = %.7f\n", rows, same ? capacity : 0);
    put_title(file, r, ROW_TITLE);
    put_kinds(file, kinds);
    put_text(file, "marked", answers ? "answer" : "best");
    put_text(file, "measure", title_of(r));
    put_text(file, "name",
             r->question->axis_count ? r->question->axes[0].name : r->question->along.name);
    put_tics(file, "x", r, rows, NULL);
}

/* ---- two axes ---- */

/* What stands in a cell. */
static void put_cell(FILE *file, const struct report *r, uint32_t i)
{
    const struct point *p = &r->sweep->points[i].point;
    const bool whole = r->question->searches || shown(r) == MEASURE_TOKENS;
    if (p->verdict == POINT_FITS)
        fprintf(file, whole ? "%.0f" : "%.2f", value_of(r, i));
    else
        fputs(p->verdict == POINT_REFUSED ? "refused" : "\"too large\"", file);
}

static bool framed(const struct report *r, uint32_t i)
{
    return sweep_is_best(r->question, r->sweep, i) && !r->question->searches;
}

static void map_data(FILE *file, const void *context)
{
    const struct report *r = context;
    for (uint32_t i = 0; i < r->sweep->count; i++) {
        const struct point *p = &r->sweep->points[i].point;
        const bool fits = p->verdict == POINT_FITS;
        fprintf(file, "%" PRIu32 " %" PRIu32 " %.9g %d %d ", sweep_index(r->question, i, 1),
                sweep_index(r->question, i, 0), fits ? value_of(r, i) : (double)NAN, framed(r, i),
                fits && p->after_release);
        put_cell(file, r, i);
        fputc('\n', file);
    }
}

static void map_settings(FILE *file, const void *context)
{
    const struct report *r = context;
    const struct axis *down = &r->question->axes[0], *across = &r->question->axes[1];
    struct kinds kinds = {false};
    fprintf(file, "columns = %" PRIu32 "\nlines = %" PRIu32 "\n", across->count, down->count);
    for (uint32_t i = 0; i < r->sweep->count; i++)
        note_kind(&r->sweep->points[i].point, framed(r, i), &kinds);
    put_title(file, r, MAP_TITLE);
    put_kinds(file, kinds);
    put_text(file, "measure", title_of(r));
    put_text(file, "across", across->name);
    put_text(file, "down", down->name);
    put_tics(file, "x", r, across->count, across);
    put_tics(file, "y", r, down->count, down);
}

static enum err_code draw(const struct report *r, const char *dir, bool *drawn, struct err *err)
{
    static const struct picture row = {SWEEP_SVG, sweep_gp, row_data, row_settings};
    static const struct picture map = {SWEEP_SVG, sweep_map_gp, map_data, map_settings};
    *drawn = true;
    if (!r->sweep->fits && r->question->axis_count > 1)
        return ERR_OK; /* a map without a value */
    return picture_draw(r->question->axis_count > 1 ? &map : &row, r, dir, drawn, err);
}

enum err_code sweep_report_write(const struct sweep_question *question, const struct sweep *sweep,
                                 const char *dir, const char **note, struct err *err)
{
    const struct report r = {question, sweep};
    bool drawn;
    *note = NULL;
    TRY(files_write_json(dir, "sweep.json", sweep_json(question, sweep), err));
    TRY(draw(&r, dir, &drawn, err));
    if (!drawn)
        *note = "gnuplot is not there or failed: no sweep.svg";
    return ERR_OK;
}
