/* explain_result.h - what a step comes from, for people and for programs. */
#ifndef SHARDPLAN_EXPLAIN_RESULT_H
#define SHARDPLAN_EXPLAIN_RESULT_H

#include "job/explain.h"

#include <jansson.h>
#include <stdio.h>

/* The "explain" of `fit --json` and `plan --json`, which the caller owns: "spent", for each kind
 * its seconds and all its kernels with the names of their numbers; "numbers" with what 10 % of each
 * changes. */
json_t *explanation_json(const struct explanation *explanation);

/* The same as tables, of the largest. Colour only when `file` is a terminal. */
void explanation_print(FILE *file, const struct explanation *explanation);

#endif
