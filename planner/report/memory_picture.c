/* memory_picture.c - see memory_picture.h. */
#include "report/memory_picture.h"

#include "job/plan_trace.h"
#include "report/files.h"
#include "report/page.h"
#include "report/palette.h"
#include "report/picture.h"

#include "memory_gp.h" /* generated from reports/memory.gp */

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CURVE_POINTS = 1000 }; /* the picture is about as many pixels wide */

#define GIB 1073741824.0

struct curve {
    const struct memory_picture *picture;
    enum memory_axis axis;
    const double *issue_s; /* (instructions) */
    double end;            /* of the axis */
    FILE *file;
    struct memory_point widest; /* of a stretch of the axis: the point with most bytes requested */
    struct memory_point last;   /* ... and its last one */
    bool pending;
    uint64_t highest[CATEGORY_COUNT]; /* categories that stay empty are left out of the picture */
    uint64_t host;                    /* the most bytes on the host */
    const char **modules; /* (instructions) of rows for a page's script; NULL: gnuplot's data */
    bool any;             /* there was such a row */
};

static const struct plan *plan_of(const struct curve *curve)
{
    return curve->picture->prediction->plan;
}

/* ---- points ---- */

static double place_of(const struct curve *curve, uint32_t instruction)
{
    return curve->axis == MEMORY_OVER_TIME ? curve->issue_s[instruction] : instruction;
}

static uint32_t stretch_of(const struct curve *curve, double place)
{
    return (uint32_t)(place / curve->end * CURVE_POINTS);
}

static bool is_drawn(const struct curve *curve, int category)
{
    return category < CATEGORY_WORKSPACE && curve->highest[category] > 0;
}

/* The device's part: what is offloaded has a line of its own. */
static uint64_t on_device(const struct memory_point *point, int category)
{
    return point->categories[category] - point->host_categories[category];
}

static bool has_host(const struct curve *curve)
{
    return curve->host >> 20 > 0; /* more than step counters */
}

static void note_highest(void *context, const struct plan *plan, const struct memory_point *point)
{
    struct curve *curve = context;
    (void)plan;
    for (int i = 0; i < CATEGORY_COUNT; i++)
        if (on_device(point, i) > curve->highest[i])
            curve->highest[i] = on_device(point, i);
    if (point->host > curve->host)
        curve->host = point->host;
}

/* [place, "what is read there"] */
static void write_reading(struct curve *curve, double place, const struct memory_point *point)
{
    FILE *file = curve->file;
    const char *module = curve->modules[point->instruction];
    fprintf(file, "%s[%.9g,\"", curve->any ? ",\n" : "", place);
    if (curve->axis == MEMORY_OVER_TIME)
        fprintf(file, "%.3f ms, ", 1e3 * place);
    fprintf(file, "instruction %u%s", point->instruction, module[0] ? ", " : "");
    page_put_text(file, module);
    fprintf(file, ": %.2f GiB requested, %.2f allocated, %.2f reserved",
            (double)(point->requested - point->host) / GIB, (double)point->allocated / GIB,
            (double)point->reserved / GIB);
    if (point->host >> 20)
        fprintf(file, "; %.2f on the host", (double)point->host / GIB);
    fputs("\"]", file);
    curve->any = true;
}

/* What `point` says, at a place. */
static void write_row(struct curve *curve, double place, const struct memory_point *point)
{
    FILE *file = curve->file;
    if (curve->modules) {
        write_reading(curve, place, point);
        return;
    }
    fprintf(file, "%.9g %.6f %.6f %.6f %.6f", place, (double)(point->requested - point->host) / GIB,
            (double)point->allocated / GIB, (double)point->reserved / GIB,
            (double)point->host / GIB);
    for (int i = 0; i < CATEGORY_COUNT; i++)
        if (is_drawn(curve, i))
            fprintf(file, " %.6f", (double)on_device(point, i) / GIB);
    fputc('\n', file);
}

