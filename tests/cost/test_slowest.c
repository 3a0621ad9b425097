/* test_slowest.c - the slowest of many ranks: tables, Monte Carlo, and cards that others measured.
 */
#include "cost/slowest.h"

#include "tests/support/csv.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <gsl/gsl_sf_psi.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void near(double found, double expected, double tolerance)
{
    if (!(fabs(found - expected) <= tolerance))
        fail_msg("%.9g, expected %.9g within %g", found, expected, tolerance);
}

static struct profile profile_with(double card, double card_spread, double step, double step_spread)
{
    struct profile p = {.of = {[PROFILE_RANK_SPREAD] = {card, card_spread, ""},
                               [PROFILE_JITTER] = {step, step_spread, ""}}};
    return p;
}

/* What is added to the slowest of n, over sigma. */
static double largest(double card, double step, uint32_t n)
{
    const struct profile p = profile_with(card, 0, step, 0);
    return (slowest_of(&p, n).factor - 1) / hypot(card, step);
}

/* H. L. Harter, Expected values of normal order statistics, Biometrika 48 (1961), five decimals; of
 * two it is 1/sqrt(pi), of three 1.5/sqrt(pi). */
static void the_largest_of_normals_has_the_tabulated_mean(void **state)
{
    (void)state;
    static const struct {
        uint32_t n;
        double mean;
    } table[] = {{2, .56419},   {3, .84628},   {4, 1.02938},  {5, 1.16296},
                 {10, 1.53875}, {20, 1.86748}, {50, 2.24907}, {100, 2.50759}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        near(largest(0, .01, table[i].n), table[i].mean, 6e-6);
    near(largest(0, .01, 2), 1 / sqrt(acos(-1)), 1e-9);
    near(largest(0, .01, 3), 1.5 / sqrt(acos(-1)), 1e-9);
    near(largest(0, .01, 1), 0, 0);
    const struct profile alike = profile_with(0, 0, 0, 0);
    near(slowest_of(&alike, 1000).factor, 1, 0);
}

/* Two-sided exponentials of scale 1/sqrt 2: of two 3/4 of that, of three 9/8; of n the harmonic
 * number less ln 2, but for all n being below the middle, once in 2^n. */
static void the_largest_of_two_sided_exponentials_is_known(void **state)
{
    (void)state;
    near(largest(.01, 0, 2), .75 / sqrt(2), 1e-9);
    near(largest(.01, 0, 3), 1.125 / sqrt(2), 1e-9);
    for (uint64_t n = 64; n < UINT32_MAX; n *= 8)
        near(largest(.01, 0, (uint32_t)n),
             (gsl_sf_psi((double)n + 1) + .57721566490153286 - log(2)) / sqrt(2), 1e-8);
}

/* To four thousand million normal ones grow, ever slower, as sqrt(2 ln n): Cramer's asymptote
 * (Mathematical Methods of Statistics, 28.6) is within 1 % there. Any mixture lies between. */
static void the_largest_of_many_follows_the_asymptote(void **state)
{
    (void)state;
    double before = 0;
    for (int i = 0; i < 21; i++) {
        const double n = i < 20 ? 2 * pow(3, i) : UINT32_MAX;
        const double now = largest(0, .02, (uint32_t)n);
        assert_true(now > before);
        before = now;
        if (n < 1e4)
            continue;
        const double a = sqrt(2 * log(n));
        const double cramer = a - (log(log(n)) + log(4 * acos(-1)) - 2 * .5772156649) / (2 * a);
        near(now / cramer, 1, .01);
        const double mixed = largest(.02, .02, (uint32_t)n);
        assert_true(mixed > now && mixed < largest(.02, 0, (uint32_t)n));
    }
}

/* Cards that stay what they are through all steps of a job, steps that differ, many jobs. */
static void the_slowest_rank_agrees_with_simulated_jobs(void **state)
{
    (void)state;
    enum { JOBS = 1500, STEPS = 8, MOST = 512 };
    static const struct {
        double card, step;
        uint32_t ranks;
    } cases[] = {{.02, .01, 8}, {.03, 0, 64}, {0, .02, 64}, {.02, .02, MOST}};
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double sum = 0, squares = 0;
        for (int job = 0; job < JOBS; job++) {
            double card[MOST], mean = 0;
            for (uint32_t r = 0; r < cases[c].ranks; r++)
                card[r] = gsl_ran_laplace(rng, cases[c].card / sqrt(2));
            for (int step = 0; step < STEPS; step++) {
                double most = 0;
                for (uint32_t r = 0; r < cases[c].ranks; r++)
                    most = fmax(most, 1 + card[r] + gsl_ran_gaussian_ziggurat(rng, cases[c].step));
                mean += most / STEPS;
            }
            sum += mean;
            squares += mean * mean;
        }
        const double mean = sum / JOBS;
        const double error = sqrt((squares / JOBS - mean * mean) / JOBS);
        const struct profile p = profile_with(cases[c].card, 0, cases[c].step, 0);
        near(slowest_of(&p, cases[c].ranks).factor, mean, 4 * error);
    }
    gsl_rng_free(rng);
}

