/* policies.h - which jobs of --loss grpo are planned (model/grpo.h), beside what families say. */
#ifndef SHARDPLAN_JOB_POLICIES_H
#define SHARDPLAN_JOB_POLICIES_H

#include "job/job.h"

/* What does not go with it, or without it: ERR_INVALID or ERR_UNSUPPORTED, with a sentence. */
enum err_code policies_check(const struct job *job, struct err *err);

/* The trainer calls its model under accelerator.autocast(): where fsdp2's MixedPrecisionPolicy is
 * accelerate's, of mixed_precision bf16, that is autocast, though accelerate's own forward has
 * none. */
bool policies_autocast(const struct job *job);

/* What of a job of --loss grpo is not in the step: a sentence. NULL: it is none. */
const char *policies_note(const struct job *job);

#endif
