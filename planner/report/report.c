/* report.c - see report.h. */
#include "report/report.h"

#include "base/file.h"
#include "job/plan_trace.h"
#include "memory/snapshot.h"
#include "plan/modules.h"
#include "plan/plan_json.h"
#include "plan/plan_rank.h"
#include "report/compare_print.h"
#include "report/files.h"
#include "report/page.h"
#include "report/palette.h"
#include "report/picture.h"
#include "report/time_result.h"
#include "report/units_result.h"
#include "search/step_spans.h"

#include "memory_gp.h" /* generated from reports/memory.gp */

#include <math.h>

struct report {
    const struct settings *settings;
    const struct job *job;
    const struct machine *machine;
    const struct prediction *prediction;
    const struct step_time *time;
    const char *dir;
    bool pictures;
};

/* ---- plan.json ---- */

enum { RANKS_WRITTEN = 16 }; /* of large jobs nobody runs every rank here */

/* Programs of other ranks, where they do not follow from this one. */
static enum err_code write_other_ranks(const struct report *r, const char *path, struct err *err)
{
    char own[4096];
    struct job job = *r->job;
    const struct plan *plan = r->prediction->plan;
    if (!plan->own_programs || plan->rank != 0 || plan->world > RANKS_WRITTEN)
        return ERR_OK;
    for (job.strategy.rank = 1; job.strategy.rank < plan->world; job.strategy.rank++) {
        struct plan *other;
        TRY(job_plan(&job, &other, NULL, err));
        const enum err_code rc = plan_write_json(
            other, NULL, plan_rank_path(path, job.strategy.rank, own, sizeof own), err);
        plan_free(other);
        TRY(rc);
    }
    return ERR_OK;
}

static enum err_code write_plan(const struct report *r, struct err *err)
{
    char path[4096];
    json_t *result = result_json(r->settings, r->job, r->machine, r->prediction, NULL, 0);
    json_t *time = time_plan_json(r->time, r->prediction->plan);
    const struct plan_json_extra extra = {
        .settings = json_object_get(result, "settings"),
        .memory = result,
        .time = time,
    };
    const enum err_code rc = plan_write_json(
        r->prediction->plan, &extra, files_path(r->dir, "plan.json", path, sizeof path), err);
    json_decref(result);
    json_decref(time);
    return rc == ERR_OK ? write_other_ranks(r, path, err) : rc;
}

/* ---- snapshot.pickle ---- */

struct snapshot_run {
    struct snapshot *snapshot;
    const char *path;
    struct arena arena;   /* frame names */
    const char **modules; /* (instructions) */
    uint64_t time_us;
    enum err_code rc;
    struct err *err;
};

static void name_frame(void *context, const struct plan *plan, uint32_t instruction,
                       bool first_step)
{
    struct snapshot_run *run = context;
    char what[512], name[700];
    (void)first_step;
    const enum plan_op op = (enum plan_op)plan->instructions[instruction].op;
    if (op != PLAN_ALLOC && op != PLAN_FREE && op != PLAN_WAIT) /* a wait may complete frees */
        return;
    const char *module = run->modules[instruction];
    result_what(plan, instruction, what, sizeof what);
    snprintf(name, sizeof name, "%s%s%s", module, module[0] ? ": " : "", what);
    snapshot_set_frame(run->snapshot, arena_strdup(&run->arena, name), "plan.json",
                       (int)instruction, run->time_us++);
}

static void write_snapshot_at_end(void *context, const struct allocator *allocator)
{
    struct snapshot_run *run = context;
    run->rc = snapshot_write(run->snapshot, allocator, run->path, run->err);
}

static enum err_code write_snapshot(const struct report *r, struct err *err)
{
    char path[4096];
    struct snapshot_run run = {
        .snapshot = snapshot_new(),
        .path = files_path(r->dir, "snapshot.pickle", path, sizeof path),
        .err = err,
    };
    struct memory memory;
    run.modules = plan_module_names(r->prediction->plan, &run.arena);
    struct memory_options options = prediction_memory(r->prediction, r->machine);
    options.allocator.on_action = snapshot_on_action;
    options.allocator.action_context = run.snapshot;
    options.before = name_frame;
    options.at_end = write_snapshot_at_end;
    options.hook_context = &run;
    const enum err_code rc = memory_replay(r->prediction->plan, &options, NULL, NULL, &memory, err);
    snapshot_free(run.snapshot);
    arena_free(&run.arena);
    return rc != ERR_OK ? rc : run.rc;
}

