/* verdict.h - whether a job fits, in words: what it rests on, and what it would take to be wrong.
 */
#ifndef SHARDPLAN_VERDICT_H
#define SHARDPLAN_VERDICT_H

#include "job/predict.h"
#include "report/style.h"

#include <stdio.h>

/* The host's verdict, where it has no room, and the GPU's: a line, and what the line hides. */
void verdict_print(FILE *file, const struct style *style, const struct machine *machine,
                   const struct prediction *prediction);

/* Of what fits although blocks come back late (memory/deferred.h), unless the verdict says so
 * itself: what it would be otherwise. Nothing of what frees nothing late. */
void verdict_print_late(FILE *file, const struct prediction *prediction);

#endif
