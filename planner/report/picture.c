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

enum { TIMELINE_PIXELS = 772 }; /* 0.69 of 1120, as timeline.gp has it */

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

/* At least a pixel wide: nothing that ran is invisible, also where edges are put on whole pixels.
 */
static void write_box(FILE *file, const struct compare_interval *span, int row, unsigned colour,
                      double pixel_s)
{
    const double end_s = fmax(span->end_s, span->begin_s + pixel_s);
    fprintf(file, "%.6f %.6f %d %u\n", 1e3 * span->begin_s, 1e3 * end_s, row, colour);
}

/* Boxes less than a pixel apart and of one colour are drawn as one. */
static void write_lane(FILE *file, const struct timeline_picture *t, uint32_t lane, int row,
                       double pixel_s)
{
    struct compare_interval open = {NAN, NAN};
    unsigned colour = 0;
    for (uint32_t i = 0; i < t->plan->instruction_count; i++) {
        const struct plan_instruction *instruction = &t->plan->instructions[i];
        const struct compare_interval *span = &t->time->spans[i];
        if (instruction->lane != lane || isnan(span->begin_s))
            continue;
        if (palette_instruction(instruction) == colour && span->begin_s - open.end_s < pixel_s) {
            open.end_s = fmax(open.end_s, span->end_s);
            continue;
        }
        if (!isnan(open.begin_s))
            write_box(file, &open, row, colour, pixel_s);
        open = *span;
        colour = palette_instruction(instruction);
    }
    if (!isnan(open.begin_s))
        write_box(file, &open, row, colour, pixel_s);
}

static void timeline_data(FILE *file, const void *context)
{
    const struct timeline_picture *t = context;
    const double pixel_s = t->time->step_s / TIMELINE_PIXELS;
    int rows[LANES_MOST];
    int row = place_lanes(t, rows);
    for (uint32_t lane = 0; lane < t->plan->lane_count; lane++)
        write_lane(file, t, lane, rows[lane], pixel_s);
    for (uint32_t i = 0; i < t->host_count; i++)
        write_box(file, &t->host[i], row, PALETTE_HOST, pixel_s);
    row += t->host != NULL;
    for (uint32_t i = 0; i < t->time->exposed_count; i++)
        if (t->time->exposed[i].end_s > t->time->exposed[i].begin_s)
            write_box(file, &t->time->exposed[i], row, PALETTE_EXPOSED, pixel_s);
}

static void timeline_settings(FILE *file, const void *context)
{
    const struct timeline_picture *t = context;
    int rows[LANES_MOST];
    place_lanes(t, rows);
    fputs("lanes = '", file);
    for (uint32_t lane = 0; lane < t->plan->lane_count; lane++)
        if (rows[lane] >= 0)
            fprintf(file, "%s ", t->plan->lanes[lane].name);
    fprintf(file, "%sexposed'\nend_ms = %.6f\nunit = '%s'\nscale = %g\ntitle = ",
            t->host ? "issuing " : "", 1e3 * t->time->step_s, t->time->step_s < 2 ? "ms" : "s",
            t->time->step_s < 2 ? 1 : 1e-3);
    files_gnuplot_text(file, t->title);
    fprintf(file, "\narray colour[7] = [%d, %d, %d, %d, %d, %d, %d]\n", PALETTE_FORWARD,
            PALETTE_BACKWARD, PALETTE_OPTIMIZER, PALETTE_COLLECTIVE, PALETTE_COPY, PALETTE_HOST,
            PALETTE_EXPOSED);
}

enum err_code timeline_draw(const struct timeline_picture *timeline, const char *dir, bool *drawn,
                            struct err *err)
{
    static const struct picture picture = {TIMELINE_SVG, timeline_gp, timeline_data,
                                           timeline_settings};
    return picture_draw(&picture, timeline, dir, drawn, err);
}
