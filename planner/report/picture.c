/* picture.c - see picture.h. */
#include "report/picture.h"

#include "base/ending_signals.h"
#include "report/files.h"
#include "report/palette.h"

#include "timeline_gp.h" /* generated from reports/timeline.gp */

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4096 };

static FILE *open_file(const char *path, struct err *err)
{
    FILE *file = fopen(path, "w");
    if (!file)
        err_set(err, ERR_IO, "create %s: %s", path, strerror(errno));
    return file;
}

/* Whether all that was put into it is there. */
static enum err_code close_file(FILE *file, const char *path, struct err *err)
{
    const bool failed = ferror(file) != 0;
    errno = 0;
    if (fclose(file) == 0 && !failed)
        return ERR_OK;
    return err_set(err, ERR_IO, "write %s: %s", path, strerror(errno ? errno : EIO));
}

/* A file of the folder under a temporary name, this process's own, so that two may draw into one
 * folder; never one that gnuplot takes for a command ("<..." and "|..."). */
struct temporary {
    char name[64], path[PATH];
};

static struct temporary temporary(const char *dir, const char *ending)
{
    struct temporary file;
    snprintf(file.name, sizeof file.name, "picture-%ld.%s.tmp", (long)getpid(), ending);
    files_path(dir, file.name, file.path, sizeof file.path);
    return file;
}

static enum err_code write_data(const struct picture *picture, const void *context,
                                const char *data, struct err *err)
{
    FILE *file = open_file(data, err);
    if (!file)
        return ERR_IO;
    picture->data(file, context);
    return close_file(file, data, err);
}

static enum err_code write_script(const struct picture *picture, const void *context,
                                  const char *script, const char *data, const char *partial,
                                  struct err *err)
{
    FILE *file = open_file(script, err);
    if (!file)
        return ERR_IO;
    fputs("data = ", file);
    files_gnuplot_text(file, data);
    fputs("\nout = ", file);
    files_gnuplot_text(file, partial);
    fputc('\n', file);
    picture->settings(file, context);
    fputs(picture->script, file);
    return close_file(file, script, err);
}

static enum err_code draw(const struct picture *picture, const void *context, const char *dir,
                          bool *drawn, struct err *err)
{
    const struct temporary data = temporary(dir, "tsv"), script = temporary(dir, "gp"),
                           partial = temporary(dir, "svg");
    char path[PATH];
    files_path(dir, picture->svg, path, sizeof path);
    *drawn = false;
    enum err_code rc = write_data(picture, context, data.path, err);
    if (rc == ERR_OK)
        rc = write_script(picture, context, script.path, data.name, partial.name, err);
    if (rc == ERR_OK) {
        *drawn = files_gnuplot(dir, script.name) && rename(partial.path, path) == 0;
        if (!*drawn)
            remove(partial.path);
    }
    remove(script.path);
    remove(data.path);
    return rc;
}

/* Signals that ask to end wait until the temporary files are gone, as file_create's. */
enum err_code picture_draw(const struct picture *picture, const void *context, const char *dir,
                           bool *drawn, struct err *err)
{
    sigset_t before;
    ending_signals_hold(&before);
    const enum err_code rc = draw(picture, context, dir, drawn, err);
    ending_signals_release(&before);
    return rc;
}

/* ---- the timeline ---- */

enum { TIMELINE_PIXELS = 750 }; /* 0.67 of 1120, as timeline.gp has it */

/* Lanes that worked, from top to bottom in the plan's order; below them what was exposed.
 * Returns the row of that; rows of idle lanes are -1. */
static int place_lanes(const struct timeline_picture *t, int rows[LANES_MOST])
{
    int count = 0;
    for (uint32_t lane = 0; lane < t->plan->lane_count; lane++) {
        rows[lane] = -1;
        for (uint32_t i = 0; i < t->plan->instruction_count && rows[lane] < 0; i++)
            if (t->plan->instructions[i].lane == lane && !isnan(t->time->spans[i].begin_s))
                rows[lane] = count++;
    }
    return count;
}

/* What draws the boxes of a row, from left to right. Those less than a pixel apart and of one
 * colour are drawn as one. */
struct pen {
    FILE *file; /* NULL: it only notes what there is */
    double pixel_s;
    int row;
    unsigned colour;
    struct compare_interval box; /* begun, in that colour; NAN: none is */
    bool used[PALETTE_WORKS];
};

/* At least a pixel wide: nothing that ran is invisible, also where edges are put on whole pixels.
 */
static void pen_end(struct pen *pen)
{
    if (isnan(pen->box.begin_s))
        return;
    const double end_s = fmax(pen->box.end_s, pen->box.begin_s + pen->pixel_s);
    if (pen->file)
        fprintf(pen->file, "%.6f %.6f %d %u\n", 1e3 * pen->box.begin_s, 1e3 * end_s, pen->row,
                pen->colour);
    for (uint32_t i = 0; i < PALETTE_WORKS; i++)
        pen->used[i] |= palette_work(i).rgb == pen->colour;
    pen->box = (struct compare_interval){NAN, NAN};
}

