/* offloading.h - which jobs have what nodes save on the host, as it is planned (graph/tape_host.c).
 */
#ifndef SHARDPLAN_OFFLOADING_H
#define SHARDPLAN_OFFLOADING_H

#include "job/job.h"

/* Whether the job has. */
bool offloading_is_used(const struct job *job);

/* What does not go with it, of a job's settings: ERR_UNSUPPORTED, with a sentence. */
enum err_code offloading_check(const struct job *job, struct err *err);

/* Likewise, of what its blocks hand on. */
enum err_code offloading_check_graph(const struct job *job, const struct graph *graph,
                                     struct err *err);

#endif
