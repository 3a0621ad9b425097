/* version_notes.h - what a version of PyTorch other than the newest does otherwise is shown with
 * the plan that follows it. */
#ifndef SHARDPLAN_VERSION_NOTES_H
#define SHARDPLAN_VERSION_NOTES_H

#include "job/job.h"

#include <jansson.h>
#include <stdio.h>

/* Whether there is anything to print. */
bool version_notes_any(const struct job *job);

/* A line for each that the job's system can meet: "torch 2.8: one rank gathers from itself, as many
 * do (until 2.9)"; of many their number, unless `all` are wanted. Of an older DeepSpeed that its
 * behaviour is not its own. */
void version_notes_print(FILE *file, const struct job *job, bool all);

/* The member "torch" of an object: {"version", "otherwise": [{"does", "until" or "from", "source"},
 * ...]}; of an older DeepSpeed "deepspeed": {"version", "note"}. */
void version_notes_set(json_t *object, const struct job *job);

#endif
