/* rehearsal.h - a run of which something is not there: the peers of one rank (--rehearse), or what
 * kernels compute (--kernels waits). What is not there takes its predicted time. */
#ifndef SHARDPLAN_REHEARSAL_H
#define SHARDPLAN_REHEARSAL_H

#include "plan/plan.h"
#include "settings/settings.h"

#include <jansson.h>

/* Whether a run's kernels are waits: as --kernels says, and for want of kernels where it leaves it
 * open; *why is then what the device lacks (an empty text: it was asked for). ERR_UNSUPPORTED: the
 * plan cannot be run and no waits were asked for, or what else was asked for needs values, which
 * waits do not compute. */
enum err_code rehearsal_choose(const struct plan *plan, const struct settings *settings,
                               bool *waits, struct err *why, struct err *err);

/* Seconds of every kernel and collective by instruction id: those of the plan's own "time" (NULL:
 * it has none), or those of --predicted. *out is NULL where there are none; a file that was named
 * must have them. The caller owns *out: free. */
enum err_code rehearsal_times(const struct plan *plan, const json_t *time, const char *predicted,
                              double **out, struct err *err);

#endif
