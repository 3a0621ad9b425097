/* adapter_notes.h - names in --lora that no layer of the model has: peft passes over them as long
 * as another one has some. */
#ifndef SHARDPLAN_REPORT_ADAPTER_NOTES_H
#define SHARDPLAN_REPORT_ADAPTER_NOTES_H

#include "job/job.h"
#include "plan/plan.h"

#include <jansson.h>
#include <stdio.h>

/* Whether there are any. */
bool adapter_notes_any(const struct job *job, const struct plan *plan);

/* "note: --lora: no linear layer is called vproj, which is passed over; did you mean v_proj?": a
 * line each. */
void adapter_notes_print(FILE *file, const struct job *job, const struct plan *plan);

/* The member "adapters_passed_over": the names; none: no member. */
void adapter_notes_set(json_t *object, const struct job *job, const struct plan *plan);

#endif
