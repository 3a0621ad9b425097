/* memory_picture.c - see memory_picture.h. */
#include "report/memory_picture.h"

#include "report/compare_print.h"
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
#define MIB 1048576.0

struct curve {
    const struct memory_picture *picture;
    enum memory_axis axis;
    const double *places; /* (instructions) on the axis */
    double end;           /* of the axis */
    double unit;          /* bytes of one */
    FILE *file;
    struct memory_point widest; /* of a stretch of the axis: the point with most bytes requested */
    struct memory_point last;   /* ... and its last one */
    bool pending, begun;
    uint64_t highest[CATEGORY_COUNT]; /* categories that stay empty are left out of the picture */
    uint64_t host;                    /* the most bytes on the host */
    const char **modules; /* (instructions) of rows for a page's script; NULL: gnuplot's data */
    bool any;             /* there was such a row */
};

static const struct plan *plan_of(const struct curve *curve)
{
    return curve->picture->prediction->plan;
}

/* ---- places ---- */

/* Whether its begin is a moment that the program has come to: kernels of the compute stream are in
 * its order, and what the host computes itself holds everything behind it up. Other streams run
 * ahead and behind. */
static bool leads(const struct plan_instruction *instruction)
{
    return plan_op_is_kernel((enum plan_op)instruction->op) &&
           (instruction->lane == LANE_COMPUTE || instruction->lane == LANE_HOST);
}

/* When the device comes to each instruction, in seconds from the begin of the step: what is
 * allocated for a kernel when that begins, what is freed behind it when the next one does. The host
 * has issued all of it long before, which trace.json shows; bytes that it has asked for and nobody
 * has written are in the allocator's way all the same, so the values stay the allocator's own. */
static void device_times(const struct plan *plan, const struct step_time *time, double *at)
{
    const struct timeline *t = &time->timeline;
    double now = 0;
    uint32_t next = 0;
    for (uint32_t task = 0; task < simulation_tasks(time->simulation); task++) {
        const uint32_t id = simulation_instruction(time->simulation, task);
        if (!leads(&plan->instructions[id]))
            continue;
        now = fmax(now, t->begin_s[task]);
        while (next <= id)
            at[next++] = now;
    }
    while (next < plan->instruction_count)
        at[next++] = t->step_s;
}

static void take_places(const struct memory_picture *picture, enum memory_axis axis, double *places)
{
    const struct plan *plan = picture->prediction->plan;
    const char *unit;
    const double each = picture_seconds(picture->time->timeline.step_s, &unit);
    if (axis == MEMORY_OVER_TIME)
        device_times(plan, picture->time, places);
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        places[i] = axis == MEMORY_OVER_TIME ? each * places[i] : i;
}

/* ---- points ---- */

static double place_of(const struct curve *curve, uint32_t instruction)
{
    return curve->places[instruction];
}

static uint32_t stretch_of(const struct curve *curve, double place)
{
    return (uint32_t)(place / curve->end * CURVE_POINTS);
}

/* What is less than a pixel everywhere has no colour to be looked for. */
static bool is_drawn(const struct curve *curve, int category)
{
    return category < CATEGORY_WORKSPACE &&
           (double)curve->highest[category] >
               3e-3 * (double)curve->picture->prediction->memory.device.bytes;
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
        fprintf(file, "%.3f ms, ",
                1e3 * place / curve->end * curve->picture->time->timeline.step_s);
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
    fprintf(file, "%.9g %.6f %.6f %.6f %.6f", place,
            (double)(point->requested - point->host) / curve->unit,
            (double)point->allocated / curve->unit, (double)point->reserved / curve->unit,
            (double)point->host / curve->unit);
    for (int i = 0; i < CATEGORY_COUNT; i++)
        if (is_drawn(curve, i))
            fprintf(file, " %.6f", (double)on_device(point, i) / curve->unit);
    fputc('\n', file);
}

/* The highest point of a stretch, so that no peak is lost. Where nothing happens then for longer
 * than a stretch, what was last holds, up to `next`. */
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
    if (!curve->begun && place > 0) { /* until the device has begun */
        write_row(curve, 0, point);
        if (!curve->modules)
            write_row(curve, place, point);
    }
    curve->begun = true;
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
    if (!curve->modules && curve->begun)
        write_row(curve, curve->end, &curve->last);
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

