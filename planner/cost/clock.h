/* clock.h - for the cost of kernels: the clock that a power limit leaves.
 *
 *     draw = idle + matrix · u · (f / boost)³      u: share of the peak that the kernel reaches
 *
 * Dynamic power is C V² f, and near the top of the range the voltage rises with the frequency. A
 * card lowers its clock until it draws no more than its limit, so a kernel that keeps the matrix
 * units busy gets a lower one than a kernel that waits for memory, and the better it is, the lower.
 * Over a short burst the limit does not bind: clocks stay at boost.
 *
 * What a kernel that runs again and again then takes, seconds^(2/3) · FLOP^(1/3) times a constant,
 * grows with both: more arithmetic is never faster. In a step, kernels follow each other within
 * milliseconds, which is faster than a card changes its clock: it is the mean power of them all
 * that must stay below the limit. With c the share of the boost clock, energy falls as the voltage
 * squared and what is arithmetic takes longer:
 *
 *     idle · T + stream · others + matrix · (seconds at the peak) · c² = limit · T,
 *     T = others + arithmetic / c
 *
 * so a step that waits for memory part of its time has a higher clock for its products. */
#ifndef SHARDPLAN_CLOCK_H
#define SHARDPLAN_CLOCK_H

#include "cost/cost.h"

/* Boost clock over the clock that the profile's peaks hold at; 1 where it does not say. */
double clock_boost(const struct profile *profile);

/* Share of the boost clock that is left to a kernel of `flops` operations that takes `seconds` at
 * boost, on units whose peak (at the profile's clock) is `peak` FLOP/s; each operation draws `draw`
 * times what one of a product does (older instructions: more). 1 in a burst and where the profile
 * has no limit. */
double clock_share(const struct profile *profile, double peak, double flops, double seconds,
                   double draw);

/* The share at which a load's mean power is the limit: 1 in a burst and where there is no limit. */
double clock_under(const struct profile *profile, const struct load *load);

/* The relative standard deviation of a time at that clock, which is `spread` at boost: an error of
 * the power becomes a third of it. */
double clock_spread(const struct profile *profile, double spread);

#endif
