/* mpt.h - the jobs of MosaicML llm-foundry's throughput tables (tests/data/published). */
#ifndef SHARDPLAN_MPT_H
#define SHARDPLAN_MPT_H

#include "job/job.h"
#include "tests/support/csv.h"

/* The job of one row: an MPT under full sharding, with the loss that its yaml files have
 * (fused_crossentropy). */
struct job mpt_job(const struct csv *csv, size_t row);

/* The same for its time. Train metrics (llm-foundry's use_train_metrics: LanguageCrossEntropy,
 * Perplexity) read all logits again, twice; with the fused loss that comes to about what the eager
 * loss takes, which stands for both. */
struct job mpt_timed_job(const struct csv *csv, size_t row);

/* What computed attention: `--attn_impl triton` of their benchmark until 2024. */
#define MPT_ATTENTION ATTENTION_TRITON

/* The profile of the row's GPU. */
const char *mpt_gpu(const struct csv *csv, size_t row);

#endif