/* Draws of one factor have the mean that is taken, and lie as far apart as largest ones do. */
static void draws_are_of_the_slowest(void **state)
{
    (void)state;
    enum { DRAWS = 20000, RANKS = 64 };
    const struct profile p = profile_with(.02, .4, .01, .5);
    const struct slowest s = slowest_of(&p, RANKS);
    near(s.sigma, sqrt(5e-4), 1e-12);
    near(s.spread, hypot(4e-4 * .4, 1e-4 * .5) / 5e-4, 1e-12);
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    double *drawn = malloc(DRAWS * sizeof *drawn), *slowest = malloc(DRAWS * sizeof *slowest);
    assert_true(drawn && slowest);
    for (int i = 0; i < DRAWS; i++) {
        drawn[i] = slowest_draw(&s, gsl_ran_ugaussian(rng), 0);
        slowest[i] = 0;
        for (int r = 0; r < RANKS; r++)
            slowest[i] = fmax(slowest[i], 1 + gsl_ran_laplace(rng, .02 / sqrt(2)) +
                                              gsl_ran_gaussian_ziggurat(rng, .01));
    }
    near(gsl_stats_mean(drawn, 1, DRAWS), s.factor, 4 * .02 / sqrt(DRAWS));
    gsl_sort(drawn, 1, DRAWS);
    gsl_sort(slowest, 1, DRAWS);
    for (int q = 5; q <= 95; q += 15)
        near(gsl_stats_quantile_from_sorted_data(drawn, 1, DRAWS, q / 100.0),
             gsl_stats_quantile_from_sorted_data(slowest, 1, DRAWS, q / 100.0), .0015);
    assert_true(slowest_draw(&s, 0, 1) > slowest_draw(&s, 0, 0)); /* of a larger sigma */
    const struct slowest alone = slowest_of(&p, 1);
    near(alone.factor, 1, 0);
    near(slowest_draw(&alone, 3, 3), 1, 0);
    free(drawn);
    free(slowest);
    gsl_rng_free(rng);
}

/* ---- cards ---- */

/* Seconds over their median, ascending, of the cards that did a work; those more than a tenth
 * slower are left out: they are broken (of 219 A100s, six at half speed). Returns how many. */
static size_t cards_of(const struct csv *csv, const char *work, const char *cluster, double *out)
{
    size_t count = 0, kept = 0;
    for (size_t i = 0; i < csv->rows; i++)
        if (strcmp(csv_text(csv, i, "work"), work) == 0 &&
            strcmp(csv_text(csv, i, "cluster"), cluster) == 0)
            out[count++] = csv_number(csv, i, "seconds");
    gsl_sort(out, 1, count);
    const double median = gsl_stats_median_from_sorted_data(out, 1, count);
    for (size_t i = 0; i < count; i++)
        if (out[i] / median < 1.1)
            out[kept++] = out[i] / median;
    return kept;
}

/* Expected slowest of `ranks` different cards over the mean of all: card i of n in order is the
 * slowest with probability C(i - 1, ranks - 1) / C(n, ranks). */
static double slowest_card(const double *cards, size_t count, uint32_t ranks)
{
    double sum = 0;
    for (size_t i = ranks; i <= count; i++) {
        const double log_chance = lgamma((double)i) - lgamma((double)i - ranks + 1) -
                                  lgamma(ranks) - lgamma((double)count + 1) +
                                  lgamma((double)count - ranks + 1) + lgamma(ranks + 1.0);
        sum += cards[i - 1] * exp(log_chance);
    }
    return sum / gsl_stats_mean(cards, 1, count);
}

/* A deviation of all cards of a kind says when the slowest of some of them is there; and what the
 * profile says of cards lies between trainings that are nearer to the limit of power and further
 * away. */
static void cards_are_as_late_as_they_were_measured(void **state)
{
    (void)state;
    static const uint32_t ranks[] = {8, 16, 32, 64, 128};
    struct csv csv = csv_read("tests/data/gpu/rank_spread.csv");
    struct err err = {0};
    struct profile h100;
    double sgemm[600], bert[600], resnet[600], pagerank[600];
    const size_t sgemms = cards_of(&csv, "sgemm", "Longhorn", sgemm);
    const size_t berts = cards_of(&csv, "bert training", "Longhorn", bert);
    const size_t resnets = cards_of(&csv, "resnet training", "Lonestar6", resnet);
    const size_t pageranks = cards_of(&csv, "pagerank", "Longhorn", pagerank);
    assert_true(sgemms == 391 && berts == 136 && resnets == 213 && pageranks == 172);
    assert_int_equal(profile_find("h100-sxm", &h100, &err), ERR_OK);
    const double of_profile = profile_value(&h100, PROFILE_RANK_SPREAD);
    const double of_sgemm = gsl_stats_sd(sgemm, 1, sgemms);
    const double of_resnet = gsl_stats_sd(resnet, 1, resnets);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const uint32_t n = ranks[i];
        near(of_sgemm * largest(of_sgemm, 0, n) / (slowest_card(sgemm, sgemms, n) - 1), 1, .07);
        near(of_resnet * largest(of_resnet, 0, n) / (slowest_card(resnet, resnets, n) - 1), 1, .15);
        const double predicted = of_profile * largest(of_profile, 0, n);
        assert_true(predicted > slowest_card(bert, berts, n) - 1);
        assert_true(predicted < slowest_card(resnet, resnets, n) - 1);
    }
    assert_true(pagerank[pageranks - 1] < 1.005); /* what waits for memory */
    profile_free(&h100);
    csv_free(&csv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_of_normals_has_the_tabulated_mean),
        cmocka_unit_test(the_largest_of_two_sided_exponentials_is_known),
        cmocka_unit_test(the_largest_of_many_follows_the_asymptote),
        cmocka_unit_test(the_slowest_rank_agrees_with_simulated_jobs),
        cmocka_unit_test(draws_are_of_the_slowest),
        cmocka_unit_test(cards_are_as_late_as_they_were_measured),
    };
    return cmocka_run_group_tests_name("slowest", tests, NULL, NULL);
}
