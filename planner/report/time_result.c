/* time_result.c - see time_result.h. */
#include "report/time_result.h"

#include "report/compare_print.h"
#include "report/style.h"

#include <math.h>

/* Of a step that no range was drawn of there are no such keys: a range of no width is none. */
static void set_range(json_t *object, const struct step_time *time)
{
    json_object_set_new(object, "step_low_s", json_real(time->low_s));
    json_object_set_new(object, "step_high_s", json_real(time->high_s));
    json_object_set_new(object, "range",
                        json_pack("{s:[f, f]}", "quantiles", STEP_TIME_LOW_PERCENT / 100.0,
                                  STEP_TIME_HIGH_PERCENT / 100.0));
}

json_t *time_json(const struct step_time *time)
{
    const struct timeline *t = &time->timeline;
    json_t *spent = json_object();
    for (int i = 0; i < SPENT_COUNT; i++)
        json_object_set_new(spent, spent_name((enum spent)i), json_real(t->spent_s[i]));
    const struct slowest *slowest = &time->costs.slowest;
    json_t *object = json_pack(
        "{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:o, s:{s:i, s:f, s:f}}",
        "profile", time->profile, "step_s", t->step_s, "tokens_per_s_per_gpu", time->tokens_per_s,
        "mfu", time->mfu, "hfu", time->hfu, "exposed_communication_s", t->exposed_s,
        "communication_s", t->communication_s, "waiting_s", t->waiting_s, "compute_s", t->compute_s,
        "host_s", t->host_s, "bound", spent_name(time->bound), "spent_s", spent, "slowest_rank",
        "ranks", (int)slowest->ranks, "arithmetic", slowest->factor, "deviation", slowest->sigma);
    if (!isnan(time->low_s))
        set_range(object, time);
    return object;
}

static json_t *instruction_seconds(const struct step_time *time, const struct plan *plan)
{
    const struct timeline *t = &time->timeline;
    json_t *array = json_array();
    uint32_t task = 0;
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const bool here = task < simulation_tasks(time->simulation) &&
                          simulation_instruction(time->simulation, task) == i;
        const bool runs = here && plan_op_is_kernel((enum plan_op)plan->instructions[i].op);
        json_array_append_new(array,
                              runs ? json_real(t->end_s[task] - t->begin_s[task]) : json_null());
        task += here;
    }
    return array;
}

json_t *time_plan_json(const struct step_time *time, const struct plan *plan)
{
    json_t *object = time_json(time);
    json_object_set_new(object, "instruction_s", instruction_seconds(time, plan));
    return object;
}

const char *time_title(enum spent spent)
{
    static const char *const titles[SPENT_COUNT] = {
        [SPENT_COMPUTE] = "arithmetic",       [SPENT_MEMORY] = "memory bandwidth",
        [SPENT_NETWORK] = "waiting: network", [SPENT_RANKS] = "waiting: slower ranks",
        [SPENT_COPY] = "waiting: copies",     [SPENT_HOST] = "waiting: host",
    };
    return titles[spent];
}

void time_print(FILE *file, const struct step_time *time)
{
    const struct style s = style_of(file);
    const struct timeline *t = &time->timeline;
    char step[32], low[32], high[32], number[32];
    fprintf(file, "\n  %s%-24s %9s%s  (%s to %s), bound by %s\n", s.bold, "step",
            compare_seconds(t->step_s, step), s.off, compare_seconds(time->low_s, low),
            compare_seconds(time->high_s, high), spent_name(time->bound));
    for (int i = 0; i < SPENT_COUNT; i++) {
        if (t->spent_s[i] < 0.0005 * t->step_s)
            continue;
        fprintf(file, "  %-24s %9s", time_title((enum spent)i),
                compare_seconds(t->spent_s[i], step));
        style_bar(file, t->spent_s[i] / t->step_s, STYLE_BAR);
        fputc('\n', file);
    }
    fprintf(file, "  %-24s %9s  a GPU; MFU %.1f %%, HFU %.1f %%%s%s%s\n", "tokens a second",
            style_grouped((uint64_t)(time->tokens_per_s + 0.5), number), 100 * time->mfu,
            100 * time->hfu, time->peak_of ? " of the " : "", time->peak_of ? time->peak_of : "",
            time->peak_of ? " peak" : "");
    if (t->communication_s > 0)
        fprintf(file, "  %-24s %9s  of %s, %s of which wait for slower ranks; %.1f %% overlapped\n",
                "exposed communication", compare_seconds(t->exposed_s, step),
                compare_seconds(t->communication_s, low), compare_seconds(t->waiting_s, high),
                100 * time->overlapped);
    fprintf(file, "  %-24s %9s  to issue it all\n", "host", compare_seconds(t->host_s, step));
}

json_t *long_run_json(const struct long_run *run)
{
    const struct goodput *g = &run->goodput;
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "checkpoint_bytes_per_node",
                     (json_int_t)run->checkpoint_bytes, "checkpoint_s", run->checkpoint_s,
                     "job_mtbf_s", g->job_mtbf_s, "interval_s", g->interval_s, "useful", g->useful,
                     "checkpointing", g->checkpointing, "restarting", g->restarting, "repeating",
                     g->repeating, "tokens_per_s_per_gpu", run->tokens_per_s);
}

/* "2.7 h" */
static const char *long_time(double seconds, char text[32])
{
    if (seconds >= 2 * 86400.0)
        snprintf(text, 32, "%.1f days", seconds / 86400);
    else if (seconds >= 2 * 3600.0)
        snprintf(text, 32, "%.1f h", seconds / 3600);
    else if (seconds >= 120)
        snprintf(text, 32, "%.1f min", seconds / 60);
    else
        snprintf(text, 32, "%.1f s", seconds);
    return text;
}

void long_run_print(FILE *file, const struct long_run *run)
{
    const struct style s = style_of(file);
    const struct goodput *g = &run->goodput;
    char time[32], other[32], number[32];
    fprintf(file, "\n  %s%-24s %8.1f%%%s  useful at the best interval\n", s.bold, "goodput",
            100 * g->useful, s.off);
    fprintf(file, "  %-24s %9s  of the whole job\n", "mean time to a failure",
            long_time(g->job_mtbf_s, time));
    fprintf(file, "  %-24s %9s  each takes %s, %.1f GiB a node\n", "checkpoint every",
            long_time(g->interval_s, time), long_time(run->checkpoint_s, other),
            (double)run->checkpoint_bytes / 1073741824.0);
    fprintf(file, "  %-24s %8.1f%%  checkpoints %.1f %%, restarts %.1f %%, done again %.1f %%\n",
            "lost", 100 * (1 - g->useful), 100 * g->checkpointing, 100 * g->restarting,
            100 * g->repeating);
    fprintf(file, "  %-24s %9s  a GPU, over everything\n", "tokens a second",
            style_grouped((uint64_t)(run->tokens_per_s + 0.5), number));
}
