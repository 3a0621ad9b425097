/* reentrant.h - which jobs have reentrant checkpoints as they are planned (graph/tape_reentrant.c).
 */
#ifndef SHARDPLAN_REENTRANT_H
#define SHARDPLAN_REENTRANT_H

#include "job/job.h"

/* Whether the job has any. */
bool reentrant_is_used(const struct job *job);

/* Whether nodes' contexts hold gathered parameters until they are deleted, with the loss, as
 * bitsandbytes' do of a weight in 4 bits under ZeRO-3: reentrant checkpoints, whose forward makes
 * no nodes, are then the ones that save memory. */
bool reentrant_frees_gathered(const struct job *job);

/* What does not go with them, of a job's settings: ERR_INVALID where PyTorch fails, else
 * ERR_UNSUPPORTED; with a sentence. */
enum err_code reentrant_check(const struct job *job, struct err *err);

/* Likewise, of what its blocks take and give. */
enum err_code reentrant_check_graph(const struct job *job, const struct graph *graph,
                                    struct err *err);

#endif
