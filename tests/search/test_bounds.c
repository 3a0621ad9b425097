/* test_bounds.c - what a search excludes by bounds, no simulation and no allocator lets in again.
 */
#include "cost/cost.h"
#include "job/step_time.h"
#include "search/evaluate.h"
#include "tests/support/small_jobs.h"

#include <gsl/gsl_rng.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SEED = 20261122 };

static gsl_rng *rng;

static uint32_t below(uint32_t n)
{
    return (uint32_t)gsl_rng_uniform_int(rng, n);
}

static void choose_fsdp1(struct strategy *s)
{
    static const enum units_kind units[] = {UNITS_BLOCKS, UNITS_NONE};
    s->per_unit = 1;
    s->units = units[below(2)];
    s->sharding = (enum sharding)below(3);
    s->prefetch = PREFETCH_NONE;
    s->use_orig_params = below(2);
}

/* A frame's fetches are as late as can be: it bounds those that come earlier, too. */
static void fetch_ahead(struct strategy *s)
{
    if (s->system == SYSTEM_FSDP2) {
        s->forward_prefetch = below(4);
        s->backward_prefetch = below(4);
    } else if (s->system == SYSTEM_FSDP1) {
        s->prefetch = (enum backward_prefetch)below(3);
        s->forward_prefetch = below(2);
        s->unlimited_gathers = below(2);
    }
}

static void choose_zero(struct strategy *s)
{
    const uint32_t stage = s->system == SYSTEM_ZERO1 ? 1 : s->system == SYSTEM_ZERO2 ? 2 : 3;
    s->per_unit = 1;
    s->zero = zero_defaults(stage);
    s->zero.overlap_comm = below(2);
    s->zero.reduce_bucket_size = below(2) ? 9000 : 500000000;
    s->zero.prefetch_bucket_size = below(2) ? 5000 : 50000000;
    s->zero.param_persistence_threshold = below(2) ? 40 : 100000;
    s->zero.max_live_parameters = below(2) ? 20000 : 1000000000;
}

static int tried_siblings, known_siblings, close_floors;

static struct job random_job(void)
{
    static const enum system_kind systems[] = {
        SYSTEM_FSDP2, SYSTEM_FSDP2, SYSTEM_FSDP2, SYSTEM_FSDP2, SYSTEM_DDP,
        SYSTEM_FSDP1, SYSTEM_ZERO1, SYSTEM_ZERO2, SYSTEM_ZERO3,
    };
    static const uint32_t worlds[] = {1, 2, 4, 8, 16, 32};
    static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16};
    struct job job = small_job_of_kind((int)below(SMALL_JOBS));
    struct strategy *s = &job.strategy;
    job.tape.checkpointing = (enum checkpointing)below(3);
    job.model.batch = 1 + below(3);
    job.model.seq = 8 << below(8);
    *s = (struct strategy){.world = worlds[below(6)], .replicate = 1, .per_unit = 1 + below(3)};
    s->system = systems[below(sizeof systems / sizeof *systems)];
    s->impl = (enum optimizer_impl)below(3);
    s->accumulate = 1 + below(6);
    s->accumulate_sync = below(2);
    s->max_norm = below(2) ? 1 : 0;
    s->store = DTYPE_FP32;
    s->compute = s->reduce = DTYPE_FP32;
    if (s->system == SYSTEM_FSDP2) {
        s->replicate = s->world > 1 && below(3) == 0 ? 2 : 1;
        s->units = below(3) == 0 ? UNITS_TORCHTITAN : UNITS_BLOCKS;
        s->reshard = (enum reshard_kind)below(3);
        if (s->world / s->replicate % 4 == 0 && below(4) == 0) {
            s->reshard = RESHARD_INT;
            s->reshard_ranks = 2;
        }
        s->keep_last = below(2) ? 0 : below(4);
        s->offload = below(6) == 0;
        s->compute = dtypes[below(2)];
        s->reduce = dtypes[below(2)];
    } else if (s->system == SYSTEM_FSDP1) {
        choose_fsdp1(s);
        s->compute = dtypes[below(2)];
        s->reduce = dtypes[below(2)];
    } else if (s->system != SYSTEM_DDP) {
        choose_zero(s);
        s->compute = s->reduce = dtypes[below(2)];
    } else {
        s->bucket_view = below(2);
        s->bucket_cap_mb = below(2) ? 0 : 0.05F;
    }
    job.model.compute = s->compute;
    return job;
}

