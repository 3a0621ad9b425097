/* slowest.c - see slowest.h. Deviations are in units of sigma here. */
#include "cost/slowest.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_integration.h>
#include <math.h>

/* Below this share of sigma, cards do not show beside steps, or steps beside cards. */
#define NO_CARDS 0.1
#define NO_STEPS 1e-6

/* The chance that one rank is further out than z >= 0: of a sum of a Laplace and a normal variable
 * (W. J. Reed, The normal-Laplace distribution and its relatives, 2006, equation 1), symmetric. */
static double beyond(double z, double card)
{
    const double step = sqrt(fmax(0, 1 - card * card)), rate = M_SQRT2 / card;
    if (card < NO_CARDS)
        return gsl_cdf_ugaussian_Q(z);
    if (step < NO_STEPS)
        return exp(-rate * z) / 2;
    const double x = z / step, shift = rate * step, grown = shift * shift / 2;
    return gsl_cdf_ugaussian_Q(x) + (exp(grown - rate * z) * gsl_cdf_ugaussian_Q(shift - x) -
                                     exp(grown + rate * z) * gsl_cdf_ugaussian_Q(shift + x)) /
                                        2;
}

/* ln of the chance that all of n ranks lie below z. */
static double log_all_below(double z, double card, double n)
{
    return n * (z >= 0 ? log1p(-beyond(z, card)) : log(beyond(-z, card)));
}

/* Where one rank lies with the chance `above` of being further out, which is at most a half. */
static double quantile(double above, double card)
{
    double low = 0, high = 1;
    while (beyond(high, card) > above)
        high *= 2;
    for (int i = 0; i < 60; i++) { /* to the last bit */
        const double middle = (low + high) / 2;
        *(beyond(middle, card) > above ? &low : &high) = middle;
    }
    return (low + high) / 2;
}

/* By Gauss and Legendre: the integral of F^n, or of 1 - F^n, between two places on one side of 0.
 */
static double integral(double low, double high, double card, double n, bool of_rest)
{
    enum { POINTS = 16 };
    gsl_integration_glfixed_table *table = gsl_integration_glfixed_table_alloc(POINTS);
    double sum = 0;
    for (size_t i = 0; i < POINTS; i++) {
        double z, weight;
        gsl_integration_glfixed_point(low, high, i, &z, &weight, table);
        const double log_below = log_all_below(z, card, n);
        sum += weight * (of_rest ? -expm1(log_below) : exp(log_below));
    }
    gsl_integration_glfixed_table_free(table);
    return sum;
}

/* The expected largest of n:
 *
 *     E = m + integral from m on of (1 - F^n) - integral up to m of F^n,
 *
 * m being where one in n lies higher. Above, the integrand falls as an exponential, below it as the
 * exponential of one; at 0, where the two-sided exponential has a bend, it may have one, too. */
static double largest(double card, double n)
{
    static const double above[] = {0, 2, 6, 14, 30}, below[] = {0, 1, 3, 6, 12};
    const double middle = quantile(fmin(0.5, 1 / n), card);
    double sum = middle;
    for (int i = 0; i < 4; i++)
        sum += integral(middle + above[i], middle + above[i + 1], card, n, true);
    for (int i = 0; i < 4; i++) {
        const double high = middle - below[i], low = middle - below[i + 1];
        if (log_all_below(high, card, n) < -45)
            break;
        const double bend = fmin(fmax(low, 0), high);
        sum -= high > bend ? integral(bend, high, card, n, false) : 0;
        sum -= bend > low ? integral(low, bend, card, n, false) : 0;
    }
    return sum;
}

struct slowest slowest_of(const struct profile *profile, uint32_t ranks)
{
    const struct quantity *card = &profile->of[PROFILE_RANK_SPREAD];
    const struct quantity *step = &profile->of[PROFILE_JITTER];
    struct slowest s = {.factor = 1, .sigma = hypot(card->value, step->value), .ranks = ranks};
    if (s.sigma <= 0)
        return s;
    s.card = card->value / s.sigma;
    s.spread =
        hypot(card->value * card->value * card->spread, step->value * step->value * step->spread) /
        (s.sigma * s.sigma);
    if (ranks > 1)
        s.factor += s.sigma * largest(s.card, ranks);
    return s;
}

double slowest_draw(const struct slowest *s, double luck, double truth)
{
    if (s->ranks < 2 || s->sigma <= 0)
        return 1;
    /* All of n ranks lie below z with the chance that `luck` stands for. */
    const double above = -expm1(log1p(-gsl_cdf_ugaussian_Q(luck)) / s->ranks);
    const double z = above <= 0.5 ? quantile(above, s->card) : -quantile(1 - above, s->card);
    return fmax(1, 1 + s->sigma * exp(s->spread * truth) * z);
}
