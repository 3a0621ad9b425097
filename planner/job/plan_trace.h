/* plan_trace.h - the predicted trace of a plan: its work on lanes, its memory as counters.
 *
 * Work lies where the simulation put it, memory where the host issues: an allocation happens long
 * before the kernel that writes it runs. */
#ifndef SHARDPLAN_PLAN_TRACE_H
#define SHARDPLAN_PLAN_TRACE_H

#include "memory/replay.h"
#include "plan/plan.h"
#include "simulate/simulate.h"
#include "traces/trace.h"

/* Adds one process to the trace: "rank 0 (predicted)", a lane for each stream that works, one of
 * what the host issues, marks as instant events, and counters of the bytes requested, allocated,
 * reserved and requested by category, in a steady-state step. Running out of the allocator's
 * capacity is no error: the counters end there. */
enum err_code plan_trace_add(const struct plan *plan, const struct memory_options *options,
                             const struct simulation *simulation, const struct timeline *timeline,
                             struct trace *trace, struct err *err);

/* The trace of a plan as a file; see trace_write. */
enum err_code plan_trace_write(const struct plan *plan, const struct memory_options *options,
                               const struct simulation *simulation, const struct timeline *timeline,
                               const char *path, struct err *err);

#endif
