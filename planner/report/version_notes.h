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
 * do (until 2.9)"; of many their number, unless `all` are wanted. What is planned of a version
 * that it was not recorded under, by job/recorded_under.h. Of an older DeepSpeed that its behaviour
 * is not its own. */
void version_notes_print(FILE *file, const struct job *job, bool all);

/* The same of --start-up: no line where it was recorded under the job's version. */
void version_notes_print_start_up(FILE *file, const struct job *job);

/* {"what", "planned_as", "source"} of it, which the caller owns; NULL. */
json_t *version_notes_start_up(const struct job *job);

/* The member "torch" of an object: {"version", "otherwise": [{"does", "until" or "from", "source"},
 * ...], "not_recorded": [{"what", "planned_as", "source"}, ...]}; of an older DeepSpeed
 * "deepspeed": {"version", "note"}. */
void version_notes_set(json_t *object, const struct job *job);

#endif
