/* plan_trace.c - see plan_trace.h.
 *
 *     host          |i|i|i|i|i|
 *     compute           |== mm ==|        |== mm ==|
 *     all_gather            |all_gather layers.1|
 *     memory        ____-----------------__________
 *
 * A counter keeps its value until the next sample, so only what changed is sampled: an alloc moves
 * two or three of the tracks, not all fifteen. */
#include "job/plan_trace.h"

#include "plan/modules.h"
#include "plan/profiled.h"

#include <stdio.h>
#include <stdlib.h>

enum { REQUESTED, ALLOCATED, RESERVED, TOTALS };

struct builder {
    const struct plan *plan;
    struct trace *trace;
    double *issue_s;         /* (instructions) the host is there */
    double *begin_s, *end_s; /* (instructions) it runs; what runs nowhere: as issued */
    uint32_t process, host_lane;
    uint32_t lanes[LANES_MOST];
    uint32_t tracks[TOTALS + CATEGORY_COUNT];
    uint64_t values[TOTALS + CATEGORY_COUNT]; /* as last sampled */
    bool used[TOTALS + CATEGORY_COUNT];
    bool sampled; /* there was a first sample */
    struct arena arena;
    const char **modules; /* (instructions) names */
};

/* ---- times ---- */

/* (instructions) When the host is at each, in seconds from the begin of the step: memory is taken
 * and given back then. Tasks are in host order; what takes the host no time lies between its
 * neighbours. */
static void issue_times(const struct plan *plan, const struct simulation *simulation,
                        const struct timeline *timeline, double *issue_s)
{
    double now = 0;
    uint32_t task = 0;
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        issue_s[i] = now;
        if (task < simulation_tasks(simulation) && simulation_instruction(simulation, task) == i)
            now = timeline->issue_s[task++];
    }
}

static void take_times(struct builder *b, const struct simulation *simulation,
                       const struct timeline *timeline)
{
    const uint32_t instructions = b->plan->instruction_count;
    b->issue_s = xmalloc(3 * (size_t)instructions * sizeof(double) + 1);
    b->begin_s = b->issue_s + instructions;
    b->end_s = b->begin_s + instructions;
    issue_times(b->plan, simulation, timeline, b->issue_s);
    for (uint32_t i = 0; i < instructions; i++)
        b->begin_s[i] = b->end_s[i] = b->issue_s[i];
    for (uint32_t task = 0; task < simulation_tasks(simulation); task++) {
        const uint32_t i = simulation_instruction(simulation, task);
        b->begin_s[i] = timeline->begin_s[task];
        b->end_s[i] = timeline->end_s[task];
    }
}

/* ---- work ---- */

static bool is_drawn(enum plan_op op)
{
    return plan_op_is_kernel(op) || op == PLAN_MARK;
}

static void add_lanes(struct builder *b)
{
    bool used[LANES_MOST] = {false};
    for (uint32_t i = 0; i < b->plan->instruction_count; i++)
        if (is_drawn((enum plan_op)b->plan->instructions[i].op))
            used[b->plan->instructions[i].lane] = true;
    for (uint32_t i = 0; i < b->plan->lane_count; i++) {
        if (!used[i])
            continue;
        b->lanes[i] = trace_add_lane(b->trace, b->process, b->plan->lanes[i].name);
        b->trace->lanes[b->lanes[i]].stream = plan_profiled_stream((uint8_t)i);
    }
    b->host_lane = trace_add_lane(b->trace, b->process, "host issue");
}

/* "mm", "all_gather layers.1": the kernel or, for what the sharding does, the op and its unit.
 * `profiled`: "ncclDevKernel_AllGather_RING_LL layers.1". */
static void name_work(const struct plan *plan, const struct plan_instruction *instruction,
                      bool profiled, char *text, size_t size)
{
    char own[96];
    const bool by_label = instruction->op == PLAN_COMPUTE || instruction->op == PLAN_OPTIMIZER;
    const char *what = by_label ? plan->labels[plan_kernel(plan, instruction->arg)->label]
                                : plan_op_name((enum plan_op)instruction->op);
    const uint32_t unit = plan_scope_unit(plan, instruction);
    if (profiled)
        what = plan_profiled_name(plan, instruction, what, own, sizeof own);
    if (unit == PLAN_NO_UNIT) {
        snprintf(text, size, "%s", what);
        return;
    }
    const char *name = plan->units[unit].name;
    snprintf(text, size, "%s %s", what, name[0] ? name : "root");
}

