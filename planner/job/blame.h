/* blame.h - which kernels the seconds of a step are spent on.
 *
 *     compute          |== mm ==|          |== mm ==|
 *     all_gather    |=====|   |==|.......|                    .: waits for slower ranks
 *                   ^  ^       ^  ^       ^
 *           network, mm's,  network, ranks (both the gather's), mm's */
#ifndef SHARDPLAN_BLAME_H
#define SHARDPLAN_BLAME_H

#include "job/step_time.h"

struct blame {
    uint32_t task; /* of the simulation; UINT32_MAX: of none, at the step's end */
    enum spent spent;
    double seconds;
};

/* Splits the step of a plan, which was timed, moment by moment: to the kernel that the compute
 * stream runs; else to the collective that runs and ends last, or waits; else to what copies; else
 * to what the host issues next. Their seconds add up to the timeline's spent_s, kind by kind. The
 * caller owns the array: free. */
struct blame *blame_step(const struct plan *plan, const struct step_time *time, uint32_t *count);

#endif
