/* evaluate.h - what a configuration of a class takes: fast, and in full.
 *
 * An evaluator belongs to one thread and reuses its memory from one configuration to the next;
 * classes are lent to many at once. */
#ifndef SHARDPLAN_EVALUATE_H
#define SHARDPLAN_EVALUATE_H

#include "search/frame.h"

struct evaluator; /* opaque */

/* The machine, and classes that it is used with, are lent until evaluator_free. */
struct evaluator *evaluator_new(const struct machine *machine);
void evaluator_free(struct evaluator *evaluator); /* NULL is allowed */

/* What its thread makes frames with: lent. */
struct framer *evaluator_framer(struct evaluator *evaluator);

struct evaluation {
    double step_s; /* as step_time says, without draws and to a rounding, of a prediction that gives
                      no segments back */
    double update_s;       /* when all before the optimizer's update is done (struct estimate); 0 */
    uint64_t device_floor; /* bytes of the GPU that it takes at least */
};

/* What the strategy makes of the class's stream. ERR_INVALID: the strategy does not go with the
 * mesh or the model, or the machine's costs are not known. */
enum err_code evaluate_fast(struct evaluator *evaluator, const struct stream_class *stream_class,
                            const struct strategy *strategy, struct evaluation *out,
                            struct err *err);

/* Bytes of the GPU that it takes (prediction.device_bytes) when nothing is ever given back to the
 * driver, with the allocator in expandable segments or not; UINT64_MAX: more than `enough` (0: is
 * not asked), which is known sooner. Errors likewise. */
enum err_code evaluate_full(struct evaluator *evaluator, const struct stream_class *stream_class,
                            const struct strategy *strategy, bool expandable_segments,
                            uint64_t enough, uint64_t *device_bytes, struct err *err);

/* Of these bytes those of the compute stream's segments, and of what is outside the allocator: so
 * many, too, has each strategy that fetches earlier, under a system that fetches apart
 * (system_fetches_apart). 0: not known without the program; UINT64_MAX as evaluate_full. Errors
 * likewise. */
enum err_code evaluate_pools(struct evaluator *evaluator, const struct stream_class *stream_class,
                             const struct strategy *strategy, bool expandable_segments,
                             uint64_t enough, uint64_t *device_bytes, struct err *err);

/* Seconds of its step in each of `draws` draws of the profile's numbers within their spreads, the
 * same draws for every configuration: two of them can be compared draw by draw. */
enum err_code evaluate_draws(struct evaluator *evaluator, const struct stream_class *stream_class,
                             const struct strategy *strategy, uint32_t draws, double *steps_s,
                             struct err *err);

#endif