/* ---- memory.svg ---- */

enum { CURVE_POINTS = 1000 }; /* the picture is about as many pixels wide */

struct curve {
    const struct report *r;
    FILE *file;
    uint32_t stride;            /* instructions a point stands for */
    struct memory_point widest; /* of those: the one with most bytes requested */
    bool pending;
    uint64_t highest[CATEGORY_COUNT]; /* categories that stay empty are left out of the picture */
    const char **modules; /* (instructions) of rows for a page's script; NULL: gnuplot's data */
    bool any;             /* there was such a row */
    uint64_t host;        /* the most bytes on the host */
};

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

/* A string of JSON inside a script: no quote, backslash or end tag of its own. */
static void put_text(FILE *to, const char *text)
{
    for (; *text; text++)
        if (*text != '"' && *text != '\\' && *text != '<' && (unsigned char)*text >= ' ')
            fputc(*text, to);
}

/* [instruction, "what is read there"] */
static void write_reading(struct curve *curve, const struct memory_point *point)
{
    const char *module = curve->modules[point->instruction];
    const double unit = 1073741824.0;
    fprintf(curve->file, "%s[%u,\"instruction %u", curve->any ? ",\n" : "", point->instruction,
            point->instruction);
    fputs(module[0] ? ", " : "", curve->file);
    put_text(curve->file, module);
    fprintf(curve->file, ": %.2f GiB requested, %.2f allocated, %.2f reserved",
            (double)(point->requested - point->host) / unit, (double)point->allocated / unit,
            (double)point->reserved / unit);
    if (point->host >> 20)
        fprintf(curve->file, "; %.2f on the host", (double)point->host / unit);
    fputs("\"]", curve->file);
    curve->any = true;
}

static void write_point(struct curve *curve)
{
    FILE *file = curve->file;
    const struct memory_point *point = &curve->widest;
    if (!curve->pending)
        return;
    curve->pending = false;
    if (curve->modules) {
        write_reading(curve, point);
        return;
    }
    const double unit = 1073741824.0;
    fprintf(file, "%u %.6f %.6f %.6f %.6f", point->instruction,
            (double)(point->requested - point->host) / unit, (double)point->allocated / unit,
            (double)point->reserved / unit, (double)point->host / unit);
    for (int i = 0; i < CATEGORY_COUNT; i++)
        if (is_drawn(curve, i))
            fprintf(file, " %.6f", (double)on_device(point, i) / unit);
    fputc('\n', file);
}

/* Keeps the highest point of each stretch of instructions, so that no peak is lost. */
static void add_point(void *context, const struct plan *plan, const struct memory_point *point)
{
    struct curve *curve = context;
    (void)plan;
    if (curve->pending &&
        point->instruction / curve->stride != curve->widest.instruction / curve->stride)
        write_point(curve);
    if (!curve->pending ||
        point->requested - point->host > curve->widest.requested - curve->widest.host)
        curve->widest = *point;
    curve->pending = true;
}

/* Phase borders as vertical lines with a name. */
static void write_marks(const struct report *r, FILE *script, double top)
{
    const struct plan *plan = r->prediction->plan;
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
        fprintf(script,
                "set arrow %d from %u,0 to %u,%f nohead back lc rgb '#bbbbbb' dt 3\n"
                "set label %d '%s' at %u,%f left offset 0.3,-0.8 tc rgb '#777777'\n",
                tag, i, i, top, tag, name, i, top);
        tag++;
    }
}

static void curve_settings(FILE *script, const void *context)
{
    const struct curve *curve = context;
    const struct report *r = curve->r;
    const struct prediction *p = r->prediction;
    const double unit = 1073741824.0;
    double top = fmax((double)p->memory.reserved_bytes, (double)curve->host) / unit;
    const double capacity = profile_value(&r->machine->profile, PROFILE_CAPACITY) / unit;
    if (capacity < 1.6 * top && capacity > top)
        top = capacity;
    top *= 1.08;
    fprintf(script, "capacity = %f\ntop = %f\n", capacity, top);
    fprintf(script, "peak_id = %u\npeak = %f\nstart_id = 0\nend_id = %u\n",
            p->memory.device.instruction, (double)p->memory.device.bytes / unit,
            p->plan->instruction_count);
    fprintf(script, "host = %d\n", has_host(curve));
    char title[512];
    snprintf(title, sizeof title, "%s: memory of one step on rank %u of %u", r->settings->model,
             r->job->strategy.rank, r->job->strategy.world);
    fputs("title = ", script);
    files_gnuplot_text(script, title);
    int drawn = 0;
    fputs("\ncategories = '", script);
    for (int i = 0; i < CATEGORY_COUNT; i++)
        if (is_drawn(curve, i))
            fprintf(script, "\"%s\" ", palette_category((enum category)i).name);
    for (int i = 0; i < CATEGORY_COUNT; i++)
        drawn += is_drawn(curve, i);
    fprintf(script, "'\narray colour[%d]\n", drawn);
    for (int i = 0, k = 1; i < CATEGORY_COUNT; i++)
        if (is_drawn(curve, i))
            fprintf(script, "colour[%d] = %u\n", k++, palette_category((enum category)i).rgb);
    write_marks(r, script, top);
}

