/* ranks.h - the step of a job whose ranks differ: the slowest one's, and beside it the mean one's.
 */
#ifndef SHARDPLAN_RANKS_H
#define SHARDPLAN_RANKS_H

#include "simulate/simulate.h"

/* Multiplies times of arithmetic by what a slower rank takes longer. */
void ranks_slow_down(double scale[COST_CLASSES], double factor);

/* The timeline of the slowest rank: the job's step. The caller owns it. */
struct timeline ranks_slowest(const struct simulation *simulation, const struct costs *costs);

/* With it, that of the mean one, beside the slowest if that has got `delay_s` further behind before
 * the last micro-batch, in *mean (timeline_new's). The periods of both in seconds, if they have
 * come to one, go to period_s: true.
 *
 * The mean rank meets its collectives at other moments, and where its own kernels on their stream
 * (FSDP1's divisions) share the memory with other ones than the slowest's do, it may end some
 * microseconds later than that. Nobody waits for the slowest then, whose timeline it is. */
bool ranks_mean(const struct simulation *simulation, const struct costs *costs, double delay_s,
                struct timeline *mean, double period_s[2]);

#endif
