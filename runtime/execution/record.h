/* record.h - the last step of an execution as a trace, in the form of the predicted one. */
#ifndef SHARDPLAN_RECORD_H
#define SHARDPLAN_RECORD_H

#include "runtime/execution/execute.h"
#include "traces/steps.h"
#include "traces/trace.h"

struct record_about {         /* what a reader of the trace must know */
    const char *device;       /* "host", "cuda" */
    uint64_t workspace_bytes; /* of each thread's matrix products, in the allocator */
    const char *attention;    /* struct device's */
    bool rehearsal;           /* peers were absent */
    bool waits;               /* kernels computed nothing */
    bool shared_gpu;          /* ranks took turns on a GPU */
    struct run_steps steps;   /* of this run, so far */
};

/* Writes the trace of this rank's last step: a span for each instruction that ran work, on the lane
 * of its stream (of a chain that ran as one, its last; the others' last no time and are named
 * "mul.Tensor, fused into 60"), and one counter track "memory recorded" with the series
 * instruction, allocated and reserved (bytes), a sample after every alloc, free and mark. A lane
 * "host issue" has when the host issued each instruction; its spans carry no id, so that each id is
 * on one lane only. The host's clock and the device's are set equal at the first of each. */
enum err_code record_write(const struct plan *plan, const struct execution *execution,
                           const struct record_about *about, uint32_t step, const char *path,
                           struct err *err);

#endif