/* What is known of it by one that updates otherwise. Returns whether anything is. */
static bool try_sibling(struct evaluator *evaluator, const struct stream_class *class,
                        const struct frame *frame, const struct strategy *strategy, double step_s)
{
    struct strategy sibling = *strategy, a = *strategy;
    struct evaluation fast;
    sibling.impl = (enum optimizer_impl)((strategy->impl + 1) % 3);
    struct strategy b = sibling;
    strategy_until_update(&a);
    strategy_until_update(&b);
    assert_int_equal(a.impl, b.impl);
    if (evaluate_fast(evaluator, class, &sibling, &fast, NULL) != ERR_OK)
        return false;
    assert_true(fast.update_s <= fast.step_s);
    const double floor_s = frame_floor_behind(frame, fast.update_s);
    if (floor_s > step_s)
        fail_msg("a floor of %.9g s by a sibling for a step of %.9g s", floor_s, step_s);
    close_floors += floor_s > 0.9 * step_s;
    return floor_s > 0;
}

static const char *const gpus[] = {"h100-sxm", "a100-sxm-40gb", "l4", "v100-sxm2-32gb", "b200"};

static void try_bounds(const struct machine *machine)
{
    struct evaluator *evaluator = evaluator_new(machine);
    struct job job = random_job();
    struct err err = {0};
    struct stream_class *class;
    struct frame *frame;
    struct evaluation fast;
    uint64_t bytes;
    if (stream_class_new(&job, machine, &class, &err) != ERR_OK) {
        assert_int_not_equal(err.code, ERR_INTERNAL);
        evaluator_free(evaluator);
        return;
    }
    if (frame_new(evaluator_framer(evaluator), class, &job.strategy, &frame, &err) == ERR_OK) {
        const double step_floor = frame_step_floor(frame, class, job.strategy.accumulate);
        const uint64_t device_floor = frame_device_floor(frame, class);
        uint64_t pools;
        assert_int_equal(evaluate_pools(evaluator, class, &job.strategy,
                                        machine->expandable_segments, 0, &pools, &err),
                         ERR_OK);
        pools = pools && system_fetches_apart(job.strategy.system) ? pools + frame->beside : 0;
        fetch_ahead(&job.strategy);
        assert_int_equal(evaluate_fast(evaluator, class, &job.strategy, &fast, &err), ERR_OK);
        assert_int_equal(evaluate_full(evaluator, class, &job.strategy,
                                       machine->expandable_segments, 0, &bytes, &err),
                         ERR_OK);
        if (step_floor > fast.step_s || fast.step_s <= 0)
            fail_msg("a floor of %.9g s for a step of %.9g s", step_floor, fast.step_s);
        if (device_floor > bytes || fast.device_floor > bytes || pools > bytes)
            fail_msg("floors of %llu, %llu and %llu bytes for %llu",
                     (unsigned long long)device_floor, (unsigned long long)fast.device_floor,
                     (unsigned long long)pools, (unsigned long long)bytes);
        tried_siblings++;
        known_siblings += try_sibling(evaluator, class, frame, &job.strategy, fast.step_s);
        frame_free(frame);
    }
    evaluator_free(evaluator);
    stream_class_free(class);
}

