/* plan_trace.h - the predicted trace of a plan: its work on lanes, its memory as counters.
 *
 * Until a cost model gives durations, time is instruction order: instruction i takes the i-th
 * microsecond, on the lane of its stream. The trace says so (info "clock": "instruction order"). */
#ifndef SHARDPLAN_PLAN_TRACE_H
#define SHARDPLAN_PLAN_TRACE_H

#include "memory/replay.h"
#include "plan/plan.h"
#include "traces/trace.h"

/* Adds one process to the trace: "rank 0 (predicted)", a lane for each stream that works, marks as
 * instant events, and counters of the bytes requested, allocated, reserved and requested by
 * category, in a steady-state step. Running out of the allocator's capacity is no error: the
 * counters end there. */
enum err_code plan_trace_add(const struct plan *plan, const struct memory_options *options,
                             struct trace *trace, struct err *err);

/* The trace of a plan as a file; see trace_write. */
enum err_code plan_trace_write(const struct plan *plan, const struct memory_options *options,
                               const char *path, struct err *err);

#endif
