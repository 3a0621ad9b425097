/* exposure.h - which collectives the exposed communication of a step is of.
 *
 *     compute             |====|    |====|
 *     all_gather      |=====|
 *     reduce_scatter         |========|     ->  all_gather 4, reduce_scatter 4
 *
 * Each exposed moment goes to the collective that runs then and ends last. */
#ifndef SHARDPLAN_EXPOSURE_H
#define SHARDPLAN_EXPOSURE_H

#include "compare/compare.h"

struct exposure {         /* of one collective of one unit, or of none */
    uint8_t op;           /* enum plan_op */
    uint8_t phase;        /* enum plan_phase */
    uint32_t unit, count; /* PLAN_NO_UNIT: the model's own code; instructions */
    double seconds;
};

/* Splits `time`'s exposed intervals (of `spans`, by instruction) among the plan's collectives,
 * summed by operation, phase and unit; most seconds first. Writes the first `most` and returns how
 * many there are in all. Their seconds add up to time->exposed_s, and of a plan with repeats
 * (plan/repeat.h) to that of the whole step. */
uint32_t exposure_of(const struct plan *plan, const struct compare_interval *spans,
                     const struct compare_time *time, struct exposure *out, uint32_t most);

#endif