/* SEARCH_SOAK=10000 tries so many. */
static void bounds_never_exceed_what_is_simulated(void **state)
{
    (void)state;
    const char *soak = getenv("SEARCH_SOAK");
    const int tries = soak ? atoi(soak) : 1500;
    for (int g = 0; g < (int)(sizeof gpus / sizeof gpus[0]); g++) {
        struct machine machine = {.gpus_per_node = g % 2 ? 8 : 4, .expandable_segments = g % 2};
        struct err err = {0};
        assert_int_equal(profile_find(gpus[g], &machine.profile, &err), ERR_OK);
        for (int i = 0; i < tries / 5; i++)
            try_bounds(&machine);
        profile_free(&machine.profile);
    }
    assert_true(3 * known_siblings > tried_siblings);
    assert_true(2 * close_floors > known_siblings);
}

/* ---- one stream on other numbers of GPUs ---- */

static bool same_on_twice_the_gpus(const struct machine *machine)
{
    struct job job = random_job();
    struct stream_class *made, *of, *own;
    if (stream_class_new(&job, machine, &made, NULL) != ERR_OK)
        return false;
    job.strategy.world *= 2;
    const enum err_code rc = stream_class_new(&job, machine, &own, NULL);
    assert_int_equal(stream_class_of(made, &job, machine, &of, NULL), rc);
    if (rc == ERR_OK) {
        assert_memory_equal(&of->busy, &own->busy, sizeof own->busy);
        assert_int_equal(of->partial_count, own->partial_count);
        assert_memory_equal(of->partials, own->partials,
                            own->partial_count * sizeof *own->partials);
        assert_true(stream_class_same_hooks(of, own));
        assert_int_equal(stream_class_device_floor(of), stream_class_device_floor(own));
        assert_true(stream_class_most_tokens(of) == stream_class_most_tokens(own));
    }
    stream_class_free(of);
    stream_class_free(own);
    stream_class_free(made);
    return rc == ERR_OK;
}

/* What searches share of a stream is what each would have made. */
static void a_class_of_a_stream_is_one_made_for_its_gpus(void **state)
{
    (void)state;
    struct machine machine = {.gpus_per_node = 8};
    uint32_t compared = 0;
    assert_int_equal(profile_find("h100-sxm", &machine.profile, NULL), ERR_OK);
    for (int i = 0; i < 200; i++)
        compared += same_on_twice_the_gpus(&machine);
    assert_true(compared > 100);
    profile_free(&machine.profile);
}

/* ---- draws ---- */

/* Rounding of sums of thousands of kernels' times. */
#define ROUNDING 1e-9

/* Whether micro-batches of the job repeat, so that few stand for all. */
static bool same_draws(const struct machine *machine, struct evaluator *evaluator)
{
    enum { DRAWS = 6 };
    struct job job = random_job();
    struct err err = {0};
    struct stream_class *class;
    struct plan *plan;
    struct costs costs;
    double few[DRAWS], all[DRAWS];
    job.strategy.accumulate = 5 + below(60);
    if (stream_class_new(&job, machine, &class, &err) != ERR_OK)
        return false;
    const bool can =
        lower_plan(class->graph, class->stream, &job.strategy, &plan, &err) == ERR_OK &&
        costs_of_plan(plan, &machine->profile, machine->gpus_per_node, &costs, &err) == ERR_OK;
    if (can) {
        step_draws(plan, &costs, DRAWS, all);
        assert_int_equal(evaluate_draws(evaluator, class, &job.strategy, DRAWS, few, &err), ERR_OK);
        for (int i = 0; i < DRAWS; i++)
            if (fabs(few[i] - all[i]) > ROUNDING * all[i])
                fail_msg("draw %d of %u micro-batches: %.12g instead of %.12g s", i,
                         job.strategy.accumulate, few[i], all[i]);
        costs_free(&costs);
    }
    plan_free(plan);
    stream_class_free(class);
    return can;
}

/* The cost of a draw does not grow with accumulation, and what it says is of the whole step. */
static void draws_of_few_micro_batches_are_those_of_all(void **state)
{
    (void)state;
    struct machine machine = {.gpus_per_node = 8};
    uint32_t compared = 0;
    assert_int_equal(profile_find("h100-sxm", &machine.profile, NULL), ERR_OK);
    for (int i = 0; i < 60; i++) {
        struct evaluator *evaluator = evaluator_new(&machine); /* which knows classes by address */
        compared += same_draws(&machine, evaluator);
        evaluator_free(evaluator);
    }
    assert_true(compared > 30);
    profile_free(&machine.profile);
}

