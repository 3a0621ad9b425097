/* test_explain.c - what a step comes from, beside the step itself: the parts add up, and each
 * number changes what it is said to change. */
#include "families/families.h"
#include "job/explain.h"

#include "job/blame.h"
#include "tests/support/planned.h"
#include "tests/support/random_jobs.h"
#include "tests/support/small_jobs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void plan_on(const struct job *job, const char *gpu, struct planned *p)
{
    *p = planned_on(gpu);
    planned_job(p, job);
}

static struct job large_job(void)
{
    struct model_config config;
    struct job job;
    struct err err = {0};
    assert_int_equal(model_preset_find("llama-3.2-1b", &config, &err), ERR_OK);
    job_defaults(&job, &config);
    job.model.seq = 2048;
    job.strategy.world = 16;
    return job;
}

/* ---- blame ---- */

/* Kind by kind what the simulator itself counted while it ran. */
static void check_blame(const struct planned *p, const char *name)
{
    double sums[SPENT_COUNT] = {0};
    uint32_t count;
    struct blame *blames = blame_step(p->prediction.plan, &p->time, &count);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(blames[i].seconds > 0);
        sums[blames[i].spent] += blames[i].seconds;
    }
    for (int kind = 0; kind < SPENT_COUNT; kind++)
        if (!(fabs(sums[kind] - p->time.timeline.spent_s[kind]) <= 1e-9 * p->time.timeline.step_s))
            fail_msg("%s, %s: %.9g s blamed, %.9g spent", name, spent_name((enum spent)kind),
                     sums[kind], p->time.timeline.spent_s[kind]);
    free(blames);
}

static void every_second_is_somebodys(void **state)
{
    (void)state;
    static const char *const gpus[] = {"h100-sxm", "rtx-4090", "mi300x"};
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    for (int i = 0; i < SMALL_JOBS + 60; i++) {
        struct job job = i < SMALL_JOBS ? small_job_of_kind(i) : random_job(rng);
        struct planned p;
        char name[32];
        job.strategy.world = job.strategy.world > 8 ? 64 : job.strategy.world;
        job.strategy.rank %= job.strategy.world;
        snprintf(name, sizeof name, "job %d", i);
        plan_on(&job, gpus[i % 3], &p);
        check_blame(&p, name);
        planned_free(&p);
    }
    struct planned p;
    struct job job = large_job();
    plan_on(&job, "h100-sxm", &p);
    check_blame(&p, "1b");
    planned_free(&p);
    job.strategy.offload = true;
    plan_on(&job, "h100-sxm", &p);
    check_blame(&p, "1b, offloaded");
    assert_true(p.time.timeline.spent_s[SPENT_HOST] > 0);
    planned_free(&p);
    gsl_rng_free(rng);
}

/* ---- numbers ---- */

static void each_number_changes_the_step_by_what_it_says(void **state)
{
    (void)state;
    const struct job job = large_job();
    struct planned p;
    struct explanation e;
    struct err err = {0};
    uint32_t tried = 0;
    plan_on(&job, "h100-sxm", &p);
    assert_int_equal(explain(&p.prediction, &p.machine, &p.time, &e, &err), ERR_OK);
    for (uint32_t i = 0; i < e.number_count; i++) {
        const struct explained_number *n = &e.numbers[i];
        const enum profile_key key = profile_key_named(n->name, NULL);
        assert_true(i == 0 || fabs(n->step_change) <= fabs(e.numbers[i - 1].step_change) + 1e-15);
        if (key == PROFILE_KEYS) /* a row of a table */
            continue;
        struct machine other = p.machine;
        struct step_time time;
        assert_true(n->value == profile_value(&other.profile, key));
        assert_int_equal(profile_set_number(&other.profile, key, n->value * (1 + n->change), &err),
                         ERR_OK);
        assert_int_equal(step_time(&p.prediction, &job, &other, 0, &time, &err), ERR_OK);
        const double changed = time.timeline.step_s / p.time.timeline.step_s - 1;
        if (!(fabs(changed - n->step_change) < 1e-9))
            fail_msg("%s: %g, not %g", n->name, changed, n->step_change);
        step_time_free(&time);
        tried++;
    }
    assert_true(tried >= 12);
    explanation_free(&e);
    planned_free(&p);
}

static bool rests_on(const struct explanation *e, const struct explained_kernel *k,
                     const char *number)
{
    for (uint32_t i = 0; i < k->number_count; i++)
        if (strcmp(e->numbers[k->numbers[i]].name, number) == 0)
            return true;
    return false;
}