static void add_work(struct builder *b, uint32_t id)
{
    const struct plan *plan = b->plan;
    const struct plan_instruction *instruction = &plan->instructions[id];
    const bool is_mark = instruction->op == PLAN_MARK;
    char name[256];
    if (!is_mark)
        name_work(plan, instruction, true, name, sizeof name);
    const struct trace_event event = {
        .id = id,
        .lane = b->lanes[instruction->lane],
        .kind = is_mark ? TRACE_INSTANT : TRACE_SPAN,
        .name = is_mark ? plan_mark_name((enum plan_mark)instruction->arg) : name,
        .category = is_mark ? "mark" : plan_profiled_category(instruction),
        .begin_s = b->begin_s[id],
        .end_s = b->end_s[id],
        .bytes = is_mark ? 0 : (uint64_t)plan_kernel(plan, instruction->arg)->bytes,
        .op = plan_op_name((enum plan_op)instruction->op),
        .module = is_mark ? NULL : b->modules[id],
    };
    trace_add_event(b->trace, &event);
    if (is_mark || instruction->lane == LANE_HOST)
        return;
    name_work(plan, instruction, false, name, sizeof name);
    const double issued_s = id + 1 < plan->instruction_count ? b->issue_s[id + 1] : b->issue_s[id];
    const struct trace_event issue = {
        .id = TRACE_NO_ID,
        .lane = b->host_lane,
        .kind = TRACE_SPAN,
        .name = name,
        .category = "cpu_op",
        .begin_s = b->issue_s[id],
        .end_s = issued_s,
        .issues = id + 1,
    };
    trace_add_event(b->trace, &issue);
}

/* ---- memory ---- */

static void add_tracks(struct builder *b, bool with_allocator)
{
    static const char *const totals[] = {"memory requested", "memory allocated", "memory reserved"};
    static const char *const series[] = {"bytes"};
    for (int i = 0; i < TOTALS; i++)
        b->used[i] = i == REQUESTED || with_allocator;
    for (uint32_t i = 0; i < b->plan->buffer_count; i++)
        if (!b->plan->buffers[i].scratch)
            b->used[TOTALS + b->plan->buffers[i].category] = true;
    for (int i = 0; i < TOTALS + CATEGORY_COUNT; i++) {
        char name[64];
        if (!b->used[i])
            continue;
        if (i < TOTALS)
            snprintf(name, sizeof name, "%s", totals[i]);
        else
            snprintf(name, sizeof name, "memory of %s", category_name((enum category)(i - TOTALS)));
        b->tracks[i] = trace_add_track(b->trace, b->process, name, 1, series);
    }
}

static void add_point(void *context, const struct plan *plan, const struct memory_point *point)
{
    struct builder *b = context;
    uint64_t values[TOTALS + CATEGORY_COUNT] = {point->requested, point->allocated,
                                                point->reserved};
    (void)plan;
    for (int i = 0; i < CATEGORY_COUNT; i++)
        values[TOTALS + i] = point->categories[i];
    for (int i = 0; i < TOTALS + CATEGORY_COUNT; i++) {
        const double value = (double)values[i];
        if (b->used[i] && (values[i] != b->values[i] || !b->sampled))
            trace_add_counter(b->trace, b->tracks[i], b->issue_s[point->instruction], &value);
        b->values[i] = values[i];
    }
    b->sampled = true;
}

enum err_code plan_trace_add(const struct plan *plan, const struct memory_options *options,
                             const struct simulation *simulation, const struct timeline *timeline,
                             struct trace *trace, struct err *err)
{
    struct builder b = {.plan = plan, .trace = trace};
    struct memory memory;
    char name[64];
    snprintf(name, sizeof name, "rank %u (predicted)", plan->rank);
    b.process = trace_add_process(trace, plan->rank, name);
    trace_set_info(trace, "clock", "seconds");
    trace->job = (struct trace_job){.rank = plan->rank, .world = plan->world};
    take_times(&b, simulation, timeline);
    b.modules = plan_module_names(plan, &b.arena);
    add_lanes(&b);
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        if (is_drawn((enum plan_op)plan->instructions[i].op) &&
            !(plan->instructions[i].flags & PLAN_FIRST_STEP))
            add_work(&b, i);
    add_tracks(&b, !options->without_allocator);
    const enum err_code rc = memory_replay(plan, options, add_point, &b, &memory, err);
    free(b.issue_s);
    arena_free(&b.arena);
    return rc;
}

enum err_code plan_trace_write(const struct plan *plan, const struct memory_options *options,
                               const struct simulation *simulation, const struct timeline *timeline,
                               const char *path, struct err *err)
{
    struct trace *trace = trace_new();
    enum err_code rc = plan_trace_add(plan, options, simulation, timeline, trace, err);
    if (rc == ERR_OK)
        rc = trace_write(trace, path, err);
    trace_free(trace);
    return rc;
}