/* The highest point of a stretch, so that no peak is lost. Where the host then does nothing for
 * longer than a stretch, what was last holds, up to `next`. */
static void write_stretch(struct curve *curve, double next)
{
    if (!curve->pending)
        return;
    curve->pending = false;
    const double last = place_of(curve, curve->last.instruction);
    write_row(curve, place_of(curve, curve->widest.instruction), &curve->widest);
    if (stretch_of(curve, next) <= stretch_of(curve, last) + 1)
        return;
    if (curve->last.instruction != curve->widest.instruction)
        write_row(curve, last, &curve->last);
    if (!curve->modules)
        write_row(curve, next, &curve->last);
}

static void add_point(void *context, const struct plan *plan, const struct memory_point *point)
{
    struct curve *curve = context;
    const double place = place_of(curve, point->instruction);
    (void)plan;
    if (curve->pending &&
        stretch_of(curve, place) != stretch_of(curve, place_of(curve, curve->widest.instruction)))
        write_stretch(curve, place);
    if (!curve->pending ||
        point->requested - point->host > curve->widest.requested - curve->widest.host)
        curve->widest = *point;
    curve->last = *point;
    curve->pending = true;
}

/* The plan was replayed when it was predicted, with the same options: it can be again. */
static void replay(struct curve *curve)
{
    struct memory memory;
    const struct memory_options options =
        prediction_memory(curve->picture->prediction, curve->picture->machine);
    memory_replay(plan_of(curve), &options, add_point, curve, &memory, NULL);
    write_stretch(curve, curve->end);
}

/* ---- the picture ---- */

#define LETTER_WIDTH 0.0095 /* of a name, as a share of the picture's width */

/* Phase borders as vertical lines, with a name where no other is yet, as far left as the edge
 * wants. */
static void write_marks(const struct curve *curve, FILE *script, double top)
{
    const struct plan *plan = plan_of(curve);
    double room = 0; /* begins there */
    int tag = 100;
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *instruction = &plan->instructions[i];
        if (instruction->op != PLAN_MARK)
            continue;
        const char *name = instruction->arg == PLAN_MARK_AFTER_FORWARD ? "backward"
                           : instruction->arg == PLAN_MARK_OPTIMIZER   ? "optimizer"
                           : instruction->arg == PLAN_MARK_MICRO_BATCH ? "forward"
                                                                       : NULL;
        if (!name || tag > 140)
            continue;
        const double x = place_of(curve, i);
        const double width = LETTER_WIDTH * (double)strlen(name) * curve->end;
        const double at = fmin(x, curve->end - width);
        fprintf(script, "set arrow %d from %.9g,0 to %.9g,%f nohead back lc rgb '#bbbbbb' dt 3\n",
                tag, x, x, top);
        if (at >= room) {
            fprintf(script, "set label %d '%s' at %.9g,%f left offset 0.3,-0.8 tc rgb '#777777'\n",
                    tag, name, at, top);
            room = at + width;
        }
        tag++;
    }
}

static void write_categories(const struct curve *curve, FILE *script)
{
    int drawn = 0;
    fputs("categories = '", script);
    for (int i = 0; i < CATEGORY_COUNT; i++)
        if (is_drawn(curve, i))
            fprintf(script, "\"%s\" ", palette_category((enum category)i).name);
    for (int i = 0; i < CATEGORY_COUNT; i++)
        drawn += is_drawn(curve, i);
    fprintf(script, "'\narray colour[%d]\n", drawn);
    for (int i = 0, k = 1; i < CATEGORY_COUNT; i++)
        if (is_drawn(curve, i))
            fprintf(script, "colour[%d] = %u\n", k++, palette_category((enum category)i).rgb);
}

