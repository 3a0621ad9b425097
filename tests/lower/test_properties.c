/* test_properties.c - what must hold for every job, tried on random ones (seeded).
 *
 * Each job is small (1-5 layers, odd sizes) so that thousands can be planned, verified and
 * replayed through the allocator; sizes are drawn to hit rows that do not divide by the ranks. */
#include "job/job.h"
#include "memory/replay.h"
#include "tests/support/random_jobs.h"

#include <gsl/gsl_rng.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { JOBS = 2500, SEED = 20261121 };

static int jobs = JOBS; /* or SOAK_JOBS */

static gsl_rng *rng;

static void plan_and_replay(const struct job *job, struct memory *memory)
{
    struct err err = {0};
    struct plan *plan = NULL;
    const struct memory_options options = {.workspace_bytes = {1 << 20, 1 << 20}};
    assert_int_equal(job_plan(job, &plan, NULL, &err), ERR_OK);
    if (plan_verify(plan, &err) != ERR_OK)
        fail_msg("%s", err.text);
    assert_int_equal(memory_replay(plan, &options, NULL, NULL, memory, &err), ERR_OK);
    plan_free(plan);
}

static void check_sums(const struct memory *m)
{
    uint64_t sum = 0;
    for (int i = 0; i < CATEGORY_COUNT; i++) {
        assert_true(m->categories[i] <= m->requested.bytes); /* none below zero */
        sum += m->categories[i];
    }
    assert_int_equal(sum, m->requested.bytes);
    assert_int_equal(m->live[PLAN_MARK_START], m->live[PLAN_MARK_END]);
    assert_true(m->reserved_bytes >= m->allocated.bytes);
    assert_true(m->requested_rounded_bytes >= m->requested.bytes);
    for (int i = 0; i < PART_COUNT; i++)
        assert_true(m->part_peaks[i] <= m->requested.bytes);
}

static void sums_hold_and_everything_is_freed(void **state)
{
    (void)state;
    for (int i = 0; i < jobs; i++) {
        const struct job job = random_job(rng);
        struct memory memory;
        plan_and_replay(&job, &memory);
        check_sums(&memory);
    }
}

static void keeping_parameters_never_takes_less_than_resharding(void **state)
{
    (void)state;
    for (int i = 0; i < jobs / 10; i++) {
        struct job job = random_job(rng);
        struct memory always, never;
        job.strategy.reshard = RESHARD_ALWAYS;
        plan_and_replay(&job, &always);
        job.strategy.reshard = RESHARD_NEVER;
        plan_and_replay(&job, &never);
        assert_true(never.part_peaks[PART_FORWARD] >= always.part_peaks[PART_FORWARD]);
        assert_true(never.live[PLAN_MARK_AFTER_FORWARD] >= always.live[PLAN_MARK_AFTER_FORWARD]);
    }
}

static void more_ranks_never_hold_more_at_rest(void **state)
{
    (void)state;
    for (int i = 0; i < jobs / 10; i++) {
        struct job job = random_job(rng);
        struct memory few, many;
        job.strategy.rank = 0;
        job.strategy.replicate = 1;
        job.strategy.reshard = RESHARD_ALWAYS;
        plan_and_replay(&job, &few);
        job.strategy.world *= 2;
        plan_and_replay(&job, &many);
        assert_true(many.live[PLAN_MARK_START] <= few.live[PLAN_MARK_START]);
    }
}

static void checkpointing_never_keeps_more_activations(void **state)
{
    (void)state;
    for (int i = 0; i < jobs / 10; i++) {
        struct job job = random_job(rng);
        struct memory none, selective, full;
        job.tape.checkpointing = CHECKPOINTING_NONE;
        plan_and_replay(&job, &none);
        job.tape.checkpointing = CHECKPOINTING_SELECTIVE;
        plan_and_replay(&job, &selective);
        job.tape.checkpointing = CHECKPOINTING_FULL;
        plan_and_replay(&job, &full);
        const enum plan_mark mark = PLAN_MARK_AFTER_FORWARD;
        assert_true(full.live[mark] <= none.live[mark]);
        assert_true(full.live[mark] <= selective.live[mark]);
    }
}

static void tying_the_head_saves_one_table(void **state)
{
    (void)state;
    for (int i = 0; i < jobs / 100; i++) {
        struct err err = {0};
        struct job job = random_job(rng);
        uint64_t tied, untied;
        struct plan *plan = NULL;
        job.config.arch = ARCH_GPT2;
        job.model.code = CODE_NANOGPT;
        job.config.kv_heads = job.config.heads;
        job.config.tied = true;
        assert_int_equal(job_plan(&job, &plan, &tied, &err), ERR_OK);
        plan_free(plan);
        job.config.tied = false;
        assert_int_equal(job_plan(&job, &plan, &untied, &err), ERR_OK);
        plan_free(plan);
        assert_int_equal(untied - tied, (uint64_t)job.config.vocab * job.config.hidden);
    }
}

static int set_up(void **state)
{
    (void)state;
    rng = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(rng, SEED);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gsl_rng_free(rng);
    return 0;
}

int main(void)
{
    const char *soak = getenv("SOAK_JOBS");
    jobs = soak ? atoi(soak) : JOBS;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_hold_and_everything_is_freed),
        cmocka_unit_test(keeping_parameters_never_takes_less_than_resharding),
        cmocka_unit_test(more_ranks_never_hold_more_at_rest),
        cmocka_unit_test(checkpointing_never_keeps_more_activations),
        cmocka_unit_test(tying_the_head_saves_one_table),
    };
    return cmocka_run_group_tests_name("properties", tests, set_up, tear_down);
}
