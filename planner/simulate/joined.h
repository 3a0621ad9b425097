/* joined.h - a step that is simulated many times, with the times of classes scaled: kernels of the
 * compute stream that follow each other are one task, as in an outline.
 *
 *     tasks      mm | mul | add | record | wait | mm | mm | ...
 *     joined     span of 3      | record | wait | span of 2 ...
 *
 * What comes out differs from what the tasks one by one give by a rounding (sequence.h); a span
 * counts as computing, whatever bounds its kernels. */
#ifndef SHARDPLAN_JOINED_H
#define SHARDPLAN_JOINED_H

#include "cost/cost.h"
#include "simulate/simulate.h"

struct joined {
    struct simulation *simulation; /* owned */
    struct costs costs;            /* those of the plan, lent, with a sequence that is owned */
};

/* Of the plan that the costs are of, no outline; both are lent as long as what is made of them. */
struct joined joined_new(const struct simulation *simulation, const struct costs *costs);
void joined_free(struct joined *joined);

#endif
