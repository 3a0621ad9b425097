/* preferences.h - which jobs of --loss dpo are planned (model/dpo.h), beside what families say. */
#ifndef SHARDPLAN_JOB_PREFERENCES_H
#define SHARDPLAN_JOB_PREFERENCES_H

#include "job/job.h"

/* What does not go with it, or without it: ERR_INVALID or ERR_UNSUPPORTED, with a sentence. */
enum err_code preferences_check(const struct job *job, struct err *err);

#endif
