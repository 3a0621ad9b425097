/* start_up_result.h - initialisation and checkpoints, for people and for programs. */
#ifndef SHARDPLAN_START_UP_RESULT_H
#define SHARDPLAN_START_UP_RESULT_H

#include "job/start_up.h"

#include <jansson.h>
#include <stdio.h>

/* The "start_up" of `fit --start-up --json`, which the caller owns: "initialisation" and
 * "checkpoints", an object a way. "fits_host" is null where it is not known what a host has. */
json_t *start_up_json(const struct start_up *start_up, const struct machine *machine);

/* The same as two tables. Colour only when `file` is a terminal. */
void start_up_print(FILE *file, const struct start_up *start_up, const struct machine *machine);

#endif