/* The plan was replayed when it was predicted, with the same options: it can be again. */
static void curve_data(FILE *file, const void *context)
{
    struct curve curve = *(const struct curve *)context;
    struct memory memory;
    const struct memory_options options = prediction_memory(curve.r->prediction, curve.r->machine);
    curve.file = file;
    memory_replay(curve.r->prediction->plan, &options, add_point, &curve, &memory, NULL);
    write_point(&curve);
}

static enum err_code write_curve(const struct report *r, const char **note, struct err *err)
{
    static const struct picture picture = {"memory.svg", memory_gp, curve_data, curve_settings};
    const struct plan *plan = r->prediction->plan;
    const struct memory_options sums = {.without_allocator = true};
    struct curve curve = {.r = r, .stride = plan->instruction_count / CURVE_POINTS + 1};
    struct memory memory;
    bool drawn;
    TRY(memory_replay(plan, &sums, note_highest, &curve, &memory, err));
    TRY(picture_draw(&picture, &curve, r->dir, &drawn, err));
    if (!drawn)
        *note = "gnuplot is not there or failed: no memory.svg";
    return ERR_OK;
}

/* ---- timeline.svg ---- */

static enum err_code write_timeline(const struct report *r, const char **note, struct err *err)
{
    char title[256], step[32], exposed[32];
    const struct plan *plan = r->prediction->plan;
    const struct timeline *t = &r->time->timeline;
    struct arena arena = {0};
    struct compare_interval *spans = arena_alloc(&arena, plan->instruction_count * sizeof *spans);
    step_spans(plan, r->time, spans);
    struct compare_time time = {.spans = spans, .step_s = t->step_s};
    compare_overlap(plan, spans, &arena, &time);
    snprintf(title, sizeof title,
             "predicted step, rank %u of %u: %s, of which %s exposed communication", plan->rank,
             plan->world, compare_seconds(t->step_s, step),
             compare_seconds(time.exposed_s, exposed));
    const uint32_t tasks = simulation_tasks(r->time->simulation);
    struct compare_interval *host = arena_alloc(&arena, (tasks + 1) * sizeof *host);
    for (uint32_t i = 0; i < tasks; i++) {
        const struct plan_instruction *in =
            &plan->instructions[simulation_instruction(r->time->simulation, i)];
        const bool own = in->lane == LANE_HOST || in->op == PLAN_ALLOC; /* it may have waited */
        host[i] = (struct compare_interval){own ? t->begin_s[i]
                                            : i ? t->issue_s[i - 1]
                                                : 0,
                                            t->issue_s[i]};
    }
    const struct timeline_picture picture = {.plan = plan,
                                             .time = &time,
                                             .host = host,
                                             .host_count = intervals_merge(host, tasks),
                                             .title = title};
    bool drawn;
    const enum err_code rc = timeline_draw(&picture, r->dir, &drawn, err);
    if (!drawn)
        *note = "gnuplot is not there or failed: no timeline.svg";
    arena_free(&arena);
    return rc;
}

/* ---- report.html ---- */

static void put_memory_picture(const struct report *r, const char **modules, FILE *to)
{
    char svg[4096];
    struct memory memory;
    const struct plan *plan = r->prediction->plan;
    const struct memory_options options = prediction_memory(r->prediction, r->machine);
    struct curve curve = {
        .r = r,
        .file = to,
        .stride = plan->instruction_count / CURVE_POINTS + 1,
        .modules = modules,
    };
    page_picture_begin(to, PAGE_MEMORY_LEFT, PAGE_MEMORY_RIGHT, 0, plan->instruction_count);
    files_inline_svg(to, files_path(r->dir, "memory.svg", svg, sizeof svg));
    fputs("<script type=\"application/json\">[", to);
    memory_replay(plan, &options, add_point, &curve, &memory, NULL);
    write_point(&curve);
    fputs("]</script>\n", to);
    page_picture_end(to);
}

