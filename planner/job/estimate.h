/* estimate.h - a job's step time and least memory without its program: tens of microseconds for one
 * more strategy of the same model and batch, for a search to try all there are.
 *
 *     graph, stream --> struct estimator --strategy--> struct estimate
 *
 * Step, requested and reserved bytes are those of predict and step_time (time to a rounding). */
#ifndef SHARDPLAN_ESTIMATE_H
#define SHARDPLAN_ESTIMATE_H

#include "graph/stream.h"
#include "lower/lower.h"
#include "machine/machine.h"

struct estimator; /* of one stream on one machine, for one thread: opaque */

/* All are lent until estimator_free. The graph's attention is the machine's (attention_of). */
struct estimator *estimator_new(const struct graph *graph, const struct stream *stream,
                                const struct machine *machine);
void estimator_free(struct estimator *estimator); /* NULL is allowed */

enum { /* what is wanted of an estimate */
       ESTIMATE_TIME = 1,
       ESTIMATE_DEVICE = 2,
};

struct estimate_options {
    unsigned wanted;
    bool expandable_segments; /* the allocator's, for ESTIMATE_DEVICE */
    uint64_t enough;    /* device bytes beyond which it does not matter how many more; 0: it does */
    bool compute_alone; /* of ESTIMATE_DEVICE the compute stream's pools alone, and what is outside
                           the allocator; 0 bytes where the program itself would be needed */
};

struct estimate {
    uint64_t requested_bytes; /* peak of a steady-state step */
    uint64_t outside_bytes;   /* context and communicators */
    uint64_t least_bytes;     /* of the device: no prediction's device_bytes is below */
    double update_s; /* likewise: when the compute stream is done with all that comes before the
                        optimizer's update; 0: nobody knows whether all of it is done sooner or
                        later under another update */
    double step_s;   /* ESTIMATE_TIME: of the job, so of its slowest rank */
    uint64_t device_bytes; /* ESTIMATE_DEVICE: prediction.device_bytes of what fits while nothing is
                              given back, of the rest unconstrained_bytes; UINT64_MAX: more than
                              enough, or than any device has */
    uint32_t timed_batches; /* ESTIMATE_TIME: micro-batches that were simulated for it */
    bool replayed; /* for that the program itself was needed: blocks come back later than their
                      frees */
};

/* Step and bytes, without ESTIMATE_DEVICE. Errors are those of lower_plan and costs_of_plan. */
enum err_code estimate(struct estimator *estimator, const struct strategy *strategy,
                       struct estimate *out, struct err *err);
/* What is wanted. */
enum err_code estimate_with(struct estimator *estimator, const struct strategy *strategy,
                            const struct estimate_options *options, struct estimate *out,
                            struct err *err);

#endif
