/* rehearsal.c - see rehearsal.h. */
#include "runtime/program/rehearsal.h"

#include "base/arena.h"
#include "runtime/execution/plan_work.h"
#include "traces/trace.h"

#include <stdlib.h>
#include <string.h>

/* ---- what kernels do ---- */

/* Values go in or out: there are none. */
static enum err_code refuse_values(const struct run_options *o, struct err *err)
{
    const struct {
        const char *option;
        bool given;
    } values[] = {
        {"load", o->load},           {"load-full", o->load_full}, {"save", o->save},
        {"save-full", o->save_full}, {"data", o->data != NULL},   {"param-norms", o->param_norms},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i].given)
            return err_set(err, ERR_UNSUPPORTED,
                           "--%s: kernels that are waits compute nothing: no values are read or "
                           "written",
                           values[i].option);
    return ERR_OK;
}

enum err_code rehearsal_choose(const struct plan *plan, const struct settings *settings,
                               bool *waits, struct err *why, struct err *err)
{
    const struct run_options *o = &settings->run;
    const enum work_backend backend = settings->cuda ? WORK_ON_CUDA : WORK_ON_HOST;
    enum err_code rc = ERR_OK;
    *why = (struct err){.code = ERR_OK};
    *waits = o->kernels == RUN_KERNELS_WAITS;
    if (!*waits)
        rc = plan_check_runnable(plan, backend, why);
    /* (what was recorded may give a kernel other operands than any of ours takes) */
    const bool lacks = rc == ERR_UNSUPPORTED || rc == ERR_INVALID;
    if (lacks && o->kernels == RUN_KERNELS_AUTO && o->rehearse_world) {
        *waits = true;
        rc = ERR_OK;
    }
    if (rc != ERR_OK && lacks)
        return err_set(err, rc, "%s; --kernels waits rehearses the plan without", why->text);
    if (rc != ERR_OK)
        return err_set(err, rc, "%s", why->text);
    return *waits ? refuse_values(o, err) : plan_check_attention(plan, o->attention, backend, err);
}

/* ---- how long ---- */

static bool runs(const struct plan *plan, uint32_t id)
{
    return plan_op_is_kernel((enum plan_op)plan->instructions[id].op);
}

/* A span of each, of whichever process: the plan is one rank's. */
static void take_spans(const struct plan *plan, const struct trace *trace, double *wait_s)
{
    for (uint32_t i = 0; i < trace->event_count; i++) {
        const struct trace_event *event = &trace->events[i];
        if (event->kind == TRACE_SPAN && event->id < plan->instruction_count &&
            runs(plan, event->id))
            wait_s[event->id] = event->end_s - event->begin_s;
    }
}

static enum err_code read_spans(const struct plan *plan, const char *path, double *wait_s,
                                struct err *err)
{
    struct trace *trace = NULL;
    enum err_code rc = ERR_OK;
    TRY(trace_read(path, &trace, err));
    const char *clock = trace_get_info(trace, "clock");
    if (clock && strcmp(clock, "seconds") == 0)
        take_spans(plan, trace, wait_s);
    else
        rc = err_set(err, ERR_UNSUPPORTED,
                     "--predicted %s: its \"clock\" is \"%s\": it has no times in seconds", path,
                     clock ? clock : "");
    trace_free(trace);
    return rc;
}

/* "instruction_s" of a plan.json; what is no time is none. */
static void take_seconds(const struct plan *plan, const json_t *seconds, double *wait_s)
{
    for (uint32_t id = 0; id < plan->instruction_count; id++) {
        const double value = json_number_value(json_array_get(seconds, id));
        if (runs(plan, id) && value > 0)
            wait_s[id] = value;
    }
}

enum err_code rehearsal_times(const struct plan *plan, const json_t *time, const char *predicted,
                              double **out, struct err *err)
{
    const json_t *seconds = json_object_get(time, "instruction_s");
    *out = NULL;
    if (!predicted && !json_is_array(seconds))
        return ERR_OK;
    double *wait_s = xcalloc(plan->instruction_count + 1, sizeof *wait_s);
    if (!predicted)
        take_seconds(plan, seconds, wait_s);
    const enum err_code rc = predicted ? read_spans(plan, predicted, wait_s, err) : ERR_OK;
    if (rc == ERR_OK)
        *out = wait_s;
    else
        free(wait_s);
    return rc;
}
