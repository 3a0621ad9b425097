/* test_estimate.c - estimates beside the predictions that they stand for. */
#include "families/families.h"
#include "job/estimate.h"

#include "job/predict.h"
#include "job/step_time.h"
#include "tests/support/random_jobs.h"
#include "tests/support/soak.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { JOBS = 600, SEED = 20261122, STRATEGIES = 20, SOAK_STRATEGIES = 40 };

/* Rounding of sums of thousands of kernels' times, against the event by event of a whole plan. */
#define TIME_TOLERANCE 1e-11

struct scene { /* one stream on one machine */
    struct machine machine;
    struct graph *graph;
    struct stream *stream;
    struct estimator *estimator;
    uint32_t by_clock; /* jobs that fit by the machine's clock alone */
    uint32_t paged;    /* ... whose pages move */
};

static void set_up(struct scene *scene, const struct job *job)
{
    struct err err = {0};
    *scene = (struct scene){.machine = {.gpus_per_node = 8}};
    assert_int_equal(profile_find("h100-sxm", &scene->machine.profile, &err), ERR_OK);
    struct job there;
    assert_int_equal(job_on_machine(job, &scene->machine, &there, &err), ERR_OK);
    assert_int_equal(model_build(&there.config, &there.model, &scene->graph, &err), ERR_OK);
    const struct tape_options options = job_tape(job);
    scene->stream = tape_run(scene->graph, &options);
    scene->estimator = estimator_new(scene->graph, scene->stream, &scene->machine);
}

static void tear_down(struct scene *scene)
{
    estimator_free(scene->estimator);
    stream_free(scene->stream);
    graph_free(scene->graph);
    profile_free(&scene->machine.profile);
}

/* In an outline for time alone parameters alike stand for each other: step and bytes are as where
 * each has its own. */
static void compare_short(struct scene *scene, const struct job *job)
{
    struct err err = {0};
    struct estimate alone, whole;
    const struct estimate_options time = {.wanted = ESTIMATE_TIME};
    const struct estimate_options both = {.wanted = ESTIMATE_TIME | ESTIMATE_DEVICE};
    if (estimate_with(scene->estimator, &job->strategy, &time, &alone, &err) != ERR_OK)
        return;
    assert_int_equal(estimate_with(scene->estimator, &job->strategy, &both, &whole, &err), ERR_OK);
    assert_int_equal(alone.requested_bytes, whole.requested_bytes);
    assert_int_equal(alone.least_bytes, whole.least_bytes);
    assert_true(alone.step_s == whole.step_s);
}

/* What is told of a device: of what fits without giving anything back what it takes there. */
static uint64_t told_bytes(const struct prediction *p)
{
    return p->by_clock ? p->device_bytes : p->unconstrained_bytes;
}

/* On a device of a byte less than waits leave held the machine's clock decides. */
static void compare_clocked(struct scene *scene, const struct job *job,
                            const struct prediction *roomy, const struct estimate_options *options)
{
    struct err err = {0};
    struct estimate found;
    struct prediction prediction;
    const struct machine before = scene->machine;
    if (!clocked_any(roomy->plan))
        return;
    assert_int_equal(profile_set_number(&scene->machine.profile, PROFILE_CAPACITY,
                                        (double)(roomy->unconstrained_bytes - 1), &err),
                     ERR_OK);
    assert_int_equal(estimate_with(scene->estimator, &job->strategy, options, &found, &err),
                     ERR_OK);
    assert_int_equal(predict(job, &scene->machine, &prediction, &err), ERR_OK);
    assert_int_equal(found.device_bytes, told_bytes(&prediction));
    scene->by_clock += prediction.by_clock;
    prediction_free(&prediction);
    scene->machine = before;
}

