/* remedy.h - when a job does not fit: the cheapest changes that make it fit. */
#ifndef SHARDPLAN_REMEDY_H
#define SHARDPLAN_REMEDY_H

#include "job/predict.h"
#include "settings/settings.h"

enum { REMEDIES = 3 };

struct remedy {
    char change[160];      /* as options: "--checkpointing full" */
    char cost[96];         /* what it costs, in words */
    uint64_t device_bytes; /* new peak */
};

/* Tries single changes of the settings in order of what they cost a run (first those that cost no
 * time, then recomputation, then smaller micro-batches, then more GPUs, then offload), then pairs
 * of those that are not enough alone. Writes up to REMEDIES that fit, cheapest first, and returns
 * their number. `config` is the model's. */
uint32_t remedies_find(const struct settings *settings, const struct model_config *config,
                       const struct machine *machine, struct remedy found[REMEDIES]);

#endif
