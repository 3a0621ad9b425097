/* units_result.h - which parameters are gathered and reduced together, for people and for programs.
 */
#ifndef SHARDPLAN_UNITS_RESULT_H
#define SHARDPLAN_UNITS_RESULT_H

#include "job/job.h"

#include <jansson.h>
#include <stdio.h>

/* The array "units": of each {"name", "tensors", "parameters", "stored_bytes" (of this rank, in the
 * store dtype), "gathered_bytes" (in the compute dtype, padding included)}. Empty for a system that
 * has none. The caller owns it. */
json_t *units_json(const struct plan *plan);

/* One line: how many there are, and the sizes of those that differ, neighbours that are alike
 * together. Nothing where there are none. */
void units_print_line(FILE *file, const struct strategy *strategy, const struct plan *plan);

/* A table, a row for each run of neighbours that are alike. */
void units_print(FILE *file, const struct strategy *strategy, const struct plan *plan);

#endif
