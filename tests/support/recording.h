/* recording.h - for the tests of compare: recorded traces made up from a plan, true ones and ones
 * with one thing wrong. */
#ifndef SHARDPLAN_RECORDING_H
#define SHARDPLAN_RECORDING_H

#include "memory/replay.h"
#include "traces/trace.h"

enum { NOTHING = -1 };

struct fault { /* what is wrong with a recording; NOTHING (or NULL) where nothing is */
    int64_t corrupt, skip_sample, skip_span; /* which sample, which span, counted from 0 */
    int64_t stray;                           /* id of a span that is added */
    const char *op;                          /* of all spans */
    const char *step, *clock, *process;
};

extern const struct fault no_fault;

struct recorder {
    const struct fault *fault;
    struct trace *trace;
    uint32_t track, samples;
};

/* A recording without events and samples: a lane for each stream, and the track of memory. */
struct recorder start_recording(const struct plan *plan, const struct fault *fault,
                                uint32_t lanes[LANES_MOST]);
void add_span(struct recorder *r, const struct plan *plan, const uint32_t *lanes, uint32_t id,
              double begin_s, double end_s);

/* Step 1 with memory from the replay; kernel after kernel, a microsecond each. The caller owns the
 * trace. */
struct trace *record(const struct plan *plan, const struct fault *fault);

/* Step `step` with memory from a walk of its own. Likewise. */
struct trace *record_step(const struct plan *plan, int step);

#endif