/* On a device with room for half of what is in managed memory an update moves its pages. */
static void compare_paged(struct scene *scene, const struct job *job, bool paged)
{
    struct err err = {0};
    struct estimate found;
    struct prediction prediction;
    struct step_time time;
    const struct machine before = scene->machine;
    const struct estimate_options options = {.wanted = ESTIMATE_TIME};
    if (!paged)
        return;
    scene->machine.expandable_segments = false; /* as pages are judged there */
    assert_int_equal(predict(job, &scene->machine, &prediction, &err), ERR_OK);
    assert_int_equal(
        profile_set_number(&scene->machine.profile, PROFILE_CAPACITY,
                           (double)(prediction.device_bytes + (prediction.paged_bytes >> 1)), &err),
        ERR_OK);
    prediction_free(&prediction);
    assert_int_equal(predict(job, &scene->machine, &prediction, &err), ERR_OK);
    assert_true(prediction.paged_out_bytes > 0);
    assert_int_equal(step_time(&prediction, job, &scene->machine, 0, &time, &err), ERR_OK);
    /* another strategy first: what was found of this one is of the roomy device */
    struct strategy other = job->strategy;
    other.max_norm = other.max_norm > 0 ? 0 : 1;
    assert_int_equal(estimate_with(scene->estimator, &other, &options, &found, &err), ERR_OK);
    assert_int_equal(estimate_with(scene->estimator, &job->strategy, &options, &found, &err),
                     ERR_OK);
    assert_true(fabs(found.step_s - time.timeline.step_s) <= TIME_TOLERANCE * time.timeline.step_s);
    scene->paged++;
    step_time_free(&time);
    prediction_free(&prediction);
    scene->machine = before;
}

/* Whether the strategy can be had; then the estimate is the prediction. */
static bool compare(struct scene *scene, const struct job *job)
{
    struct err first = {0}, second = {0};
    struct estimate found;
    struct prediction prediction;
    struct step_time time;
    const struct estimate_options options = {.wanted = ESTIMATE_TIME | ESTIMATE_DEVICE,
                                             .expandable_segments =
                                                 scene->machine.expandable_segments};
    compare_short(scene, job);
    const enum err_code rc =
        estimate_with(scene->estimator, &job->strategy, &options, &found, &first);
    assert_int_equal(predict(job, &scene->machine, &prediction, &second), ERR_OK);
    const enum err_code timed = step_time(&prediction, job, &scene->machine, 0, &time, &second);
    assert_int_equal(rc, timed);
    if (rc != ERR_OK) {
        assert_string_equal(first.text, second.text);
        prediction_free(&prediction);
        return false;
    }
    assert_int_equal(found.requested_bytes, prediction.memory.requested.bytes);
    assert_int_equal(found.outside_bytes, prediction.outside_bytes);
    assert_true(found.least_bytes <= prediction.device_bytes);
    assert_int_equal(found.device_bytes, told_bytes(&prediction));
    if (job->strategy.system == SYSTEM_FSDP2)
        assert_false(found.replayed);
    if (prediction.call_count == 0) { /* no stalls, which an estimate has not */
        const double step_s = time.timeline.step_s;
        assert_true(fabs(found.step_s - step_s) <= TIME_TOLERANCE * step_s);
    }
    compare_clocked(scene, job, &prediction, &options);
    compare_paged(scene, job, prediction.paged_bytes > 0);
    step_time_free(&time);
    prediction_free(&prediction);
    return true;
}

static void random_jobs_are_estimated_as_predicted(void **state)
{
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    uint32_t compared = 0;
    (void)state;
    gsl_rng_set(rng, SEED);
    for (int i = 0; i < JOBS; i++) {
        struct job job = random_job(rng);
        struct scene scene;
        job.strategy.world = job.strategy.world > 8 ? 64 : job.strategy.world;
        job.strategy.rank %= job.strategy.world;
        job.model.torch = i % 4 == 3 ? TORCH_NEWEST : 0;
        set_up(&scene, &job);
        scene.machine.expandable_segments = i % 2;
        compared += compare(&scene, &job);
        tear_down(&scene);
    }
    assert_true(compared > JOBS / 2);
    gsl_rng_free(rng);
}

static bool is_zero(enum system_kind system)
{
    return system == SYSTEM_ZERO1 || system == SYSTEM_ZERO2 || system == SYSTEM_ZERO3;
}

