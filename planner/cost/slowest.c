/* slowest.c - see slowest.h. */
#include "cost/slowest.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_randist.h>
#include <math.h>

/* The integral of z n phi(z) Phi(z)^(n-1), from above the largest that comes down to where no n lie
 * below. On the whole line the trapezoidal rule is exact to rounding for what is smooth and
 * vanishes at both ends, once the step is well below the width of its peak, which shrinks as
 * 1 / sqrt(2 ln n): 0.15 for the most ranks there are. */
double normal_largest(uint32_t count)
{
    enum { STEPS_A_UNIT = 16, LEAST = -8 };
    const double n = count;
    if (count < 2)
        return 0;
    double sum = 0;
    const int most = (int)fmax(8, ceil(gsl_cdf_ugaussian_Qinv(1 / n)) + 4);
    for (int i = most * STEPS_A_UNIT; i >= LEAST * STEPS_A_UNIT; i--) {
        const double z = (double)i / STEPS_A_UNIT;
        const double log_below = (n - 1) * log1p(-gsl_cdf_ugaussian_Q(z));
        if (log_below < -45)
            break;
        sum += z * gsl_ran_ugaussian_pdf(z) * exp(log_below);
    }
    return n * sum / STEPS_A_UNIT;
}

struct slowest slowest_of(const struct profile *profile, uint32_t ranks)
{
    const struct quantity *card = &profile->of[PROFILE_RANK_SPREAD];
    const struct quantity *step = &profile->of[PROFILE_JITTER];
    struct slowest s = {.sigma = hypot(card->value, step->value), .ranks = ranks};
    s.factor = 1 + s.sigma * normal_largest(ranks);
    if (s.sigma > 0)
        s.spread = hypot(card->value * card->value * card->spread,
                         step->value * step->value * step->spread) /
                   (s.sigma * s.sigma);
    return s;
}

double slowest_draw(const struct slowest *s, double luck, double truth)
{
    if (s->ranks < 2)
        return 1;
    /* The largest of n lies below z with probability Phi(z)^n. */
    const double above = -expm1(log1p(-gsl_cdf_ugaussian_Q(luck)) / s->ranks);
    const double z = gsl_cdf_ugaussian_Qinv(above);
    return fmax(1, 1 + s->sigma * exp(s->spread * truth) * z);
}
