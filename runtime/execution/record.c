/* record.c - see record.h. */
#include "runtime/execution/record.h"

#include "plan/modules.h"
#include "plan/profiled.h"

#include <stdio.h>

struct recording {
    const struct plan *plan;
    const struct execution *execution;
    const struct step_record *records;
    struct trace *trace;
    uint32_t lanes[LANES_MOST], issue, track;
    struct arena arena;   /* of the next */
    const char **modules; /* (instructions) names */
};

static void open_trace(struct recording *r, const struct record_about *about, uint32_t step)
{
    static const char *const series[] = {"instruction", "allocated", "reserved"};
    char text[96];
    r->trace = trace_new();
    trace_set_info(r->trace, "clock", "seconds");
    r->trace->job = (struct trace_job){.rank = r->plan->rank, .world = r->plan->world};
    trace_set_info(r->trace, "device", about->device);
    snprintf(text, sizeof text, "%llu", (unsigned long long)about->workspace_bytes);
    trace_set_info(r->trace, "workspace_bytes", text);
    if (about->attention && about->attention[0])
        trace_set_info(r->trace, "attention", about->attention);
    if (about->rehearsal) {
        snprintf(text, sizeof text, "rank %u of %u", r->plan->rank, r->plan->world);
        trace_set_info(r->trace, "rehearsal", text);
    }
    if (about->waits)
        trace_set_info(r->trace, "kernels", "waits of the predicted time");
    if (about->shared_gpu)
        trace_set_info(r->trace, "shared_gpu", "ranks took turns on a GPU: times mean nothing");
    snprintf(text, sizeof text, "%u", r->plan->rank);
    trace_set_info(r->trace, "rank", text);
    snprintf(text, sizeof text, "%u", step);
    trace_set_info(r->trace, "step", text);
    run_steps_note(&about->steps, r->trace);
    snprintf(text, sizeof text, "rank %u%s (recorded)", r->plan->rank,
             about->rehearsal ? ", rehearsal" : "");
    const uint32_t process = trace_add_process(r->trace, r->plan->rank, text);
    for (uint32_t s = 0; s < r->plan->lane_count; s++) {
        r->lanes[s] = trace_add_lane(r->trace, process, r->plan->lanes[s].name);
        r->trace->lanes[r->lanes[s]].stream = plan_profiled_stream((uint8_t)s);
    }
    r->issue = trace_add_lane(r->trace, process, "host issue");
    r->track = trace_add_track(r->trace, process, "memory recorded", 3, series);
}

/* Whether a chain (NULL: none) ran as one. */
static bool is_fused(const struct recording *r, const struct fuse_chain *chain)
{
    return chain && r->records[chain->member[0]].fused_into;
}

/* What ran as a part of another begins and ends where that begins, and says so. */
static void add_part(struct recording *r, uint32_t id)
{
    const struct plan_instruction *instruction = &r->plan->instructions[id];
    const uint32_t into = r->records[id].fused_into - 1;
    char name[160];
    snprintf(name, sizeof name, "%s%s%u",
             r->plan->labels[plan_kernel(r->plan, instruction->arg)->label], TRACE_FUSED, into);
    const struct trace_event event = {
        .id = id,
        .lane = r->lanes[instruction->lane],
        .kind = TRACE_SPAN,
        .name = name,
        .category = plan_profiled_category(instruction),
        .begin_s = r->records[into].begin_s,
        .end_s = r->records[into].begin_s,
        .module = r->modules[id],
        .op = plan_op_name((enum plan_op)instruction->op),
    };
    trace_add_event(r->trace, &event);
}

static void add_work(struct recording *r, uint32_t id)
{
    const struct plan_instruction *instruction = &r->plan->instructions[id];
    const struct kernel *kernel = plan_kernel(r->plan, instruction->arg);
    const struct fuse_chain *chain = execution_chain(r->execution, id);
    if (r->records[id].fused_into && r->records[r->records[id].fused_into - 1].end_s > 0)
        add_part(r, id);
    if (r->records[id].end_s <= 0)
        return;
    char name[160];
    const char *what = is_fused(r, chain) ? work_name(chain->kind) : r->plan->labels[kernel->label];
    const struct trace_event event = {
        .id = id,
        .lane = r->lanes[instruction->lane],
        .kind = TRACE_SPAN,
        .name = plan_profiled_name(r->plan, instruction, what, name, sizeof name),
        .category = plan_profiled_category(instruction),
        .begin_s = r->records[id].begin_s,
        .end_s = r->records[id].end_s,
        .bytes = (uint64_t)kernel->bytes,
        .module = r->modules[id],
        .op = plan_op_name((enum plan_op)instruction->op),
    };
    trace_add_event(r->trace, &event);
}

static void add_issue(struct recording *r, uint32_t id)
{
    const struct plan_instruction *instruction = &r->plan->instructions[id];
    const struct kernel *kernel = plan_kernel(r->plan, instruction->arg);
    const struct trace_event event = {
        .id = TRACE_NO_ID,
        .lane = r->issue,
        .kind = TRACE_SPAN,
        .name = r->plan->labels[kernel->label],
        .category = "cpu_op",
        .begin_s = r->records[id].issue_begin_s,
        .end_s = r->records[id].issue_end_s,
        .issues = id + 1,
    };
    trace_add_event(r->trace, &event);
}

enum err_code record_write(const struct plan *plan, const struct execution *execution,
                           const struct record_about *about, uint32_t step, const char *path,
                           struct err *err)
{
    struct recording r = {
        .plan = plan, .execution = execution, .records = execution_records(execution)};
    open_trace(&r, about, step);
    r.modules = plan_module_names(plan, &r.arena);
    double time_s = 0.0; /* of memory: that of the last work issued before it */
    for (uint32_t id = 0; id < plan->instruction_count; id++) {
        const struct plan_instruction *instruction = &plan->instructions[id];
        if (!plan_is_issued(instruction, step == 0))
            continue;
        if (plan_op_is_kernel((enum plan_op)instruction->op)) {
            add_work(&r, id);
            add_issue(&r, id);
            const double begin_s = r.records[id].begin_s;
            time_s = begin_s > time_s ? begin_s : time_s;
        } else if (instruction->op == PLAN_ALLOC || instruction->op == PLAN_FREE ||
                   instruction->op == PLAN_MARK) {
            const double values[] = {id, (double)r.records[id].allocated,
                                     (double)r.records[id].reserved};
            trace_add_counter(r.trace, r.track, time_s, values);
        }
    }
    const enum err_code rc = trace_write(r.trace, path, err);
    trace_free(r.trace);
    arena_free(&r.arena);
    return rc;
}
