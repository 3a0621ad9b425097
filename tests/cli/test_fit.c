/* test_fit.c - fits and curves against data made from known numbers, and fits published elsewhere.
 */
#include "stats/fit.h"

#include "tests/support/published.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MANY 64

static void within(double found, double expected, double relative)
{
    if (!(fabs(found / expected - 1) <= relative))
        fail_msg("%.6g, expected %.6g within %g %%", found, expected, 100 * relative);
}

static void a_line_with_outliers_is_found(void **state)
{
    (void)state;
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    for (unsigned long seed = 1; seed <= 20; seed++) {
        gsl_rng_set(rng, seed);
        double bytes[MANY], seconds[MANY];
        for (int i = 0; i < MANY; i++) {
            bytes[i] = 4096 * exp2(i / 4.0);
            seconds[i] = (30e-6 + bytes[i] / 200e9) * exp(gsl_ran_gaussian(rng, .02));
            if (i % 9 == 4) /* one in nine: another job on the machine */
                seconds[i] *= 3;
        }
        struct alpha_beta_fit fit;
        assert_int_equal(fit_alpha_beta(bytes, seconds, MANY, &fit, NULL), ERR_OK);
        assert_int_equal(fit.pieces, 1);
        within(fit.piece[0].alpha_s, 30e-6, .02);
        within(fit.piece[0].s_per_byte, 1 / 200e9, .02);
        assert_in_range((int)(1000 * fit.sigma), 12, 40); /* 2 % scatter, not the outliers' 200 % */
        assert_true(fit.r_squared > .7 && fit.r_squared < 1); /* outliers count in it */
    }
    gsl_rng_free(rng);
}

/* The form of real sweeps: a protocol for small, one for middle and one for large messages. */
static double three_pieces(double bytes)
{
    return bytes < 1 << 20    ? 15e-6 + bytes / 60e9
           : bytes < 64 << 20 ? 60e-6 + bytes / 150e9
                              : 300e-6 + bytes / 270e9;
}

static void three_pieces_and_their_breaks_are_found(void **state)
{
    (void)state;
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(rng, 4);
    double bytes[MANY], seconds[MANY];
    for (int i = 0; i < MANY; i++) {
        bytes[i] = 8192 * exp2(i / 3.0);
        seconds[i] = three_pieces(bytes[i]) * exp(gsl_ran_gaussian(rng, .01));
    }
    seconds[10] *= 5;
    seconds[50] *= 2;
    struct alpha_beta_fit fit;
    assert_int_equal(fit_alpha_beta(bytes, seconds, MANY, &fit, NULL), ERR_OK);
    assert_int_equal(fit.pieces, 3);
    within(fit.piece[0].alpha_s, 15e-6, .05);
    within(fit.piece[1].s_per_byte, 1 / 150e9, .1);
    within(fit.piece[2].s_per_byte, 1 / 270e9, .03);
    within(fit.piece[1].from_bytes, 1 << 20, .5);
    within(fit.piece[2].from_bytes, 64 << 20, .6);
    for (int i = 0; i < MANY; i++)
        within(fit_alpha_beta_seconds(&fit, bytes[i]), three_pieces(bytes[i]), .10);
    gsl_rng_free(rng);
}

static void time_by_a_fit_never_falls(void **state)
{
    (void)state;
    /* faster above a megabyte than the first piece reaches below it */
    double bytes[20], seconds[20];
    for (int i = 0; i < 20; i++) {
        bytes[i] = 1024 * exp2(i);
        seconds[i] = i < 10 ? 10e-6 + bytes[i] / 1e9 : 100e-6 + bytes[i] / 100e9;
    }
    struct alpha_beta_fit fit;
    assert_int_equal(fit_alpha_beta(bytes, seconds, 20, &fit, NULL), ERR_OK);
    assert_true(fit.pieces >= 2);
    double before = 0;
    for (int i = 0; i < 472; i++) {
        const double at = pow(1.05, i) - 1; /* to 1e10 */
        const double now = fit_alpha_beta_seconds(&fit, at);
        assert_true(now >= before);
        before = now;
    }
}

static void times_that_do_not_grow_are_a_constant(void **state)
{
    (void)state;
    const double bytes[] = {1, 2, 4, 8, 16}, seconds[] = {5e-6, 5.1e-6, 4.9e-6, 5e-6, 4.95e-6};
    struct alpha_beta_fit fit;
    assert_int_equal(fit_alpha_beta(bytes, seconds, 5, &fit, NULL), ERR_OK);
    assert_int_equal(fit.pieces, 1);
    within(fit_alpha_beta_seconds(&fit, 1 << 30), 5e-6, .03);
}

struct sweep {
    const char *prefix;
    double from, to;
    double bytes[MANY], seconds[MANY];
    size_t n;
};

static void collect(void *context, const struct published_row *row)
{
    struct sweep *s = context;
    const double bytes = (double)row->bytes;
    if (strncmp(row->id, s->prefix, strlen(s->prefix)) == 0 && bytes >= s->from && bytes <= s->to &&
        s->n < MANY) {
        s->bytes[s->n] = bytes;
        s->seconds[s->n++] = row->seconds;
    }
}

/* Bisquare fits of the published all_reduce sweeps, made apart from this code: microseconds and
 * GB/s of the pieces up to 1 MiB, to 64 MiB, above; rounded there to the digits given, by an
 * estimator that weighs outliers a little differently. */