static void pen_box(struct pen *pen, double begin_s, double end_s, unsigned colour)
{
    if (colour == pen->colour && begin_s - pen->box.end_s < pen->pixel_s) {
        pen->box.end_s = fmax(pen->box.end_s, end_s);
        return;
    }
    pen_end(pen);
    pen->box = (struct compare_interval){begin_s, end_s};
    pen->colour = colour;
}

/* A collective in two, if it waits for long enough to be seen. */
static void draw_instruction(struct pen *pen, const struct timeline_picture *t, uint32_t id)
{
    const struct plan_instruction *instruction = &t->plan->instructions[id];
    const struct compare_interval *span = &t->time->spans[id];
    const bool known = t->done_s && plan_op_is_collective((enum plan_op)instruction->op);
    const double done_s = known ? fmax(t->done_s[id], span->begin_s + pen->pixel_s) : span->end_s;
    const bool waits = span->end_s - done_s >= pen->pixel_s;
    pen_box(pen, span->begin_s, waits ? done_s : span->end_s, palette_instruction(instruction));
    if (waits)
        pen_box(pen, done_s, span->end_s, PALETTE_WAITING);
}

static void draw_lanes(struct pen *pen, const struct timeline_picture *t)
{
    int rows[LANES_MOST];
    const int count = place_lanes(t, rows);
    for (uint32_t lane = 0; lane < t->plan->lane_count; lane++, pen_end(pen)) {
        pen->row = rows[lane];
        for (uint32_t i = 0; i < t->plan->instruction_count; i++)
            if (t->plan->instructions[i].lane == lane && !isnan(t->time->spans[i].begin_s))
                draw_instruction(pen, t, i);
    }
    pen->row = count;
    for (uint32_t i = 0; i < t->host_count; i++, pen_end(pen))
        pen_box(pen, t->host[i].begin_s, t->host[i].end_s, PALETTE_HOST);
    pen->row += t->host != NULL;
    for (uint32_t i = 0; i < t->time->exposed_count; i++, pen_end(pen))
        if (t->time->exposed[i].end_s > t->time->exposed[i].begin_s)
            pen_box(pen, t->time->exposed[i].begin_s, t->time->exposed[i].end_s, PALETTE_EXPOSED);
}

static struct pen pen_new(const struct timeline_picture *t, FILE *file)
{
    return (struct pen){
        .file = file, .pixel_s = t->time->step_s / TIMELINE_PIXELS, .box = {NAN, NAN}};
}

static void timeline_data(FILE *file, const void *context)
{
    struct pen pen = pen_new(context, file);
    draw_lanes(&pen, context);
}

/* Of what there is: a colour without a box would be looked for. */
static void write_legend(const struct timeline_picture *t, FILE *file)
{
    struct pen pen = pen_new(t, NULL);
    uint32_t count = 0;
    draw_lanes(&pen, t);
    fputs("names = '", file);
    for (uint32_t i = 0; i < PALETTE_WORKS; i++)
        if (pen.used[i])
            fprintf(file, "\"%s%s\" ", palette_work(i).name,
                    palette_work(i).rgb == PALETTE_COLLECTIVE && !t->done_s ? ", with waiting"
                                                                            : "");
    for (uint32_t i = 0; i < PALETTE_WORKS; i++)
        count += pen.used[i];
    fprintf(file, "'\narray colour[%u]\n", count);
    for (uint32_t i = 0, k = 1; i < PALETTE_WORKS; i++)
        if (pen.used[i])
            fprintf(file, "colour[%u] = %u\n", k++, palette_work(i).rgb);
}

double picture_seconds(double step_s, const char **unit)
{
    *unit = step_s < 2 ? "ms" : "s";
    return step_s < 2 ? 1e3 : 1;
}

static void timeline_settings(FILE *file, const void *context)
{
    const struct timeline_picture *t = context;
    const char *unit;
    const double each = picture_seconds(t->time->step_s, &unit);
    int rows[LANES_MOST];
    place_lanes(t, rows);
    fputs("lanes = '", file);
    for (uint32_t lane = 0; lane < t->plan->lane_count; lane++)
        if (rows[lane] >= 0)
            fprintf(file, "\"%s\" ", t->plan->lanes[lane].name);
    fprintf(file, "%s\"exposed\"'\nend_ms = %.6f\nunit = '%s'\nscale = %g\ntitle = ",
            t->host ? "\"host issues\" " : "", 1e3 * t->time->step_s, unit, each / 1e3);
    files_gnuplot_text(file, t->title);
    fputc('\n', file);
    write_legend(t, file);
}

enum err_code timeline_draw(const struct timeline_picture *timeline, const char *dir, bool *drawn,
                            struct err *err)
{
    static const struct picture picture = {TIMELINE_SVG, timeline_gp, timeline_data,
                                           timeline_settings};
    return picture_draw(&picture, timeline, dir, drawn, err);
}