/* "capacity 79.10 GiB": an entry of the legend, for gnuplot. */
static void put_entry(FILE *script, const char *variable, const char *name, uint64_t bytes,
                      double unit)
{
    fprintf(script, "%s = '%s %.2f'\n", variable, name, (double)bytes / unit);
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

/* The numbers that `plan` prints, each beside its line. Capacity has its line always, at the top
 * edge where it is far above. */
static void write_bytes(const struct curve *curve, FILE *script, double top)
{
    const struct prediction *p = curve->picture->prediction;
    const double capacity = profile_value(&curve->picture->machine->profile, PROFILE_CAPACITY);
    fprintf(script, "unit = '%s'\ntop = %f\ncapacity = %f\noutside = %f\n",
            curve->unit == GIB ? "GiB" : "MiB", top, fmin(capacity / curve->unit, top),
            (double)p->outside_bytes / curve->unit);
    fprintf(script, "capacity_title = 'capacity %.2f%s%s'\n", capacity / GIB,
            curve->unit == GIB ? "" : " GiB", capacity / curve->unit > top ? ", far above" : "");
    put_entry(script, "device_title", "device", p->device_bytes, curve->unit);
    put_entry(script, "reserved_title", "reserved", p->memory.reserved_bytes, curve->unit);
    put_entry(script, "allocated_title", "allocated", p->memory.allocated.bytes, curve->unit);
    put_entry(script, "requested_title", "requested", p->memory.device.bytes, curve->unit);
    fprintf(script, "peak = %f\npeak_x = %.9g\nhost = %d\n",
            (double)p->memory.device.bytes / curve->unit,
            place_of(curve, p->memory.device.instruction), has_host(curve));
}

static void write_titles(const struct curve *curve, FILE *script)
{
    char text[2 * TITLE_LINE], what[TITLE_NAME], step[32];
    const struct memory_picture *picture = curve->picture;
    const double step_s = picture->time->timeline.step_s;
    const char *unit = "";
    const bool timed = curve->axis == MEMORY_OVER_TIME;
    picture_seconds(step_s, &unit);
    snprintf(text, sizeof text, "%s: memory of rank %u in %s%s%s", picture->job,
             picture->prediction->plan->rank, title_step(picture->prediction->plan, what),
             timed ? ", " : "", timed ? compare_seconds(step_s, step) : "");
    fputs("title = ", script);
    files_gnuplot_text(script, text);
    fprintf(script,
            timed ? "\nxname = 'time of the step on the device, %s'\n"
                  : "\nxname = 'instruction of the step, in the order of the host%s'\n",
            timed ? unit : "");
}

static void curve_settings(FILE *script, const void *context)
{
    const struct curve *curve = context;
    const struct prediction *p = curve->picture->prediction;
    const double capacity =
        profile_value(&curve->picture->machine->profile, PROFILE_CAPACITY) / curve->unit;
    double top = (double)(p->device_bytes > curve->host ? p->device_bytes : curve->host);
    top /= curve->unit;
    if (capacity < 1.6 * top && capacity > top)
        top = capacity;
    top *= 1.1;
    fprintf(script, "end_x = %.9g\n", curve->end);
    write_titles(curve, script);
    write_bytes(curve, script, top);
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

/* `places` (instructions) are written, and lent. */
static struct curve curve_of(const struct memory_picture *picture, enum memory_axis axis,
                             double *places)
{
    const struct plan *plan = picture->prediction->plan;
    const char *unit;
    const double step_s = picture->time->timeline.step_s;
    struct curve curve = {.picture = picture, .axis = axis, .places = places};
    take_places(picture, axis, places);
    curve.end = axis == MEMORY_OVER_TIME ? fmax(step_s, 1e-9) * picture_seconds(step_s, &unit)
                                         : plan->instruction_count;
    curve.unit = (double)picture->prediction->device_bytes < 4 * GIB ? MIB : GIB;
    return curve;
}

enum err_code memory_picture_draw(const struct memory_picture *picture, enum memory_axis axis,
                                  const char *dir, bool *drawn, struct err *err)
{
    const struct plan *plan = picture->prediction->plan;
    const struct memory_options sums = {.without_allocator = true};
    const struct picture how = {file_of(axis), memory_gp, curve_data, curve_settings};
    double *places = xmalloc((plan->instruction_count + 1) * sizeof *places);
    struct curve curve = curve_of(picture, axis, places);
    struct memory memory;
    *drawn = false;
    enum err_code rc = memory_replay(plan, &sums, note_highest, &curve, &memory, err);
    if (rc == ERR_OK)
        rc = picture_draw(&how, &curve, dir, drawn, err);
    free(places);
    return rc;
}

void memory_picture_put(const struct memory_picture *picture, enum memory_axis axis,
                        const char **modules, const char *dir, FILE *to)
{
    char svg[4096];
    const struct plan *plan = picture->prediction->plan;
    double *places = xmalloc((plan->instruction_count + 1) * sizeof *places);
    struct curve curve = curve_of(picture, axis, places);
    curve.file = to;
    curve.modules = modules;
    page_picture_begin(to, PAGE_MEMORY_LEFT, PAGE_MEMORY_RIGHT, 0, curve.end);
    files_inline_svg(to, files_path(dir, file_of(axis), svg, sizeof svg));
    fputs("<script type=\"application/json\">[", to);
    replay(&curve);
    fputs("]</script>\n", to);
    page_picture_end(to);
    free(places);
}
