/* test_periods.c - outlines of models with many blocks, simulated with and without passing over
 * those that take as long as the one before: every task begins and ends at the same time, to a
 * rounding. */
#include "families/families.h"
#include "job/job.h"
#include "lower/outline.h"
#include "machine/machine.h"
#include "simulate/simulation.h"
#include "tests/support/random_jobs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { JOBS = 2000, SEED = 41 };

/* Rounding of sums of thousands of kernels' times. */
#define TOLERANCE 1e-11

static uint32_t below(gsl_rng *rng, uint32_t n)
{
    return (uint32_t)gsl_rng_uniform_int(rng, n);
}

/* Deeper than those that are drawn for other tests, most of them with work enough for the device to
 * be behind the host. */
static struct job deep_job(gsl_rng *rng)
{
    static const enum system_kind systems[] = {SYSTEM_FSDP2, SYSTEM_FSDP2, SYSTEM_FSDP1, SYSTEM_DDP,
                                               SYSTEM_ZERO3};
    struct job job = random_job(rng);
    struct strategy *s = &job.strategy;
    struct err err = {0};
    if (below(rng, 4)) {
        assert_int_equal(model_preset_find("llama-3.2-1b", &job.config, &err), ERR_OK);
        job.model.seq = 512U << below(rng, 4);
    }
    job.config.layers = 4 + below(rng, 28);
    s->world = 8U << below(rng, 3);
    s->rank = 0;
    s->replicate = 1U << below(rng, 2);
    s->keep_last = below(rng, 3) == 0 ? below(rng, job.config.layers) : 0;
    s->accumulate = 1 + below(rng, 4);
    if (below(rng, 2))
        s->system = systems[below(rng, 5)];
    if (s->system == SYSTEM_ZERO3)
        s->zero = zero_defaults(3);
    return job;
}

static void assert_alike(const double *a, const double *b, uint32_t count, double step_s, int job)
{
    for (uint32_t i = 0; i < count; i++)
        if (!(fabs(a[i] - b[i]) <= TOLERANCE * step_s))
            fail_msg("job %d, task %u: %.17g s, and %.17g s without passing over", job, i, a[i],
                     b[i]);
}

/* Spans count as computing, whatever bounds their kernels. */
static void assert_same_spent(const struct timeline *a, const struct timeline *b)
{
    for (int i = 0; i < SPENT_COUNT; i++)
        if (i != SPENT_COMPUTE && i != SPENT_MEMORY)
            assert_true(fabs(a->spent_s[i] - b->spent_s[i]) <= TOLERANCE * b->step_s);
    assert_true(fabs(a->compute_s - b->compute_s) <= TOLERANCE * b->step_s);
    assert_true(fabs(a->communication_s - b->communication_s) <= TOLERANCE * b->step_s);
    assert_true(fabs(a->exposed_s - b->exposed_s) <= TOLERANCE * b->step_s);
}

/* Collectives alone have an end of their own part. */
static void assert_same_done(const struct simulation *s, const struct timeline *a,
                             const struct timeline *b, int job)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->tasks[i].collective)
            assert_alike(a->done_s + i, b->done_s + i, 1, b->step_s, job);
}

/* Returns how many tasks were passed over. */
static uint32_t compare(const struct plan *plan, const struct costs *costs, int job)
{
    struct simulation *s = simulation_new(plan, NULL, 0);
    struct timeline passed = timeline_new(s), whole = timeline_new(s);
    simulate(s, costs, NULL, &passed);
    simulate_each_event(s, costs, NULL, NULL, &whole);
    assert_true(fabs(passed.step_s - whole.step_s) <= TOLERANCE * whole.step_s);
    assert_alike(passed.begin_s, whole.begin_s, s->count, whole.step_s, job);
    assert_alike(passed.end_s, whole.end_s, s->count, whole.step_s, job);
    assert_alike(passed.issue_s, whole.issue_s, s->count, whole.step_s, job);
    assert_same_done(s, &passed, &whole, job);
    assert_same_spent(&passed, &whole);
    assert_int_equal(whole.passed, 0);
    const uint32_t count = passed.passed;
    timeline_free(&passed);
    timeline_free(&whole);
    simulation_free(s);
    return count;
}

/* Returns whether the job is possible. */
static bool try_job(const struct job *job, const struct machine *machine, int number,
                    uint32_t *count)
{
    const uint64_t workspace[2] = {0, 0};
    struct graph *graph;
    struct stream *stream;
    struct outlined outlined = {0};
    struct costs costs = {0};
    struct err err = {0};
    if (job_stream(job, &graph, &stream, &err) != ERR_OK)
        return false;
    struct outline *outline = outline_new(stream, workspace);
    struct collective_models *models = collective_models_new();
    const bool possible =
        lower_outline(graph, outline, &job->strategy, &outlined, &err) == ERR_OK &&
        costs_of_own(outlined.plan, &machine->profile, 8, models, &costs, &err) == ERR_OK;
    if (possible) {
        costs.sequence = sequence_new(stream->kernels, outline->kernels, outline->kernel_count,
                                      outline->forward_count, &machine->profile, 1.01);
        *count = compare(outlined.plan, &costs, number);
        sequence_free(costs.sequence);
    }
    collective_models_free(models);
    costs_free(&costs);
    plan_free(outlined.plan);
    outline_free(outline);
    stream_free(stream);
    graph_free(graph);
    return possible;
}

static void what_is_passed_over_is_as_simulated(void **state)
{
    struct machine machine = {.gpus_per_node = 8};
    struct err err = {0};
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    uint32_t possible = 0, passed = 0;
    (void)state;
    gsl_rng_set(rng, SEED);
    assert_int_equal(profile_find("h100-sxm", &machine.profile, &err), ERR_OK);
    for (int i = 0; i < JOBS; i++) {
        const struct job job = deep_job(rng);
        uint32_t count = 0;
        possible += try_job(&job, &machine, i, &count);
        passed += count > 0;
    }
    print_message("%u jobs, blocks passed over in %u\n", possible, passed);
    assert_true(possible > JOBS / 2);
    assert_true(passed > JOBS / 10); /* else nothing was tried */
    profile_free(&machine.profile);
    gsl_rng_free(rng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_passed_over_is_as_simulated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