/* Buckets, groups and limits of a few parameters, and of all. */
static void choose_zero(struct strategy *s, uint32_t i)
{
    const bool stage3 = s->system == SYSTEM_ZERO3;
    s->zero = zero_defaults(stage3 ? 3 : s->system == SYSTEM_ZERO2 ? 2 : 1);
    s->zero.contiguous_gradients = i % 5 != 1;
    s->zero.reduce_scatter = stage3 || i % 5 != 2;
    s->zero.overlap_comm = i % 4 > 1;
    s->zero.round_robin_gradients = i % 6 == 3;
    s->zero.reduce_bucket_size = i % 3 ? 20000000 : 500000000;
    s->zero.sub_group_size = i % 4 ? 100000000 : 1000000000;
    s->zero.prefetch_bucket_size = i % 3 == 2 ? 20000000 : 50000000;
    s->zero.param_persistence_threshold = i % 2 ? 100000 : 1000;
    s->zero.max_live_parameters = i % 7 ? 1000000000 : 100000000;
    s->zero.max_reuse_distance = i % 5 ? 1000000000 : 0;
    s->zero.hpz_partition_size = stage3 && i % 8 == 6 ? 8 : 1;
}

static void choose_fsdp1(struct strategy *s, uint32_t i)
{
    static const enum sharding shardings[] = {SHARDING_FULL, SHARDING_GRAD_OP, SHARDING_HYBRID,
                                              SHARDING_HYBRID_ZERO2, SHARDING_NONE};
    s->sharding = shardings[i % 5];
    s->replicate = s->sharding == SHARDING_HYBRID || s->sharding == SHARDING_HYBRID_ZERO2 ? 2 : 1;
    s->reshard = RESHARD_DEFAULT;
    s->forward_prefetch = i % 2;
    s->backward_prefetch = 0;
    s->prefetch = (enum backward_prefetch)(i / 2 % 3);
    s->use_orig_params = i % 3;
    s->unlimited_gathers = i / 4 % 4 == 1;
    s->max_norm = 0;
}

static enum optimizer_kind choose_optimizer(const struct strategy *s, uint32_t i)
{
    static const enum optimizer_kind kinds[] = {
        OPTIMIZER_AO_8BIT,
        OPTIMIZER_AO_4BIT,
        OPTIMIZER_BNB_8BIT,
        OPTIMIZER_BNB_PAGED_8BIT,
    };
    if (i % 3 != 1 || strategy_offloads(s))
        return OPTIMIZER_ADAMW;
    return kinds[i / 3 % (s->system == SYSTEM_FSDP2 || s->keep_low_precision_grads ? 2 : 4)];
}

static void choose(struct strategy *s, uint32_t i)
{
    static const uint32_t micro_batches[] = {1, 2, 5, 16, 40}; /* many of them are not simulated */
    const bool sharded = s->system == SYSTEM_FSDP2;
    s->world = 8U << (i % 4);
    s->replicate = sharded ? 1U << (i % 2) : 1;
    s->reshard = (enum reshard_kind)(i % 4);
    s->reshard_ranks = 4;
    s->per_unit = 1 + i % 3;
    s->forward_prefetch = i % 3;
    s->backward_prefetch = i / 3 % 3;
    s->accumulate = micro_batches[i % 5];
    s->accumulate_sync = i / 2 % 2;
    s->impl = (enum optimizer_impl)(i % 3);
    s->max_norm = (float)(i % 2);
    s->offload = sharded && i % 7 == 3;
    s->keep_last = sharded && i % 3 == 1 ? i % 16 : 0;
    s->bucket_cap_mb = (float)(5 * (i % 4));
    s->bucket_view = i % 3 == 1;
    if (is_zero(s->system))
        choose_zero(s, i);
    if (s->system == SYSTEM_FSDP1)
        choose_fsdp1(s, i);
    s->optimizer = choose_optimizer(s, i);
}

/* One estimator after another strategy, as a search does: nothing of the one before is left. The
 * model is large enough for collectives to begin and end within spans. */
