/* evaluate.h - what a configuration of a class takes: fast, and in full.
 *
 * Both lend the class, which many threads may do at once; an evaluator belongs to one of them, and
 * reuses its memory from one configuration to the next. */
#ifndef SHARDPLAN_EVALUATE_H
#define SHARDPLAN_EVALUATE_H

#include "search/frame.h"

struct evaluator; /* opaque */

struct evaluator *evaluator_new(void);
void evaluator_free(struct evaluator *evaluator); /* NULL is allowed */

struct evaluation {
    double step_s; /* to the bit what step_time says, without draws, of a prediction that gives no
                      segments back */
    uint64_t device_floor; /* bytes of the GPU that it takes at least: plan_device_floor */
};

/* What the strategy makes of the class's stream on the machine. ERR_INVALID: the strategy does not
 * go with the mesh or the model, or the machine's costs are not known. */
enum err_code evaluate_fast(struct evaluator *evaluator, const struct stream_class *stream_class,
                            const struct strategy *strategy, const struct machine *machine,
                            struct evaluation *out, struct err *err);

/* Bytes of the GPU that it takes (prediction.device_bytes) when nothing is ever given back to the
 * driver. Errors likewise. */
enum err_code evaluate_full(struct evaluator *evaluator, const struct stream_class *stream_class,
                            const struct strategy *strategy, const struct machine *machine,
                            uint64_t *device_bytes, struct err *err);

/* Seconds of its step in each of `draws` draws of the profile's
 * numbers within their spreads, the same draws for every configuration: two of them can be compared
 * draw by draw. */
enum err_code evaluate_draws(struct evaluator *evaluator, const struct stream_class *stream_class,
                             const struct strategy *strategy, const struct machine *machine,
                             uint32_t draws, double *steps_s, struct err *err);

#endif