/* ---- the host ---- */

static struct job offloaded_job(void)
{
    struct job job = random_job();
    struct strategy *s = &job.strategy;
    s->offload = s->system == SYSTEM_FSDP1 || s->system == SYSTEM_FSDP2;
    if (system_zero_stage(s->system)) {
        s->zero.optimizer =
            (struct zero_offload){.on = true, .pageable = below(2), .ratio = below(2) ? 1 : 0.5};
        s->zero.param = (struct zero_offload){
            .on = s->system == SYSTEM_ZERO3 && below(2), .pageable = below(2), .ratio = 1};
        s->accumulate_sync = false;
    }
    s->max_norm = 0;
    return job;
}

/* Of whatever the members of a frame fetch ahead, the program takes as much of the host. */
static bool same_host(const struct machine *machine, struct evaluator *evaluator)
{
    const struct memory_options sums = {.without_allocator = true};
    struct job job = offloaded_job();
    struct err err = {0};
    struct stream_class *class;
    struct frame *frame = NULL;
    struct plan *plan = NULL;
    struct memory memory;
    bool large = false;
    if (stream_class_new(&job, machine, &class, &err) != ERR_OK)
        return false;
    if (frame_new(evaluator_framer(evaluator), class, &job.strategy, &frame, &err) == ERR_OK) {
        fetch_ahead(&job.strategy);
        assert_int_equal(lower_plan(class->graph, class->stream, &job.strategy, &plan, &err),
                         ERR_OK);
        assert_int_equal(memory_replay(plan, &sums, NULL, NULL, &memory, &err), ERR_OK);
        if (frame->host != memory.host_held_bytes)
            fail_msg("%s, %u micro-batches: %llu bytes of the host, not %llu",
                     system_name(job.strategy.system), job.strategy.accumulate,
                     (unsigned long long)frame->host, (unsigned long long)memory.host_held_bytes);
        large = memory.host.bytes > 4096; /* more than step counters */
        plan_free(plan);
        frame_free(frame);
    }
    stream_class_free(class);
    return large;
}

static void a_frame_knows_what_a_process_takes_of_its_host(void **state)
{
    (void)state;
    struct machine machine = {.gpus_per_node = 8};
    uint32_t compared = 0;
    assert_int_equal(profile_find("h100-sxm", &machine.profile, NULL), ERR_OK);
    for (int i = 0; i < 300; i++) {
        struct evaluator *evaluator = evaluator_new(&machine);
        compared += same_host(&machine, evaluator);
        evaluator_free(evaluator);
    }
    assert_true(compared > 100);
    profile_free(&machine.profile);
}

/* ---- limits ---- */

struct limited {
    const struct machine *machine;
    struct evaluator *evaluator;
    const struct strategy *strategy;
    struct stream_class *class;
    const struct frame *frame; /* without a limit */
};

/* Whether it is given up at so many bytes of the device; if not, it is the same frame. */
static bool is_given_up(const struct limited *l, const struct machine *machine, uint64_t bytes)
{
    const uint64_t of = 1;
    const struct frame_limit limit = {&l->class, &of, 1, bytes, true};
    struct framer *framer = framer_new(machine);
    struct frame *frame;
    assert_int_equal(frame_new_within(framer, l->class, l->strategy, &limit, &frame, NULL), ERR_OK);
    const bool given_up = frame->beyond;
    const size_t size = 2 * (size_t)frame->gap_count * sizeof *frame->during;
    if (given_up) {
        assert_true(frame->timeless && frame_device_floor(frame, l->class) == UINT64_MAX);
    } else {
        assert_memory_equal(frame->during, l->frame->during, size);
        assert_int_equal(frame->apart, l->frame->apart);
        assert_int_equal(frame->host, l->frame->host);
    }
    frame_free(frame);
    framer_free(framer);
    return given_up;
}

