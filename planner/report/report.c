/* report.c - see report.h. */
#include "report/report.h"

#include "base/file.h"
#include "job/plan_trace.h"
#include "memory/snapshot_frames.h"
#include "plan/modules.h"
#include "plan/plan_json.h"
#include "plan/plan_rank.h"
#include "report/compare_print.h"
#include "report/files.h"
#include "report/memory_picture.h"
#include "report/page.h"
#include "report/picture.h"
#include "report/time_result.h"
#include "report/title.h"
#include "report/units_result.h"
#include "report/verdict.h"
#include "search/step_spans.h"

#include <math.h>

struct report {
    const struct settings *settings;
    const struct job *job;
    const struct machine *machine;
    const struct prediction *prediction;
    const struct step_time *time;
    const struct step_time *drawn; /* the same, of the micro-batches that the plan has */
    const char *dir;
    bool pictures;
    const char *title; /* title_job */
};

/* ---- plan.json ---- */

enum { RANKS_WRITTEN = 16 }; /* of large jobs nobody runs every rank here */

uint32_t report_last_rank(const struct plan *plan)
{
    return plan->own_programs && plan->rank == 0 && plan->world <= RANKS_WRITTEN ? plan->world - 1
                                                                                 : 0;
}

/* One of them, with the seconds of its own instructions. */
static enum err_code write_other(const struct job *job, const struct machine *machine,
                                 const struct prediction *prediction, const char *path,
                                 struct err *err)
{
    char own[4096];
    struct step_time time;
    TRY(step_time(prediction, job, machine, 0, &time, err));
    const struct plan_json_extra extra = {.time = time_plan_json(&time, prediction->plan)};
    step_time_free(&time);
    const enum err_code rc = plan_write_json(
        prediction->plan, &extra, plan_rank_path(path, job->strategy.rank, own, sizeof own), err);
    json_decref(extra.time);
    return rc;
}