enum { TIMELINE_ROWS = 2000 };

/* What the compute stream does, a row for each stretch of the step. */
static void put_timeline_rows(const struct report *r, const char **modules, FILE *to)
{
    const struct plan *plan = r->prediction->plan;
    const struct timeline *t = &r->time->timeline;
    double next_s = 0;
    bool any = false;
    for (uint32_t i = 0; i < simulation_tasks(r->time->simulation); i++) {
        const uint32_t id = simulation_instruction(r->time->simulation, i);
        const struct plan_instruction *in = &plan->instructions[id];
        if (in->lane != LANE_COMPUTE || !plan_op_is_kernel((enum plan_op)in->op) ||
            t->begin_s[i] < next_s)
            continue;
        fprintf(to, "%s[%.4f,\"%.2f ms: ", any ? ",\n" : "", 1e3 * t->begin_s[i],
                1e3 * t->begin_s[i]);
        put_text(to, modules[id]);
        fputs(modules[id][0] ? ", " : "", to);
        put_text(to, plan->labels[plan_kernel(plan, in->arg)->label]);
        fputs("\"]", to);
        next_s = t->begin_s[i] + t->step_s / TIMELINE_ROWS;
        any = true;
    }
}

static void put_timeline_picture(const struct report *r, const char **modules, FILE *to)
{
    char svg[4096];
    page_picture_begin(to, PAGE_TIMELINE_LEFT, PAGE_TIMELINE_RIGHT, 0,
                       1e3 * r->time->timeline.step_s);
    files_inline_svg(to, files_path(r->dir, TIMELINE_SVG, svg, sizeof svg));
    fputs("<script type=\"application/json\">[", to);
    put_timeline_rows(r, modules, to);
    fputs("]</script>\n", to);
    page_picture_end(to);
}

static void put_tables(FILE *to, const void *context)
{
    const struct report *r = context;
    result_print(to, r->settings, r->job, r->machine, r->prediction, NULL, 0);
    time_print(to, r->time);
    units_print(to, &r->job->strategy, r->prediction->plan);
}

static enum err_code write_html(const struct report *r, struct err *err)
{
    char path[4096];
    struct file_writer to;
    struct arena arena = {0};
    files_path(r->dir, "report.html", path, sizeof path);
    TRY(file_create(path, &to, err));
    files_html_begin(to.file, r->settings->model);
    page_verdict(to.file, r->prediction, &r->machine->profile, r->time);
    if (r->pictures) { /* others that lie there are of another step */
        const char **modules = plan_module_names(r->prediction->plan, &arena);
        put_timeline_picture(r, modules, to.file);
        put_memory_picture(r, modules, to.file);
        fputs("<p>Memory is drawn over instructions in the order in which the host issues "
              "them.</p>\n",
              to.file);
    }
    arena_free(&arena);
    files_html_pre(to.file, put_tables, r);
    fputs("<p>Open <code>trace.json</code> in Perfetto and <code>snapshot.pickle</code> in "
          "PyTorch's memory "
          "viewer.</p>\n",
          to.file);
    if (r->pictures)
        page_script(to.file);
    fputs("</html>\n", to.file);
    return file_commit(&to, ERR_OK, err);
}

enum err_code report_write(const struct settings *settings, const struct job *job,
                           const struct machine *machine, const struct prediction *prediction,
                           const struct step_time *time, bool pictures, const char **note,
                           struct err *err)
{
    char path[4096];
    const struct report r = {settings, job, machine, prediction, time, settings->output, pictures};
    const struct memory_options options = prediction_memory(prediction, machine);
    *note = NULL;
    TRY(plan_verify(prediction->plan, err));
    TRY(files_make_folder(r.dir, err));
    TRY(write_plan(&r, err));
    TRY(plan_trace_write(prediction->plan, &options, time->simulation, &time->timeline,
                         files_path(r.dir, "trace.json", path, sizeof path), err));
    TRY(write_snapshot(&r, err));
    if (pictures)
        TRY(write_curve(&r, note, err));
    if (pictures)
        TRY(write_timeline(&r, note, err));
    return write_html(&r, err);
}