/* Of a host with so many bytes for each of its ranks. */
static bool is_given_up_with_host(const struct limited *l, uint64_t bytes)
{
    struct machine machine = *l->machine;
    const uint32_t ranks =
        profile_host_ranks(&machine.profile, l->strategy->world, machine.gpus_per_node);
    machine.profile.of[PROFILE_HOST_CAPACITY].value = (double)(bytes * ranks);
    return is_given_up(l, &machine, UINT64_MAX / 2);
}

/* Bytes of the compute stream's pool at most, while the stream runs or (`all`) at any time. */
static uint64_t most_bytes(const struct frame *frame, const struct stream_class *class, bool all)
{
    uint64_t most = all ? frame->apart : 0;
    for (uint32_t g = 0; g < frame->gap_count; g++) {
        const uint64_t during = frame->during[g] + class->gaps[g].peak;
        const uint64_t after = frame->after[g] + class->gaps[g].live;
        most = during > most ? during : most;
        most = after > most ? after : most;
    }
    return most + class->workspace;
}

struct given_up {
    uint32_t tried, by_peak, of_host;
};

/* At what it takes, by the allocator and to the byte, it never is; a byte below its peak it is. */
static void try_limits(const struct limited *l, struct given_up *n)
{
    uint64_t bytes = 0;
    struct strategy ahead = *l->strategy;
    const uint64_t peak = most_bytes(l->frame, l->class, false);
    fetch_ahead(&ahead);
    assert_int_equal(evaluate_full(l->evaluator, l->class, &ahead, false, 0, &bytes, NULL), ERR_OK);
    if (is_given_up(l, l->machine, bytes) ||
        is_given_up(l, l->machine, most_bytes(l->frame, l->class, true)))
        fail_msg("%s is given up at what it takes", system_name(l->strategy->system));
    if (l->frame->host && is_given_up_with_host(l, l->frame->host))
        fail_msg("%s is given up at what it takes of a host", system_name(l->strategy->system));
    n->tried++;
    n->by_peak += is_given_up(l, l->machine, peak - 1);
    n->of_host += l->frame->host > 1U << 16 && is_given_up_with_host(l, l->frame->host / 4);
}

/* Whoever gives up before a strategy is lowered in whole does so by what it takes at least. */
static void what_is_given_up_takes_more_than_the_limit(void **state)
{
    (void)state;
    struct machine machine = {.gpus_per_node = 8};
    struct given_up n[SYSTEM_COUNT] = {{0}}, all = {0};
    assert_int_equal(profile_find("h100-sxm", &machine.profile, NULL), ERR_OK);
    for (int i = 0; i < 600; i++) {
        const struct job job = i % 2 ? random_job() : offloaded_job();
        struct limited l = {&machine, evaluator_new(&machine), &job.strategy, NULL, NULL};
        struct frame *frame = NULL;
        if (stream_class_new(&job, &machine, &l.class, NULL) == ERR_OK &&
            frame_new(evaluator_framer(l.evaluator), l.class, &job.strategy, &frame, NULL) ==
                ERR_OK) {
            l.frame = frame;
            try_limits(&l, &n[job.strategy.system]);
        }
        frame_free(frame);
        stream_class_free(l.class);
        evaluator_free(l.evaluator);
    }
    for (int s = 0; s < SYSTEM_COUNT; s++) {
        if (n[s].by_peak < n[s].tried)
            fail_msg("%s is given up %u times of %u", system_name((enum system_kind)s),
                     n[s].by_peak, n[s].tried);
        all.tried += n[s].tried;
        all.of_host += n[s].of_host;
    }
    assert_true(all.tried > 300 && all.of_host > 100);
    profile_free(&machine.profile);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_never_exceed_what_is_simulated),
        cmocka_unit_test(a_class_of_a_stream_is_one_made_for_its_gpus),
        cmocka_unit_test(draws_of_few_micro_batches_are_those_of_all),
        cmocka_unit_test(a_frame_knows_what_a_process_takes_of_its_host),
        cmocka_unit_test(what_is_given_up_takes_more_than_the_limit),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
