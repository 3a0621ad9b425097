/* calibrate_nccl.h - shardplan calibrate --from-nccl-tests: measured collectives into a profile. */
#ifndef SHARDPLAN_CALIBRATE_NCCL_H
#define SHARDPLAN_CALIBRATE_NCCL_H

#include "calibrate/from_nccl_tests.h"

#include "settings/settings.h"

/* Reads, writes the profile to settings->output and prints the fits. Returns the exit status. */
int calibrate_from_nccl(const struct nccl_source *source, const struct settings *settings);

/* Writes a JSON object as a profile file; whole, or not at all. */
enum err_code calibrate_write(const json_t *profile, const char *output, struct err *err);

#endif
