/* options.h - every option, once: the table makes the parser, defaults, limits, --help and the
 * settings echoed in results. */
#ifndef SHARDPLAN_OPTIONS_H
#define SHARDPLAN_OPTIONS_H

#include "base/err.h"
#include "job/predict.h"

#include <jansson.h>

struct settings { /* as given; numbers 0 and texts NULL where a default depends on the model */
    const char *model;
    uint32_t code, init;
    uint32_t gpus, rank, seq, micro_batch, accumulate, accumulate_sync;
    const char *gpu, *node, *profile;
    uint32_t gpus_per_node, expandable;
    uint32_t strategy, replicate;
    const char *units, *reshard;
    uint32_t forward_prefetch, backward_prefetch;
    uint32_t param_dtype, reduce_dtype, store_dtype;
    uint32_t checkpointing, optimizer, optimizer_impl;
    const char *clip;
    uint32_t offload;
    const char *frozen;
    const char *events, *out_dir; /* of fit and plan */
    bool goodput, json, quiet;
};

enum command_mask { FOR_FIT = 1, FOR_PLAN = 2, FOR_JOB = 3 };

/* Parses the arguments of `fit` or `plan` (argv[0] is the command's name). Prints help and exits
 * with 0 on --help, with 2 after a message on bad usage. */
void options_parse(enum command_mask command, int argc, char **argv, struct settings *out);

/* Settings -> job and placement: looks the model and the GPU up, fills in defaults that depend on
 * them (and writes them back to `settings`), checks what goes together. On ERR_OK the caller owns
 * placement->profile: profile_free. */
enum err_code options_resolve(struct settings *settings, struct job *job,
                              struct placement *placement, struct err *err);

/* Every option, resolved, under its own name with '-' as '_'. The caller owns the object. */
json_t *options_echo(const struct settings *settings);

#endif
