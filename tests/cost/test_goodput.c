/* test_goodput.c - failures against published values and seeded Monte Carlo. */
#include "cost/goodput.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <gsl/gsl_sf_lambert.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void near(double found, double expected, double tolerance)
{
    if (!(fabs(found - expected) <= tolerance))
        fail_msg("%.9g, expected %.9g within %g", found, expected, tolerance);
}

static const struct failures llama = {GOODPUT_GPU_MTBF_S, 16384, 60, 600};

/* 54 days, 419 interruptions: one in 3.09 hours. */
static void default_failures_are_the_published_ones(void **state)
{
    (void)state;
    struct goodput g;
    assert_int_equal(goodput_best(&llama, &g, NULL), ERR_OK);
    near(g.job_mtbf_s / 3600, 3.09, .005);
    near(GOODPUT_GPU_MTBF_S / 86400 / 365.25, 5.78, .005);
    /* "higher than 90 % effective training time", and not without any loss */
    struct failures quick = llama;
    quick.checkpoint_s = 10;
    assert_int_equal(goodput_best(&quick, &g, NULL), ERR_OK);
    assert_true(g.useful > .85 && g.useful < .99);
}

/* The derivative's root in closed form: interval = M (1 + W(-exp(-1 - C/M))). */
static void best_interval_is_lamberts(void **state)
{
    (void)state;
    for (int i = 0; i < 11; i++) {
        const double checkpoint = pow(3, i); /* to 59,049 */
        const struct failures f = {1e8, 10000, checkpoint, 300};
        const double m = 1e4;
        struct goodput g;
        if (goodput_best(&f, &g, NULL) != ERR_OK) {
            assert_true(checkpoint > 10 * m);
            continue;
        }
        const double exact = m * (1 + gsl_sf_lambert_W0(-exp(-1 - checkpoint / m)));
        near(g.interval_s / exact, 1, 1e-4);
        struct goodput less, more;
        assert_int_equal(goodput_at(&f, .9 * g.interval_s, &less, NULL), ERR_OK);
        assert_int_equal(goodput_at(&f, 1.1 * g.interval_s, &more, NULL), ERR_OK);
        assert_true(g.useful > less.useful && g.useful > more.useful);
    }
}

/* Daly's paper: his interval stays close to the best one up to checkpoints near M; Young's does
 * not.
 */
static void approximations_are_close_where_they_claim(void **state)
{
    (void)state;
    const double m = 1e4;
    near(checkpoint_interval_young(50, m), 1000, 1e-9);
    near(checkpoint_interval_daly(50, m), 1000 * (1 + .05 / 3 + .0025 / 9) - 50, 1e-9);
    near(checkpoint_interval_daly(2 * m, m), m, 0);
    for (int i = 0; i < 14; i++) {
        const double checkpoint = pow(2, i); /* to 8,192 */
        const struct failures f = {m, 1, checkpoint, 0};
        struct goodput best, daly;
        assert_int_equal(goodput_best(&f, &best, NULL), ERR_OK);
        assert_int_equal(goodput_at(&f, checkpoint_interval_daly(checkpoint, m), &daly, NULL),
                         ERR_OK);
        assert_true(daly.useful > .999 * best.useful);
    }
}

struct tally {
    double wall, useful, checkpointing, restarting;
};

/* One interval of work after another, failures drawn as they come. */
static struct tally simulate(const struct failures *f, double interval, int intervals, gsl_rng *rng)
{
    const double m = f->gpu_mtbf_s / f->gpus;
    struct tally t = {0};
    double next = gsl_ran_exponential(rng, m);
    for (int done = 0; done < intervals;) {
        const double need = interval + f->checkpoint_s;
        if (next >= need) {
            next -= need;
            t.wall += need;
            t.useful += interval;
            t.checkpointing += f->checkpoint_s;
            done++;
            continue;
        }
        t.wall += next;
        for (;;) { /* restarts may fail too */
            next = gsl_ran_exponential(rng, m);
            const double restart = fmin(next, f->restart_s);
            t.wall += restart;
            t.restarting += restart;
            if (next >= f->restart_s)
                break;
        }
        next -= f->restart_s;
    }
    return t;
}

static void goodput_agrees_with_monte_carlo(void **state)
{
    (void)state;
    static const struct failures cases[] = {{GOODPUT_GPU_MTBF_S, 16384, 60, 600},
                                            {GOODPUT_GPU_MTBF_S, 100000, 30, 900},
                                            {1e7, 4096, 5, 120}};
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(rng, 11);
    for (int i = 0; i < 3; i++) {
        struct goodput g;
        assert_int_equal(goodput_best(&cases[i], &g, NULL), ERR_OK);
        for (int j = 0; j < 3; j++) {
            assert_int_equal(goodput_at(&cases[i], (j ? 3 : .3) * g.interval_s, &g, NULL), ERR_OK);
            const struct tally t = simulate(&cases[i], g.interval_s, 100000, rng);
            near(g.useful, t.useful / t.wall, .004);
            near(g.checkpointing, t.checkpointing / t.wall, .004);
            near(g.restarting, t.restarting / t.wall, .004);
            near(g.useful + g.checkpointing + g.restarting + g.repeating, 1, 1e-12);
        }
    }
    gsl_rng_free(rng);
}

static void more_gpus_lose_more(void **state)
{
    (void)state;
    double before = 1;
    for (uint32_t gpus = 8; gpus <= 131072; gpus *= 4) {
        struct failures f = llama;
        f.gpus = gpus;
        struct goodput g;
        assert_int_equal(goodput_best(&f, &g, NULL), ERR_OK);
        assert_true(g.useful < before);
        before = g.useful;
    }
}

static void impossible_figures_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        struct failures f;
        enum err_code code;
        const char *word;
    } cases[] = {
        {{0, 8, 1, 1}, ERR_INVALID, "gpu_mtbf_s"},
        {{1e8, 0, 1, 1}, ERR_INVALID, "gpus"},
        {{1e8, 8, -1, 1}, ERR_INVALID, "checkpoint_s"},
        {{1e8, 8, 0, 1}, ERR_INVALID, "checkpoint_s"},
        {{1e8, 8, 1, NAN}, ERR_INVALID, "restart_s"},
        {{1, 100000, 60, 600}, ERR_INFEASIBLE, "fail every"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct goodput g;
        struct err err = {0};
        assert_int_equal(goodput_best(&cases[i].f, &g, &err), cases[i].code);
        if (!strstr(err.text, cases[i].word))
            fail_msg("\"%s\" does not name %s", err.text, cases[i].word);
    }
    const struct failures extremes[] = {{1e300, 1, 1e-300, 0}, {1e-300, UINT32_MAX, 1e300, 1e300}};
    struct goodput extreme;
    assert_int_equal(goodput_best(&extremes[0], &extreme, NULL), ERR_OK);
    assert_int_equal(goodput_best(&extremes[1], &extreme, NULL), ERR_INFEASIBLE);
    struct goodput g;
    assert_int_equal(goodput_at(&llama, 0, &g, NULL), ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_failures_are_the_published_ones),
        cmocka_unit_test(best_interval_is_lamberts),
        cmocka_unit_test(approximations_are_close_where_they_claim),
        cmocka_unit_test(goodput_agrees_with_monte_carlo),
        cmocka_unit_test(more_gpus_lose_more),
        cmocka_unit_test(impossible_figures_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("goodput", tests, NULL, NULL);
}
