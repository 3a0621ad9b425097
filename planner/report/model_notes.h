/* model_notes.h - what a config.json says and the plan does not follow is shown with the plan. */
#ifndef SHARDPLAN_MODEL_NOTES_H
#define SHARDPLAN_MODEL_NOTES_H

#include "job/job.h"

#include <jansson.h>
#include <stdio.h>

/* A line for each note: "prefix note: ...". */
void model_notes_print(FILE *file, const char *prefix, const struct job *job);

/* The member "notes" of an object, a list of sentences; left out where there is none. */
void model_notes_set(json_t *object, const struct job *job);

#endif
