/* options.h - what shardrun is told; `shardplan run` passes these options on. */
#ifndef SHARDPLAN_RUN_OPTIONS_H
#define SHARDPLAN_RUN_OPTIONS_H

#include "runtime/execution/data.h"

#include <stdbool.h>
#include <stdint.h>

struct run_options {
    const char *plan;
    const char *out_dir; /* NULL: no traces */
    const char *data;    /* NULL: the reference generator */
    enum data_kind data_kind;
    uint32_t steps;
    uint64_t memory_bytes; /* 0: the device's default */
    double timeout_s;
    float lr, beta1, beta2, eps, weight_decay;
    const char *load, *save, *load_full, *save_full;
    bool json, quiet, param_norms;
    bool cuda; /* --device cuda */
    bool share_gpu, register_buffers,
        deterministic;                      /* of the cuda backend; see runtime/cuda/backend.h */
    uint32_t rehearse_rank, rehearse_world; /* world 0: no rehearsal */
    const char *predicted; /* trace whose collectives a rehearsal waits for; NULL: the
                              trace.json beside the plan, if it has times */
};

/* Parses; prints help and exits with 0, or with 2 after a message on bad usage. */
void run_options_parse(int argc, char **argv, struct run_options *out);

#endif
