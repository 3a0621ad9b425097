/* slowest.h - ranks are not alike, and every one waits for the slowest.
 *
 * A rank's arithmetic takes 1 + p + j times the mean rank's. p stays with the card: at the limit of
 * power its silicon and its cooling decide what clock is left ("rank_spread"); j changes from step
 * to step ("step_jitter"). Both are taken as normal and independent of other ranks, so in a step
 * the slowest of n takes
 *
 *     1 + sigma E max(Z1 ... Zn),     sigma² = rank_spread² + step_jitter²,
 *
 * the mean over steps and over draws of cards. What waits for memory, links or the host is taken to
 * be as fast everywhere: of V100s whose matrix products differ by 2 %, none of 172 is more than
 * 0.4 % slower than the median at work that waits for memory (tests/data/gpu/rank_spread.csv). */
#ifndef SHARDPLAN_SLOWEST_H
#define SHARDPLAN_SLOWEST_H

#include "machine/profile.h"

#include <stdint.h>

/* Expected largest of `count` standard normals; 0 for one and for none. Exact to 1e-9 for any
 * count, in about ten microseconds. */
double normal_largest(uint32_t count);

struct slowest {   /* of a job's ranks */
    double factor; /* expected time of its arithmetic over the mean rank's: >= 1 */
    double sigma;  /* standard deviation of one rank's */
    double spread; /* relative standard deviation of sigma, which is not known exactly */
    uint32_t ranks;
};

struct slowest slowest_of(const struct profile *profile, uint32_t ranks);

/* One draw of the factor: `luck` decides which ranks there are, `truth` what sigma is; both are
 * standard normal. At 0 and 0 it is the median of the slowest. */
double slowest_draw(const struct slowest *slowest, double luck, double truth);

#endif
