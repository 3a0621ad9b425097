/* test_repeat.c - steps of many micro-batches from plans of few: every sum beside that of the plan
 * that has them all. */
#include "compare/exposure.h"
#include "families/families.h"
#include "job/step_time.h"
#include "plan/repeat.h"
#include "search/step_spans.h"
#include "tests/support/random_jobs.h"
#include "tests/support/soak.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    JOBS = 80,
    SOAK_JOBS = 300,
    SEED = 20261123,
    STRATEGIES = 8,
    SOAK_STRATEGIES = 24,
    DRAWS = 6
};

/* Rounding of sums of thousands of kernels' times. */
#define TIME_TOLERANCE 1e-10

struct seen {
    uint32_t compared, repeated, released, refused;
};

static bool same_seconds(double a, double b, double step_s)
{
    return fabs(a - b) <= TIME_TOLERANCE * step_s;
}

static void same_moment(const struct prediction *a, const struct memory_moment *x,
                        const struct prediction *b, const struct memory_moment *y)
{
    assert_int_equal(x->bytes, y->bytes);
    assert_int_equal(x->part, y->part);
    assert_int_equal(plan_place_in_step(a->plan, x->instruction),
                     plan_place_in_step(b->plan, y->instruction));
}

static void same_memory(const struct prediction *few, const struct prediction *whole)
{
    const struct memory *a = &few->memory, *b = &whole->memory;
    same_moment(few, &a->requested, whole, &b->requested);
    same_moment(few, &a->allocated, whole, &b->allocated);
    same_moment(few, &a->device, whole, &b->device);
    same_moment(few, &a->host, whole, &b->host);
    assert_int_equal(a->reserved_bytes, b->reserved_bytes);
    assert_int_equal(a->first_step_reserved_bytes, b->first_step_reserved_bytes);
    assert_int_equal(a->requested_rounded_bytes, b->requested_rounded_bytes);
    assert_memory_equal(a->categories, b->categories, sizeof a->categories);
    assert_memory_equal(a->device_categories, b->device_categories, sizeof a->device_categories);
    assert_memory_equal(a->host_categories, b->host_categories, sizeof a->host_categories);
    assert_memory_equal(a->live, b->live, sizeof a->live);
    assert_memory_equal(a->part_peaks, b->part_peaks, sizeof a->part_peaks);
    assert_int_equal(a->host_bytes, b->host_bytes);
    assert_int_equal(a->host_held_bytes, b->host_held_bytes);
    assert_int_equal(a->out_of_memory, b->out_of_memory);
    if (a->out_of_memory)
        same_moment(few, &a->failure, whole, &b->failure);
    assert_int_equal(few->device_bytes, whole->device_bytes);
    assert_int_equal(few->least_bytes, whole->least_bytes);
    assert_int_equal(few->parameters, whole->parameters);
    assert_int_equal(few->fits, whole->fits);
    assert_int_equal(few->tight, whole->tight);
    assert_int_equal(few->after_release, whole->after_release);
    assert_int_equal(few->unconstrained_bytes, whole->unconstrained_bytes);
    assert_int_equal(few->settling_frees, whole->settling_frees);
    assert_int_equal(few->settling_mallocs, whole->settling_mallocs);
}

