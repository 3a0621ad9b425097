/* changed.h - what the same job would take with another setting: for notes beside a verdict. */
#ifndef SHARDPLAN_CHANGED_H
#define SHARDPLAN_CHANGED_H

#include "job/predict.h"
#include "settings/settings.h"

/* Bytes of a device of the model's job as `changed` has it, and whether it fits there only by
 * giving cached segments back. 0: it cannot be, and *refusal says why. */
uint64_t changed_device_bytes(const struct settings *changed, const struct model_config *config,
                              const struct machine *machine, bool *after_release,
                              struct err *refusal);

#endif
