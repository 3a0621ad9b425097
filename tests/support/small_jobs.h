/* small_jobs.h - for the tests of plans: jobs of every kind, small enough to look at. */
#ifndef SHARDPLAN_SMALL_JOBS_H
#define SHARDPLAN_SMALL_JOBS_H

#include "job/job.h"

enum { SMALL_JOBS = 14 }; /* kinds: HSDP, accumulation, checkpointing, offload, ... */

/* Three blocks on four ranks, with the defaults of every option. */
struct job small_job(enum arch arch);

/* One job for each thing that makes programs differ; kind 0 is small_job(ARCH_LLAMA). */
struct job small_job_of_kind(int kind);

/* Plans a job and fails the test when that fails. The caller owns the plan: plan_free. */
struct plan *small_plan_of(const struct job *job);
/* The plan of small_job(ARCH_LLAMA). */
struct plan *small_plan(void);

#endif