static void same_time(const struct step_time *few, const struct step_time *whole)
{
    const struct timeline *a = &few->timeline, *b = &whole->timeline;
    const double pairs[][2] = {
        {a->step_s, b->step_s},
        {a->compute_s, b->compute_s},
        {a->communication_s, b->communication_s},
        {a->waiting_s, b->waiting_s},
        {a->exposed_s, b->exposed_s},
        {a->host_s, b->host_s},
        {few->low_s, whole->low_s},
        {few->high_s, whole->high_s},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (!same_seconds(pairs[i][0], pairs[i][1], b->step_s))
            fail_msg("sum %zu: %.12g s, and %.12g s of the whole step", i, pairs[i][0],
                     pairs[i][1]);
    for (int i = 0; i < SPENT_COUNT; i++)
        assert_true(same_seconds(a->spent_s[i], b->spent_s[i], b->step_s));
    assert_true(fabs(few->mfu - whole->mfu) <= TIME_TOLERANCE);
    assert_true(fabs(few->hfu - whole->hfu) <= TIME_TOLERANCE);
    assert_true(fabs(few->tokens_per_s / whole->tokens_per_s - 1) <= TIME_TOLERANCE);
}

/* Seconds of exposed communication, collective by collective. */
static double sum_exposures(const struct prediction *p, const struct step_time *t)
{
    enum { MOST = 4096 };
    static struct exposure found[MOST];
    struct arena arena = {0};
    struct compare_time time = {.step_s = t->timeline.step_s};
    struct compare_interval *spans =
        arena_alloc(&arena, ((size_t)p->plan->instruction_count + 1) * sizeof *spans);
    double seconds = 0;
    step_spans(p->plan, t, spans);
    compare_overlap(p->plan, spans, &arena, &time);
    const uint32_t count = exposure_of(p->plan, spans, &time, found, MOST);
    assert_in_range(count, 0, MOST);
    for (uint32_t i = 0; i < count; i++)
        seconds += found[i].seconds;
    arena_free(&arena);
    return seconds;
}

static void compare(const struct job *job, const struct machine *machine, struct seen *seen)
{
    struct prediction few, whole;
    struct step_time a, b;
    struct err first = {0}, second = {0};
    const enum err_code rc = predict_few(job, machine, &few, &first);
    assert_int_equal(predict(job, machine, &whole, &second), rc);
    if (rc != ERR_OK) {
        assert_string_equal(first.text, second.text);
        return;
    }
    same_memory(&few, &whole);
    assert_int_equal(whole.plan->repeats, 0);
    seen->compared++;
    seen->repeated += few.plan->repeats > 0;
    seen->released += few.plan->repeats > 0 && few.after_release;
    seen->refused += few.plan->repeats > 0 && few.memory.out_of_memory;
    const enum err_code timed = step_time(&few, job, machine, DRAWS, &a, &first);
    assert_int_equal(step_time(&whole, job, machine, DRAWS, &b, &second), timed);
    if (timed == ERR_OK) {
        same_time(&a, &b);
        assert_true(
            same_seconds(sum_exposures(&few, &a), sum_exposures(&whole, &b), b.timeline.step_s));
        step_time_free(&a);
        step_time_free(&b);
    }
    prediction_free(&few);
    prediction_free(&whole);
}

/* On devices that have too little, and what does after cached segments are given back. */
static void compare_on_less(const struct job *job, const struct machine *machine, struct seen *seen)
{
    struct prediction p;
    struct machine less = *machine;
    double *const capacity = &less.profile.of[PROFILE_CAPACITY].value;
    struct err err = {0};
    if (predict_few(job, machine, &p, &err) != ERR_OK)
        return;
    const double least = (double)p.least_bytes, most = (double)p.unconstrained_bytes;
    prediction_free(&p);
    const double some[] = {0.2 * least, 0.9 * least, least + 0.6 * (most - least)};
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        *capacity = some[i];
        compare(job, &less, seen);
    }
}

static void set_up(struct machine *machine)
{
    struct err err = {0};
    *machine = (struct machine){.gpus_per_node = 8};
    assert_int_equal(profile_find("h100-sxm", &machine->profile, &err), ERR_OK);
}

static void report(const char *what, const struct seen *seen)
{
    print_message("    %s: %u of %u steps from few micro-batches (%u after segments were given "
                  "back, %u without memory enough)\n",
                  what, seen->repeated, seen->compared, seen->released, seen->refused);
}

static uint32_t micro_batches(uint32_t i)
{
    static const uint32_t some[] = {6, 7, 12, 9, 24};
    return some[i % (sizeof some / sizeof some[0])];
}

static void random_jobs_are_those_of_all_micro_batches(void **state)
{
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    struct machine machine;
    struct seen seen = {0};
    (void)state;
    set_up(&machine);
    gsl_rng_set(rng, SEED);
    for (uint32_t i = 0; i < (is_soak() ? SOAK_JOBS : JOBS); i++) {
        struct job job = random_job(rng);
        job.strategy.world = job.strategy.world > 8 ? 64 : job.strategy.world;
        job.strategy.rank %= job.strategy.world;
        job.strategy.accumulate = micro_batches(i);
        machine.expandable_segments = i % 2;
        compare(&job, &machine, &seen);
        compare_on_less(&job, &machine, &seen);
    }
    report("random jobs", &seen);
    assert_true(seen.repeated > seen.compared / 2);
    assert_true(seen.released > 0 && seen.refused > 0);
    gsl_rng_free(rng);
    profile_free(&machine.profile);
}