static void kernels_rest_on_the_numbers_that_make_them(void **state)
{
    (void)state;
    static const struct {
        enum spent spent;
        const char *kernel, *number;
    } expected[] = {{SPENT_COMPUTE, "mm", "gemm_efficiency"},
                    {SPENT_MEMORY, "copy_out", "stream_efficiency"},
                    {SPENT_MEMORY, "copy_out", "memory_bytes_per_s"},
                    {SPENT_RANKS, "", "rank_spread"},
                    {SPENT_NETWORK, "reduce_scatter, backward", "nic_bytes_per_s"}};
    struct job job = large_job();
    struct planned p;
    struct explanation e;
    struct err err = {0};
    double sums[SPENT_COUNT] = {0};
    plan_on(&job, "a100-sxm-80gb", &p);
    p.machine.profile.of[PROFILE_NIC].value = 3e9; /* a slow network */
    step_time_free(&p.time);
    assert_int_equal(step_time(&p.prediction, &job, &p.machine, 0, &p.time, &err), ERR_OK);
    assert_int_equal(explain(&p.prediction, &p.machine, &p.time, &e, &err), ERR_OK);
    for (size_t x = 0; x < sizeof expected / sizeof *expected; x++) {
        bool found = false;
        for (uint32_t i = 0; i < e.kernel_count && !found; i++)
            found = e.kernels[i].spent == expected[x].spent && e.kernels[i].name &&
                    (!*expected[x].kernel || strcmp(e.kernels[i].name, expected[x].kernel) == 0) &&
                    rests_on(&e, &e.kernels[i], expected[x].number);
        if (!found)
            fail_msg("no %s rests on %s", expected[x].kernel, expected[x].number);
    }
    for (uint32_t i = 0; i < e.kernel_count; i++) {
        const struct explained_kernel *k = &e.kernels[i];
        sums[k->spent] += k->seconds;
        assert_true(!k->name || k->number_count > 0);
        assert_true(i == 0 || k->spent > e.kernels[i - 1].spent ||
                    (k->spent == e.kernels[i - 1].spent && k->seconds <= e.kernels[i - 1].seconds));
    }
    for (int kind = 0; kind < SPENT_COUNT; kind++)
        assert_true(fabs(sums[kind] - e.spent_s[kind]) < 1e-9 * e.step_s);
    explanation_free(&e);
    planned_free(&p);
}

/* Tables of a profile are numbers, too: measured kernels and collectives, attention. */
static void measured_tables_count(void **state)
{
    (void)state;
    const struct job job = large_job();
    struct planned p;
    struct explanation e;
    struct err err = {0};
    bool kernel = false, points = false, attention = false;
    plan_on(&job, "h100-sxm", &p);
    struct profile_kernel row = {.work = WORK_MATMUL_NT,
                                 .seconds_per_flop = 2e-15,
                                 .backward = PROFILE_ANY,
                                 .dtype = PROFILE_ANY,
                                 .to = PROFILE_ANY,
                                 .spread = 0.05,
                                 .source = "here"};
    struct collective_point sizes[] = {
        {COLLECTIVE_ALL_GATHER, 16, 2, 1 << 20, 1e-4},
        {COLLECTIVE_ALL_GATHER, 16, 2, 1 << 26, 4e-3},
        {COLLECTIVE_ALL_GATHER, 16, 2, 1 << 30, 5e-2},
    };
    struct profile *profile = &p.machine.profile;
    struct profile with = *profile;
    with.kernels = &row;
    with.kernel_count = 1;
    with.points = sizes;
    with.point_count = 3;
    const struct machine machine = {.profile = with, .gpus_per_node = 8};
    struct step_time time;
    assert_int_equal(step_time(&p.prediction, &job, &machine, 0, &time, &err), ERR_OK);
    assert_int_equal(explain(&p.prediction, &machine, &time, &e, &err), ERR_OK);
    for (uint32_t i = 0; i < e.number_count; i++) {
        const struct explained_number *n = &e.numbers[i];
        kernel |= strncmp(n->name, "kernels.matmul_nt", 17) == 0 && n->step_change > 0 &&
                  fabs(n->uncertainty - 0.5 * n->step_change) < 1e-12;
        points |= strcmp(n->name, "collectives") == 0 && n->step_change > 0;
        attention |= strncmp(n->name, "attention.", 10) == 0 && n->step_change < 0;
    }
    if (!kernel || !points || !attention)
        fail_msg("kernels %d, collectives %d, attention %d", kernel, points, attention);
    explanation_free(&e);
    step_time_free(&time);
    planned_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_second_is_somebodys),
        cmocka_unit_test(each_number_changes_the_step_by_what_it_says),
        cmocka_unit_test(kernels_rest_on_the_numbers_that_make_them),
        cmocka_unit_test(measured_tables_count),
    };
    return cmocka_run_group_tests_name("explain", tests, NULL, NULL);
}
