/* title.h - what pictures and pages are called: the model by its name, and the job in a line. */
#ifndef SHARDPLAN_TITLE_H
#define SHARDPLAN_TITLE_H

#include "job/job.h"
#include "machine/machine.h"

enum { TITLE_NAME = 64, TITLE_LINE = 256 };

/* The name of a model that settings name: a preset's own, of a path its last part, of a config.json
 * its folder's. Cut where `text` is full; writes to and returns it. */
const char *title_model(const char *model, char text[TITLE_NAME]);

/* "llama-3.1-8b on 8 x NVIDIA H100 SXM 80 GB, fsdp2". Likewise. */
const char *title_job(const char *model, const struct job *job, const struct machine *machine,
                      char text[TITLE_LINE]);

/* What of a step a plan has all instructions of: "a step", "5 of 4096 micro-batches of a step"
 * where it repeats (plan/repeat.h). Likewise. */
const char *title_step(const struct plan *plan, char text[TITLE_NAME]);

#endif