static void curve_settings(FILE *script, const void *context)
{
    const struct curve *curve = context;
    const struct memory_picture *picture = curve->picture;
    const struct prediction *p = picture->prediction;
    const double capacity = profile_value(&picture->machine->profile, PROFILE_CAPACITY) / GIB;
    double top = fmax((double)p->memory.reserved_bytes, (double)curve->host) / GIB;
    char text[512];
    if (capacity < 1.6 * top && capacity > top)
        top = capacity;
    top *= 1.08;
    fprintf(script, "capacity = %f\ntop = %f\n", capacity, top);
    fprintf(script, "peak_x = %.9g\npeak = %f\nend_x = %.9g\n",
            place_of(curve, p->memory.device.instruction), (double)p->memory.device.bytes / GIB,
            curve->end);
    fprintf(script, "host = %d\n", has_host(curve));
    snprintf(text, sizeof text, "%s: memory of one step on rank %u of %u", picture->model,
             p->plan->rank, p->plan->world);
    fputs("title = ", script);
    files_gnuplot_text(script, text);
    snprintf(text, sizeof text, "instruction");
    if (curve->axis == MEMORY_OVER_TIME)
        snprintf(text, sizeof text, "seconds, as the host issues; the device is done at %.4g",
                 picture->time->timeline.step_s);
    fputs("\nxname = ", script);
    files_gnuplot_text(script, text);
    fputc('\n', script);
    write_categories(curve, script);
    write_marks(curve, script, top);
}

static void curve_data(FILE *file, const void *context)
{
    struct curve curve = *(const struct curve *)context;
    curve.file = file;
    replay(&curve);
}

/* ---- axes ---- */

static const char *file_of(enum memory_axis axis)
{
    return axis == MEMORY_OVER_TIME ? "memory-time.svg" : "memory.svg";
}

/* `issue_s` (instructions) is written, and lent. */
static struct curve curve_of(const struct memory_picture *picture, enum memory_axis axis,
                             double *issue_s)
{
    const struct plan *plan = picture->prediction->plan;
    struct curve curve = {.picture = picture, .axis = axis, .issue_s = issue_s};
    plan_issue_times(plan, picture->time->simulation, &picture->time->timeline, issue_s);
    curve.end = plan->instruction_count;
    if (axis == MEMORY_OVER_TIME && plan->instruction_count)
        curve.end = fmax(issue_s[plan->instruction_count - 1], 1e-9);
    return curve;
}

enum err_code memory_picture_draw(const struct memory_picture *picture, enum memory_axis axis,
                                  const char *dir, bool *drawn, struct err *err)
{
    const struct plan *plan = picture->prediction->plan;
    const struct memory_options sums = {.without_allocator = true};
    const struct picture how = {file_of(axis), memory_gp, curve_data, curve_settings};
    double *issue_s = xmalloc((plan->instruction_count + 1) * sizeof *issue_s);
    struct curve curve = curve_of(picture, axis, issue_s);
    struct memory memory;
    *drawn = false;
    enum err_code rc = memory_replay(plan, &sums, note_highest, &curve, &memory, err);
    if (rc == ERR_OK)
        rc = picture_draw(&how, &curve, dir, drawn, err);
    free(issue_s);
    return rc;
}

void memory_picture_put(const struct memory_picture *picture, enum memory_axis axis,
                        const char **modules, const char *dir, FILE *to)
{
    char svg[4096];
    const struct plan *plan = picture->prediction->plan;
    double *issue_s = xmalloc((plan->instruction_count + 1) * sizeof *issue_s);
    struct curve curve = curve_of(picture, axis, issue_s);
    curve.file = to;
    curve.modules = modules;
    page_picture_begin(to, PAGE_MEMORY_LEFT, PAGE_MEMORY_RIGHT, 0, curve.end);
    files_inline_svg(to, files_path(dir, file_of(axis), svg, sizeof svg));
    fputs("<script type=\"application/json\">[", to);
    replay(&curve);
    fputs("]</script>\n", to);
    page_picture_end(to);
    free(issue_s);
}
