/* settings_resolve.h - what was chosen, with what it is chosen for: a job and a machine. */
#ifndef SHARDPLAN_SETTINGS_RESOLVE_H
#define SHARDPLAN_SETTINGS_RESOLVE_H

#include "machine/machine.h"
#include "settings/settings.h"

/* The job of a model: fills in the defaults that depend on the model and the system, without
 * looking at any file. ERR_INVALID: settings that do not go together. */
enum err_code settings_job(const struct settings *settings, const struct model_config *config,
                           struct job *out, struct err *err);

/* The machine: GPU, node type and profile looked up. On ERR_OK the caller owns out->profile:
 * profile_free. */
enum err_code settings_machine(const struct settings *settings, struct machine *out,
                               struct err *err);

/* Both, with the model looked up; defaults that depend on it are written back, so that what is
 * echoed is what holds. On ERR_OK the caller owns both: settings_release. */
enum err_code settings_resolve(struct settings *settings, struct job *job, struct machine *machine,
                               struct err *err);

/* Frees what settings_resolve found: the machine's profile, and a model's recording, which copies
 * of the job share. */
void settings_release(struct job *job, struct machine *machine);

#endif