static void choose(struct strategy *s, uint32_t i)
{
    const bool fsdp2 = s->system == SYSTEM_FSDP2;
    s->world = system_is_alone(s->system) ? 1 : 8U << (i % 4);
    s->accumulate = micro_batches(i);
    s->accumulate_sync = i / 2 % 2;
    s->max_norm = (float)(i % 2);
    s->impl = (enum optimizer_impl)(i % 3);
    s->replicate = fsdp2 ? 1U << (i % 2) : 1;
    s->reshard = fsdp2 ? (enum reshard_kind)(i % 4) : RESHARD_DEFAULT;
    s->reshard_ranks = 4;
    s->forward_prefetch = fsdp2 ? i % 3 : 0;
    s->backward_prefetch = fsdp2 ? i / 3 % 3 : 0;
    s->offload = fsdp2 && i % 7 == 3;
    s->bucket_view = s->system == SYSTEM_DDP && i % 3 == 1;
    s->sharding = s->system == SYSTEM_FSDP1 && i % 3 == 1 ? SHARDING_NONE : SHARDING_FULL;
    s->optimizer = i % 5 != 2 || s->offload ? OPTIMIZER_ADAMW
                   : fsdp2                  ? OPTIMIZER_AO_4BIT
                                            : OPTIMIZER_BNB_8BIT;
}

/* A model large enough for collectives to take long beside its kernels; small batches, so that the
 * host is what some steps wait for. */
static void strategies_of(enum system_kind system, uint32_t count)
{
    struct model_config config;
    struct machine machine;
    struct job job;
    struct err err = {0};
    struct seen seen = {0};
    set_up(&machine);
    assert_int_equal(model_preset_find("llama-3.2-1b", &config, &err), ERR_OK);
    job_defaults(&job, &config);
    job.strategy.system = system;
    if (system != SYSTEM_FSDP2 && system != SYSTEM_FSDP1)
        job.model.compute = job.strategy.compute = job.strategy.reduce = job.strategy.store;
    for (uint32_t i = 0; i < count; i++) {
        choose(&job.strategy, i);
        if (system_zero_stage(system))
            job.strategy.zero = zero_defaults(system_zero_stage(system));
        job.model.seq = i % 3 ? 2048 : 64;
        machine.expandable_segments = i / 2 % 2;
        compare(&job, &machine, &seen);
        if (i % 4 == 3)
            compare_on_less(&job, &machine, &seen);
    }
    report(system_name(system), &seen);
    assert_true(seen.repeated >= count / 2);
    profile_free(&machine.profile);
}

static void strategies_of_each_system(void **state)
{
    (void)state;
    for (int system = 0; system < SYSTEM_COUNT; system++)
        strategies_of((enum system_kind)system, is_soak() ? SOAK_STRATEGIES : STRATEGIES);
}

/* What a step costs to be predicted is what its plan has. */
static void more_micro_batches_are_no_more_work(void **state)
{
    struct model_config config;
    struct machine machine;
    struct job job;
    struct err err = {0};
    uint32_t instructions = 0;
    (void)state;
    set_up(&machine);
    assert_int_equal(model_preset_find("llama-3.1-405b", &config, &err), ERR_OK);
    job_defaults(&job, &config);
    job.strategy.world = 1024;
    for (uint32_t count = 8; count <= 8192; count *= 32) {
        struct prediction prediction;
        job.strategy.accumulate = count;
        assert_int_equal(predict_few(&job, &machine, &prediction, &err), ERR_OK);
        if (!instructions)
            instructions = prediction.plan->instruction_count;
        assert_int_equal(prediction.plan->instruction_count, instructions);
        assert_int_equal(prediction.plan->repeats, count - REPEAT_FEW);
        prediction_free(&prediction);
    }
    profile_free(&machine.profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_jobs_are_those_of_all_micro_batches),
        cmocka_unit_test(strategies_of_each_system),
        cmocka_unit_test(more_micro_batches_are_no_more_work),
    };
    return cmocka_run_group_tests_name("repeat", tests, NULL, NULL);
}
