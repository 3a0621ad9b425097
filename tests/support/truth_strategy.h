/* truth_strategy.h - the strategy of a recording's row, which tests/truth/record*.py describe, as a
 * job has it. */
#ifndef SHARDPLAN_TRUTH_STRATEGY_H
#define SHARDPLAN_TRUTH_STRATEGY_H

#include "job/job.h"

#include <jansson.h>

/* "bf16", "fp16", "fp32"; `otherwise` for NULL. */
enum dtype truth_dtype(const char *text, enum dtype otherwise);

/* Of a strategy of DeepSpeed's: its stage. */
enum system_kind truth_zero_system(const json_t *strategy);

/* Into a job that has the defaults; what it lends lives as long as the row. Fails the test where
 * the row has a key that nothing here knows. */
void truth_read_strategy(const json_t *row, struct job *job);

#endif
