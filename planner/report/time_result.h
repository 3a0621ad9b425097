/* time_result.h - the time of a step for people and for programs. */
#ifndef SHARDPLAN_TIME_RESULT_H
#define SHARDPLAN_TIME_RESULT_H

#include "job/long_run.h"

#include <jansson.h>
#include <stdio.h>

/* The "time" of `plan --json`. "slowest_rank" says of how many ranks, how much longer than the mean
 * rank's its arithmetic takes, and one rank's standard deviation. Where no range was drawn
 * "step_low_s", "step_high_s" and "range" are left out. The caller owns it. */
json_t *time_json(const struct step_time *time);

/* The "time" of plan.json: the same with "instruction_s", seconds by instruction of the plan that
 * was timed, null where nothing runs: what compare joins a recording with. The caller owns it. */
json_t *time_plan_json(const struct step_time *time, const struct plan *plan);

/* The same as a table. Colour only when `file` is a terminal. */
void time_print(FILE *file, const struct step_time *time);

/* "waiting: network" */
const char *time_title(enum spent spent);

/* The "goodput" of `plan --goodput --json`, which the caller owns, and the same as a table. */
json_t *long_run_json(const struct long_run *run);
void long_run_print(FILE *file, const struct long_run *run);

#endif
