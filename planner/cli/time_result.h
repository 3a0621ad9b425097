/* time_result.h - the time of a step for people and for programs. */
#ifndef SHARDPLAN_TIME_RESULT_H
#define SHARDPLAN_TIME_RESULT_H

#include "job/step_time.h"

#include <jansson.h>
#include <stdio.h>

/* The "time" of `plan --json` and of plan.json. The caller owns it. */
json_t *time_json(const struct step_time *time);

/* The same as a table. Colour only when `file` is a terminal. */
void time_print(FILE *file, const struct step_time *time);

#endif
