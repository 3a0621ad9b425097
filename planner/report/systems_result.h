/* systems_result.h - several systems side by side, for people and for programs. */
#ifndef SHARDPLAN_SYSTEMS_RESULT_H
#define SHARDPLAN_SYSTEMS_RESULT_H

#include "search/systems.h"

#include <jansson.h>
#include <stdio.h>

/* A column a system, as many side by side as a line holds (style_columns), the others in blocks
 * below with the same rows: bytes at its peak by category, what the allocator and the device make
 * of them, the verdict, the step and its exposed communication, and what closed forms say. Below it
 * why a system cannot do the job, and what its column leaves out. Colour only when `file` is a
 * terminal.
 */
void systems_print(FILE *file, const struct systems *systems);

/* {"shardplan", "given", "systems": [{"name", "system", "without", "settings", "verdict", ...}],
 * "best"}: of each what `sweep --json` says of a point, its categories and closed forms. The caller
 * owns it. */
json_t *systems_json(const struct systems *systems);

#endif