static void published_sweeps_have_their_known_pieces(void **state)
{
    (void)state;
    static const struct {
        const char *prefix;
        double from, to, alpha_us, gbs;
    } known[] = {
        {"a100x8_ar", 0, 1 << 20, 43, 16},       {"a100x8_ar", 64 << 20, 1e12, 217, 133},
        {"h200x8_ar", 0, 1 << 20, 39, 201},      {"h200x8_ar", 1 << 20, 64 << 20, 45, 206},
        {"h200x8_ar", 64 << 20, 1e12, 93, 272},  {"b200x8_ar", 1 << 20, 64 << 20, 55, 260},
        {"b200x8_ar", 64 << 20, 1e12, 139, 455},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct sweep s = {.prefix = known[i].prefix, .from = known[i].from, .to = known[i].to};
        published_each(collect, &s);
        struct alpha_beta_fit fit;
        assert_int_equal(fit_alpha_beta(s.bytes, s.seconds, s.n, &fit, NULL), ERR_OK);
        assert_int_equal(fit.pieces, 1);
        within(fit.piece[0].alpha_s, 1e-6 * known[i].alpha_us, .12);
        within(1e-9 / fit.piece[0].s_per_byte, known[i].gbs, .08);
    }
}

static void too_few_points_and_no_times_are_refused(void **state)
{
    (void)state;
    const double bytes[] = {1, 2, 3, 4}, good[] = {1, 1, 1, 1}, zero[] = {1, 0, 1, 1},
                 nan[] = {1, NAN, 1, 1}, negative[] = {1, -2, 3, 4};
    struct alpha_beta_fit fit;
    struct fit_curve *curve;
    struct err err = {0};
    assert_int_equal(fit_alpha_beta(bytes, good, 3, &fit, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "at least 4"));
    assert_int_equal(fit_alpha_beta(bytes, zero, 4, &fit, NULL), ERR_INVALID);
    assert_int_equal(fit_alpha_beta(bytes, nan, 4, &fit, NULL), ERR_INVALID);
    assert_int_equal(fit_alpha_beta(negative, good, 4, &fit, NULL), ERR_INVALID);
    assert_int_equal(fit_curve_new(bytes, good, 2, &curve, NULL), ERR_INVALID);
    assert_null(curve);
    assert_int_equal(fit_curve_new(bytes, zero, 4, &curve, NULL), ERR_INVALID);
    assert_int_equal(fit_curve_new(bytes, good, 0, &curve, NULL), ERR_INVALID);
}

static void a_curve_goes_through_its_points_and_beyond(void **state)
{
    (void)state;
    const double bytes[] = {4096, 65536, 1024, 1 << 20, 1 << 30, 65536, 65536},
                 seconds[] = {12e-6, 14e-6, 11e-6, 40e-6, 5e-3, 99e-6, 13e-6};
    struct fit_curve *curve;
    assert_int_equal(fit_curve_new(bytes, seconds, 7, &curve, NULL), ERR_OK);
    within(fit_curve_seconds(curve, 4096), 12e-6, 1e-9);
    within(fit_curve_seconds(curve, 65536), 14e-6, 1e-9); /* the median of three */
    within(fit_curve_seconds(curve, 1 << 20), 40e-6, 1e-9);
    within(fit_curve_seconds(curve, 0), 11e-6, 1e-9);               /* slope 0 below */
    within(fit_curve_seconds(curve, 4.0 * (1 << 30)), 20e-3, 1e-9); /* slope 1 above */
    double ends[2], at[2];
    fit_curve_ends(curve, ends, at);
    within(ends[1], 1 << 30, 1e-9);
    within(at[0], 11e-6, 1e-9);
    fit_curve_free(curve);
}

static void a_curve_through_noise_is_monotone(void **state)
{
    (void)state;
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    for (unsigned long seed = 0; seed < 50; seed++) {
        gsl_rng_set(rng, seed);
        double bytes[MANY], seconds[MANY], most = 0;
        for (int i = 0; i < MANY; i++) {
            bytes[i] = exp2(gsl_ran_flat(rng, 10, 34));
            seconds[i] = three_pieces(bytes[i]) * exp(gsl_ran_gaussian(rng, .5));
            most = fmax(most, seconds[i]);
        }
        struct fit_curve *curve;
        assert_int_equal(fit_curve_new(bytes, seconds, MANY, &curve, NULL), ERR_OK);
        double before = 0, end[2], at[2];
        fit_curve_ends(curve, end, at);
        within(at[1], most, 1e-9);
        for (int i = 0; i < 1080; i++) {
            const double b = 512 * pow(1.02, i); /* to 1e12 */
            const double now = fit_curve_seconds(curve, b);
            assert_true(now >= before * (1 - 1e-12));
            before = now;
        }
        fit_curve_free(curve);
    }
    gsl_rng_free(rng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_with_outliers_is_found),
        cmocka_unit_test(three_pieces_and_their_breaks_are_found),
        cmocka_unit_test(time_by_a_fit_never_falls),
        cmocka_unit_test(times_that_do_not_grow_are_a_constant),
        cmocka_unit_test(published_sweeps_have_their_known_pieces),
        cmocka_unit_test(too_few_points_and_no_times_are_refused),
        cmocka_unit_test(a_curve_goes_through_its_points_and_beyond),
        cmocka_unit_test(a_curve_through_noise_is_monotone),
    };
    return cmocka_run_group_tests_name("fit", tests, NULL, NULL);
}
