/* mpt.h - rows of tests/data/published/llmfoundry_a100.csv as jobs. */
#ifndef SHARDPLAN_TESTS_MPT_H
#define SHARDPLAN_TESTS_MPT_H

#include "job/job.h"
#include "tests/support/csv.h"

/* The job of a row. MPT is GPT-2 as nanoGPT writes it: tied embeddings, learned positions, biases.
 */
struct job mpt_job(const struct csv *csv, size_t row);

#endif
