/* rehearsal.c - see rehearsal.h. */
#include "runtime/program/rehearsal.h"

#include "base/arena.h"
#include "traces/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A span of each collective, of whichever process: the plan is one rank's. */
static void take_spans(const struct plan *plan, const struct trace *trace, double *wait_s)
{
    for (uint32_t i = 0; i < trace->event_count; i++) {
        const struct trace_event *event = &trace->events[i];
        if (event->kind != TRACE_SPAN || event->id >= plan->instruction_count)
            continue;
        if (plan_op_is_collective((enum plan_op)plan->instructions[event->id].op))
            wait_s[event->id] = event->end_s - event->begin_s;
    }
}

static void name_beside(const char *plan_path, char *out, size_t size)
{
    const char *slash = strrchr(plan_path, '/');
    const int folder = slash ? (int)(slash - plan_path) + 1 : 0;
    snprintf(out, size, "%.*strace.json", folder, plan_path);
}

enum err_code rehearsal_times(const struct plan *plan, const char *plan_path,
                              const char *trace_path, double **out, struct err *err)
{
    char beside[4096];
    struct trace *trace = NULL;
    *out = NULL;
    name_beside(plan_path, beside, sizeof beside);
    if (!trace_path && access(beside, R_OK) != 0)
        return ERR_OK;
    TRY(trace_read(trace_path ? trace_path : beside, &trace, err));
    const char *clock = trace_get_info(trace, "clock");
    const bool timed = clock && strcmp(clock, "seconds") == 0;
    if (timed) {
        *out = xcalloc(plan->instruction_count + 1, sizeof **out);
        take_spans(plan, trace, *out);
    }
    const enum err_code rc =
        timed || !trace_path
            ? ERR_OK
            : err_set(err, ERR_UNSUPPORTED,
                      "--predicted %s: its \"clock\" is \"%s\": it has no times in seconds",
                      trace_path, clock ? clock : "");
    trace_free(trace);
    return rc;
}
