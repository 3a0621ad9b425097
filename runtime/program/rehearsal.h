/* rehearsal.h - one process plays one rank of a large plan: how long the collectives with its
 * absent peers are to take. */
#ifndef SHARDPLAN_REHEARSAL_H
#define SHARDPLAN_REHEARSAL_H

#include "plan/plan.h"

/* Seconds of every collective by instruction id, from a predicted trace: `trace_path`, or, NULL,
 * the trace.json beside the plan. *out is NULL when that one is not there or has no times ("clock"
 * is not "seconds"); a file that was named must have them. The caller owns *out: free. */
enum err_code rehearsal_times(const struct plan *plan, const char *plan_path,
                              const char *trace_path, double **out, struct err *err);

#endif
