/* random_jobs.h - jobs drawn at random: small ones (1 to 5 layers, odd sizes), so that thousands
 * can be planned, with rows that do not divide by the ranks, and every option of FSDP2. */
#ifndef SHARDPLAN_RANDOM_JOBS_H
#define SHARDPLAN_RANDOM_JOBS_H

#include "job/job.h"

#include <gsl/gsl_rng.h>

/* One that can be planned. */
struct job random_job(gsl_rng *rng);

#endif
