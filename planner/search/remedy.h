/* remedy.h - when a job does not fit: the cheapest changes that make it fit. */
#ifndef SHARDPLAN_REMEDY_H
#define SHARDPLAN_REMEDY_H

#include "job/predict.h"

enum { REMEDIES = 3 };

struct remedy {
    char change[96];       /* as options: "--checkpointing full" */
    char cost[96];         /* what it costs, in words */
    uint64_t device_bytes; /* new peak */
};

/* Tries single changes in order of what they cost a run (first those that cost no time, then
 * recomputation, then smaller micro-batches, then more GPUs, then offload), then pairs. Writes up
 * to REMEDIES that fit, cheapest first, and returns their number. */
uint32_t remedies_find(const struct job *job, const struct machine *machine,
                       struct remedy found[REMEDIES]);

#endif
