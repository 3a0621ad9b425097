/* run_plan.h - executes a plan as `shardplan run` does and reads the recording back. */
#ifndef SHARDPLAN_RUN_PLAN_H
#define SHARDPLAN_RUN_PLAN_H

#include "plan/plan.h"
#include "traces/trace.h"

struct run_plan {
    const char *dir;    /* for plan.json, traces and snapshots; all are removed again */
    const char *device; /* "host", "cuda" */
    uint32_t steps;     /* the trace is of the last */
};

/* Runs `shardplan run` on the plan, all of its ranks; what they say goes to standard error. A
 * signal that asks to end (base/ending_signals.h) ends the run and is ERR_DEVICE here, so that the
 * caller, who holds it back, can clean up before it comes.
 * ERR_UNSUPPORTED: the device or a kernel is not there. On ERR_OK the caller owns out[rank], the
 * trace of each of the plan's ranks: trace_free. */
enum err_code run_plan(const struct run_plan *run, const struct plan *plan, struct trace **out,
                       struct err *err);

#endif