static void strategies_of_one_stream(enum system_kind system, const char *preset, uint32_t torch)
{
    struct model_config config;
    struct job job;
    struct scene scene;
    struct err err = {0};
    uint32_t compared = 0;
    assert_int_equal(model_preset_find(preset, &config, &err), ERR_OK);
    job_defaults(&job, &config);
    job.model.seq = config.max_positions < 2048 ? config.max_positions : 2048;
    job.model.torch = torch;
    job.strategy.system = system;
    if (system == SYSTEM_DDP || is_zero(system))
        job.model.compute = job.strategy.compute = job.strategy.reduce = job.strategy.store;
    set_up(&scene, &job);
    const uint32_t count = is_soak() ? SOAK_STRATEGIES : STRATEGIES;
    for (uint32_t i = 0; i < count; i++) {
        choose(&job.strategy, i);
        scene.machine.expandable_segments = i / 2 % 2;
        compared += compare(&scene, &job);
    }
    assert_int_equal(compared, count);
    if (system == SYSTEM_FSDP1 || system == SYSTEM_ZERO3)
        assert_true(scene.by_clock > 0);
    if (system == SYSTEM_DDP || system == SYSTEM_ZERO1)
        assert_true(scene.paged > 0);
    tear_down(&scene);
}

static void one_stream_serves_many_of_fsdp2(void **state)
{
    (void)state;
    strategies_of_one_stream(SYSTEM_FSDP2, "llama-3.2-1b", 0);
}

/* Gradients are cast where they are given, in some micro-batches and not in others; those of the
 * embedding, which is the head, too, before they are added up. */
static void one_stream_serves_casts_by_use(void **state)
{
    (void)state;
    strategies_of_one_stream(SYSTEM_FSDP2, "gpt2", 15);
}

static void one_stream_serves_many_of_fsdp1(void **state)
{
    (void)state;
    strategies_of_one_stream(SYSTEM_FSDP1, "llama-3.2-1b", 0);
}

static void one_stream_serves_many_of_ddp(void **state)
{
    (void)state;
    strategies_of_one_stream(SYSTEM_DDP, "llama-3.2-1b", 0);
}

static void one_stream_serves_many_of_zero(void **state)
{
    (void)state;
    strategies_of_one_stream(SYSTEM_ZERO1, "llama-3.2-1b", 0);
    strategies_of_one_stream(SYSTEM_ZERO2, "llama-3.2-1b", 0);
    strategies_of_one_stream(SYSTEM_ZERO3, "llama-3.2-1b", 0);
}

/* What an estimate costs is what it simulates. */
static void more_micro_batches_are_no_more_work(enum system_kind system)
{
    struct model_config config;
    struct job job;
    struct scene scene;
    struct estimate few, many;
    struct err err = {0};
    assert_int_equal(model_preset_find("llama-3.2-1b", &config, &err), ERR_OK);
    job_defaults(&job, &config);
    job.strategy.system = system;
    job.strategy.world = 64;
    if (system == SYSTEM_DDP || is_zero(system))
        job.model.compute = job.strategy.compute = job.strategy.reduce = job.strategy.store;
    if (is_zero(system))
        choose_zero(&job.strategy, 0);
    set_up(&scene, &job);
    job.strategy.accumulate = 32;
    assert_int_equal(estimate(scene.estimator, &job.strategy, &few, &err), ERR_OK);
    job.strategy.accumulate = 1 << 16;
    assert_int_equal(estimate(scene.estimator, &job.strategy, &many, &err), ERR_OK);
    assert_in_range(few.timed_batches, 1, 16);
    assert_int_equal(many.timed_batches, few.timed_batches);
    tear_down(&scene);
}

static void a_long_step_is_no_more_work(void **state)
{
    (void)state;
    for (int system = 0; system < SYSTEM_COUNT; system++)
        more_micro_batches_are_no_more_work((enum system_kind)system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_jobs_are_estimated_as_predicted),
        cmocka_unit_test(one_stream_serves_many_of_fsdp2),
        cmocka_unit_test(one_stream_serves_casts_by_use),
        cmocka_unit_test(one_stream_serves_many_of_fsdp1),
        cmocka_unit_test(one_stream_serves_many_of_ddp),
        cmocka_unit_test(one_stream_serves_many_of_zero),
        cmocka_unit_test(a_long_step_is_no_more_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