/* Programs of other ranks, where they do not follow from this one. */
static enum err_code write_other_ranks(const struct report *r, const char *path, struct err *err)
{
    struct job job = *r->job;
    const struct plan *plan = r->prediction->plan;
    const uint32_t last = report_last_rank(plan);
    if (plan->repeats)
        job.strategy.accumulate = plan->micro_batch_count;
    for (job.strategy.rank = 1; job.strategy.rank <= last; job.strategy.rank++) {
        struct plan *other;
        struct prediction prediction;
        TRY(job_plan(&job, &other, NULL, err));
        other->repeats = plan->repeats;
        TRY(predict_plan(other, r->machine, &prediction, err));
        const enum err_code rc = write_other(&job, r->machine, &prediction, path, err);
        prediction_free(&prediction);
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
    struct snapshot_frames *frames;
    const char *path;
    uint64_t time_us;
    enum err_code rc;
    struct err *err;
};

static void name_buffer(void *context, const struct plan *plan, uint32_t buffer)
{
    struct snapshot_run *run = context;
    (void)plan;
    snapshot_frames_buffer(run->frames, buffer, run->time_us++);
}

static void name_instruction(void *context, const struct plan *plan, uint32_t instruction,
                             bool first_step)
{
    struct snapshot_run *run = context;
    (void)plan, (void)first_step;
    snapshot_frames_instruction(run->frames, instruction, run->time_us++);
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
    run.frames = snapshot_frames_new(r->prediction->plan, run.snapshot);
    struct memory_options options = prediction_memory(r->prediction, r->machine);
    options.allocator.on_action = snapshot_on_action;
    options.allocator.action_context = run.snapshot;
    options.before_buffer = name_buffer;
    options.before = name_instruction;
    options.at_end = write_snapshot_at_end;
    options.hook_context = &run;
    const enum err_code rc = memory_replay(r->prediction->plan, &options, NULL, NULL, &memory, err);
    snapshot_frames_free(run.frames);
    snapshot_free(run.snapshot);
    return rc != ERR_OK ? rc : run.rc;
}

/* ---- memory.svg, memory-time.svg ---- */

static struct memory_picture memory_picture_of(const struct report *r)
{
    return (struct memory_picture){
        .job = r->title, .prediction = r->prediction, .machine = r->machine, .time = r->drawn};
}

static enum err_code write_curves(const struct report *r, const char **note, struct err *err)
{
    const struct memory_picture picture = memory_picture_of(r);
    for (int axis = 0; axis < MEMORY_AXES; axis++) {
        bool drawn;
        TRY(memory_picture_draw(&picture, (enum memory_axis)axis, r->dir, &drawn, err));
        if (!drawn)
            *note = axis == MEMORY_OVER_TIME ? "gnuplot is not there or failed: no memory-time.svg"
                                             : "gnuplot is not there or failed: no memory.svg";
    }
    return ERR_OK;
}

/* ---- timeline.svg ---- */

/* When collectives had done their own part, by instruction. */
static const double *done_times(const struct report *r, struct arena *arena)
{
    double *done_s =
        arena_alloc(arena, (r->prediction->plan->instruction_count + 1) * sizeof(double));
    for (uint32_t i = 0; i < simulation_tasks(r->drawn->simulation); i++)
        done_s[simulation_instruction(r->drawn->simulation, i)] = r->drawn->timeline.done_s[i];
    return done_s;
}

/* When the host issues, in the arena; *count intervals. */
static const struct compare_interval *host_times(const struct report *r, struct arena *arena,
                                                 uint32_t *count)
{
    const struct timeline *t = &r->drawn->timeline;
    const uint32_t tasks = simulation_tasks(r->drawn->simulation);
    struct compare_interval *host = arena_alloc(arena, (tasks + 1) * sizeof *host);
    for (uint32_t i = 0; i < tasks; i++) {
        const struct plan_instruction *in =
            &r->prediction->plan->instructions[simulation_instruction(r->drawn->simulation, i)];
        const bool own = in->lane == LANE_HOST || in->op == PLAN_ALLOC; /* it may have waited */
        host[i] = (struct compare_interval){own ? t->begin_s[i]
                                            : i ? t->issue_s[i - 1]
                                                : 0,
                                            t->issue_s[i]};
    }
    *count = intervals_merge(host, tasks);
    return host;
}

static enum err_code write_timeline(const struct report *r, const char **note, struct err *err)
{
    char title[2 * TITLE_LINE], what[TITLE_NAME], step[32], exposed[32];
    const struct plan *plan = r->prediction->plan;
    const struct timeline *t = &r->drawn->timeline;
    struct arena arena = {0};
    struct compare_interval *spans = arena_alloc(&arena, plan->instruction_count * sizeof *spans);
    step_spans(plan, r->drawn, spans);
    struct compare_time time = {.spans = spans, .step_s = t->step_s};
    compare_overlap(plan, spans, &arena, &time);
    snprintf(title, sizeof title, "%s: %s of rank %u, %s, of which %s exposed communication",
             r->title, title_step(plan, what), plan->rank, compare_seconds(t->step_s, step),
             compare_seconds(time.exposed_s, exposed));
    struct timeline_picture picture = {
        .plan = plan, .time = &time, .done_s = done_times(r, &arena), .title = title};
    picture.host = host_times(r, &arena, &picture.host_count);
    bool drawn;
    const enum err_code rc = timeline_draw(&picture, r->dir, &drawn, err);
    if (!drawn)
        *note = "gnuplot is not there or failed: no timeline.svg";
    arena_free(&arena);
    return rc;
}

/* ---- report.html ---- */

enum { TIMELINE_ROWS = 2000 };

/* What the compute stream does, a row for each stretch of the step. */
static void put_timeline_rows(const struct report *r, const char **modules, FILE *to)
{
    const struct plan *plan = r->prediction->plan;
    const struct timeline *t = &r->drawn->timeline;
    double next_s = 0;
    bool any = false;
    for (uint32_t i = 0; i < simulation_tasks(r->drawn->simulation); i++) {
        const uint32_t id = simulation_instruction(r->drawn->simulation, i);
        const struct plan_instruction *in = &plan->instructions[id];
        if (in->lane != LANE_COMPUTE || !plan_op_is_kernel((enum plan_op)in->op) ||
            t->begin_s[i] < next_s)
            continue;
        fprintf(to, "%s[%.4f,\"%.2f ms: ", any ? ",\n" : "", 1e3 * t->begin_s[i],
                1e3 * t->begin_s[i]);
        page_put_text(to, modules[id]);
        fputs(modules[id][0] ? ", " : "", to);
        page_put_text(to, plan->labels[plan_kernel(plan, in->arg)->label]);
        fputs("\"]", to);
        next_s = t->begin_s[i] + t->step_s / TIMELINE_ROWS;
        any = true;
    }
}

static void put_timeline_picture(const struct report *r, const char **modules, FILE *to)
{
    char svg[4096];
    page_picture_begin(to, PAGE_TIMELINE_LEFT, PAGE_TIMELINE_RIGHT, 0,
                       1e3 * r->drawn->timeline.step_s);
    files_inline_svg(to, files_path(r->dir, TIMELINE_SVG, svg, sizeof svg));
    fputs("<script type=\"application/json\">[", to);
    put_timeline_rows(r, modules, to);
    fputs("]</script>\n", to);
    page_picture_end(to);
}

static void put_memory_pictures(const struct report *r, const char **modules, FILE *to)
{
    const struct memory_picture picture = memory_picture_of(r);
    memory_picture_put(&picture, MEMORY_OVER_INSTRUCTIONS, modules, r->dir, to);
    memory_picture_put(&picture, MEMORY_OVER_TIME, modules, r->dir, to);
    page_terms(to);
}

static void put_tables(FILE *to, const void *context)
{
    const struct report *r = context;
    result_print(to, r->settings, r->job, r->machine, r->prediction);
    result_print_causes(to, r->settings, r->job, r->machine, r->prediction);
    verdict_print_late(to, r->prediction);
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
    files_html_begin(to.file, r->title);
    page_verdict(to.file, r->settings, r->prediction, &r->machine->profile, r->time);
    if (r->pictures) { /* others that lie there are of another step */
        const char **modules = plan_module_names(r->prediction->plan, &arena);
        fputs("<h2>Time</h2>\n", to.file);
        put_timeline_picture(r, modules, to.file);
        fputs("<h2>Memory</h2>\n", to.file);
        put_memory_pictures(r, modules, to.file);
    }
    arena_free(&arena);
    fputs("<h2>All numbers, as the terminal has them</h2>\n", to.file);
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

static enum err_code write_files(const struct report *r, const char **note, struct err *err)
{
    char path[4096];
    const struct step_time *time = r->time;
    const struct memory_options options = prediction_memory(r->prediction, r->machine);
    TRY(write_plan(r, err));
    if (r->settings->plan_alone)
        return ERR_OK;
    TRY(plan_trace_write(r->prediction->plan, &options, time->simulation, &time->timeline,
                         files_path(r->dir, "trace.json", path, sizeof path), err));
    TRY(write_snapshot(r, err));
    if (r->pictures)
        TRY(write_curves(r, note, err));
    if (r->pictures)
        TRY(write_timeline(r, note, err));
    return write_html(r, err);
}

/* The end of what a plan that repeats has: its tasks' moments are those of few micro-batches. */
static double last_end(const struct step_time *time)
{
    double last_s = 0;
    for (uint32_t i = 0; i < simulation_tasks(time->simulation); i++)
        last_s = fmax(last_s, time->timeline.end_s[i]);
    return last_s;
}

enum err_code report_write(const struct settings *settings, const struct job *job,
                           const struct machine *machine, const struct prediction *prediction,
                           const struct step_time *time, bool pictures, const char **note,
                           struct err *err)
{
    char title[TITLE_LINE];
    struct step_time drawn = *time; /* lent */
    if (prediction->plan->repeats)
        drawn.timeline.step_s = last_end(time);
    const struct report r = {.settings = settings,
                             .job = job,
                             .machine = machine,
                             .prediction = prediction,
                             .time = time,
                             .drawn = &drawn,
                             .dir = settings->output,
                             .pictures = pictures,
                             .title = title_job(settings->model, job, machine, title)};
    *note = NULL;
    TRY(plan_verify(prediction->plan, err));
    return write_files(&r, note, err);
}
