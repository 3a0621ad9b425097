/* slowest.h - ranks are not alike, and every one waits for the slowest.
 *
 * A rank's arithmetic takes 1 + p + j times the mean rank's. p stays with the card: at the limit of
 * power its silicon and its cooling decide what clock is left ("rank_spread"); j changes from step
 * to step ("step_jitter"). Both are independent of other ranks, with standard deviations as the
 * profile has them. j is normal. p is two-sided exponential (Laplace): of measured cards more lie
 * far out than normal ones would, and the slowest of 64 of them is as late as that says, where
 * normal ones would be a fifth less (tests/cost/test_slowest.c). In a step the slowest of n takes
 *
 *     1 + E max(p1 + j1, ..., pn + jn)
 *
 * times the mean rank's, the mean over steps and over draws of cards. What waits for memory, links
 * or the host is taken to be as fast everywhere: of V100s whose matrix products differ by 2 %, none
 * of 172 is more than 0.4 % slower than the median at work that waits for memory
 * (tests/data/gpu/rank_spread.csv). */
#ifndef SHARDPLAN_SLOWEST_H
#define SHARDPLAN_SLOWEST_H

#include "machine/profile.h"

#include <stdint.h>

struct slowest {   /* of a job's ranks */
    double factor; /* expected time of its arithmetic over the mean rank's: >= 1 */
    double sigma;  /* standard deviation of one rank's: of p + j */
    double card;   /* standard deviation of p, over sigma: 0 ... 1 */
    double spread; /* relative standard deviation of sigma, which is not known exactly */
    uint32_t ranks;
};

/* Exact to 1e-8 of sigma for any number of ranks, in about 20 microseconds. */
struct slowest slowest_of(const struct profile *profile, uint32_t ranks);

/* One draw of the factor: `luck` decides which ranks there are, `truth` what sigma is; both are
 * standard normal. At 0 and 0 it is the median of the slowest. */
double slowest_draw(const struct slowest *slowest, double luck, double truth);

#endif
