/* idle_notes.h - what was asked for and changes nothing of this job. */
#ifndef SHARDPLAN_IDLE_NOTES_H
#define SHARDPLAN_IDLE_NOTES_H

#include "job/predict.h"
#include "settings/settings.h"

#include <jansson.h>
#include <stdio.h>

/* Whether there is any; a line for each: "--accumulate-sync does nothing with one micro-batch
 * in a step: --accumulate has more". Of settings that the command line said, not of a file's: what
 * a program has by default nobody asked for. */
bool idle_notes_any(const struct settings *settings, const struct job *job,
                    const struct plan *plan);
void idle_notes_print(FILE *file, const struct settings *settings, const struct job *job,
                      const struct plan *plan);

/* The member "no_effect" of an object, a list of these; left out where there is none. */
void idle_notes_set(json_t *object, const struct settings *settings, const struct job *job,
                    const struct plan *plan);

#endif
