/* estimate.h - a job's step time and least memory without its program: tens of microseconds for one
 * more strategy of the same model and batch, for a search to try all there are.
 *
 *     graph, stream --> struct estimator --strategy--> struct estimate
 *
 * Step and requested bytes are those of predict and step_time (time to a rounding); what the
 * allocator makes of the bytes is not asked, only what it needs at the least. */
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

struct estimate {
    double step_s;            /* of the job: of its slowest rank */
    uint64_t requested_bytes; /* peak of a steady-state step */
    uint64_t outside_bytes;   /* context and communicators */
    uint64_t least_bytes;     /* of the device: no prediction's device_bytes is below */
};

/* Errors are those of lower_plan and costs_of_plan. */
enum err_code estimate(struct estimator *estimator, const struct strategy *strategy,
                       struct estimate *out, struct err *err);

#endif
