/* test_search.c - what a search finds is what trying everything finds, and its bounds are bounds.
 */
#include "frameworks/export.h"
#include "job/step_time.h"
#include "search/tune.h"
#include "settings/settings_resolve.h"
#include "tests/support/small_jobs.h"

#include <gsl/gsl_rng.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEED = 20261122, MOST_POINTS = 10240 };

/* ---- bounds ---- */

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
        fetch_ahead(&job.strategy);
        assert_int_equal(evaluate_fast(evaluator, class, &job.strategy, &fast, &err), ERR_OK);
        assert_int_equal(evaluate_full(evaluator, class, &job.strategy,
                                       machine->expandable_segments, 0, &bytes, &err),
                         ERR_OK);
        if (step_floor > fast.step_s || fast.step_s <= 0)
            fail_msg("a floor of %.9g s for a step of %.9g s", step_floor, fast.step_s);
        if (device_floor > bytes || fast.device_floor > bytes)
            fail_msg("floors of %llu and %llu bytes for %llu", (unsigned long long)device_floor,
                     (unsigned long long)fast.device_floor, (unsigned long long)bytes);
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
}

/* ---- against trying everything ---- */

struct tried { /* in full, by the way that fit and plan take */
    double step_s;
    uint64_t device_bytes;
};

static struct settings settings_of(const char *const *pairs)
{
    struct settings settings;
    struct err err = {0};
    settings_defaults(&settings, COMMAND_TUNE);
    for (; pairs[0]; pairs += 2)
        if (settings_set(&settings, pairs[0], pairs[1], &err) != ERR_OK)
            fail_msg("%s", err.text);
    return settings;
}

static bool try_point(const struct tuned *t, const struct grid *grid, uint64_t point,
                      struct tried *out)
{
    struct settings settings;
    struct job job;
    struct prediction prediction;
    struct step_time time;
    struct memory memory;
    struct machine machine = t->machine;
    grid_settings(grid, point, &settings);
    machine.expandable_segments = settings.expandable_segments;
    if (settings_job(&settings, &t->job.config, &job, NULL) != ERR_OK ||
        predict(&job, &machine, &prediction, NULL) != ERR_OK)
        return false;
    prediction.call_count = 0; /* the step without what giving memory back costs */
    assert_int_equal(step_time(&prediction, &job, &machine, 0, &time, NULL), ERR_OK);
    const struct memory_options options = machine_memory(&machine);
    assert_int_equal(memory_replay(prediction.plan, &options, NULL, NULL, &memory, NULL), ERR_OK);
    *out = (struct tried){time.timeline.step_s, memory.reserved_bytes + prediction.outside_bytes};
    step_time_free(&time);
    prediction_free(&prediction);
    return true;
}

static int by_step(const void *x, const void *y)
{
    const struct tried *a = x, *b = y;
    if (a->step_s != b->step_s)
        return a->step_s < b->step_s ? -1 : 1;
    return a->device_bytes < b->device_bytes ? -1 : a->device_bytes > b->device_bytes;
}

/* The front of all that fit, in place; returns its length. */
static uint32_t brute_front(struct tried *tried, uint32_t count, uint64_t limit)
{
    uint32_t kept = 0;
    uint64_t best = limit + 1;
    qsort(tried, count, sizeof *tried, by_step);
    for (uint32_t i = 0; i < count; i++)
        if (tried[i].device_bytes < best) {
            best = tried[i].device_bytes;
            tried[kept++] = tried[i];
        }
    return kept;
}

/* Adds up candidates that are excluded with their class. */
static void compare_with_brute_force(const char *const *pairs, uint32_t *unframed)
{
    static struct tried tried[MOST_POINTS];
    const struct settings settings = settings_of(pairs);
    const struct tune_options options = {.threads = 2, .grain_bytes = 1};
    struct tuned t;
    struct err err = {0};
    uint32_t count = 0;
    if (tune(&settings, &options, &t, &err) != ERR_OK)
        fail_msg("%s", err.text);
    assert_true(t.space.points <= MOST_POINTS && t.space.points > 50);
    for (uint32_t g = 0; g < t.space.grid_count; g++) {
        const struct grid *grid = &t.space.grids[g];
        for (uint64_t p = 0; p < grid->outer_points * grid->inner_points; p++)
            count += try_point(&t, grid, p, &tried[count]);
    }
    const uint64_t possible = t.space.points - t.candidates.impossible;
    assert_int_equal(count, possible);
    assert_true(t.search.configurations <= possible);
    for (uint32_t i = 0; i < t.candidates.count; i++)
        *unframed += !!isinf(t.candidates.at[i].step_floor_s);
    const uint32_t front = brute_front(tried, count, t.limit_bytes);
    assert_true(front > 0);
    assert_int_equal(t.search.front_count, front);
    for (uint32_t i = 0; i < front; i++) {
        assert_true(fabs(t.search.front[i].step_s / tried[i].step_s - 1) < 1e-9);
        assert_int_equal(t.search.front[i].device_bytes, tried[i].device_bytes);
    }
    assert_true(t.chosen.device_bytes <= t.limit_bytes);
    assert_true(t.chosen.weight <= t.search.front[0].weight);
    tune_free(&t);
}

#define TOY "model", "tests/data/configs/toy-llama", "seq", "512"

static void brute_force_finds_the_same_front(void **state)
{
    (void)state;
    static const char *const spaces[][32] = {
        {TOY,     "gpus",
         "4",     "global-batch",
         "16",    "strategy",
         "fsdp2", "replicate",
         "1",     "backward-prefetch",
         "0",     "keep-unsharded",
         "0",     "optimizer-impl",
         "fused", "offload",
         "none",  "expandable-segments",
         "off",   "checkpoint-blocks",
         "all"},
        {TOY,          "gpus",
         "16",         "global-batch",
         "32",         "strategy",
         "fsdp2",      "accumulate-sync",
         "last",       "units",
         "torchtitan", "forward-prefetch",
         "2",          "keep-unsharded",
         "0",          "backward-prefetch",
         "0",          "offload",
         "none",       "optimizer-impl",
         "foreach",    "checkpoint-blocks",
         "all"},
        {TOY, "gpus", "2", "global-batch", "8", "strategy", "ddp", "gpu", "l4"},
        {TOY, "gpus", "4", "global-batch", "64", "strategy", "zero2", "checkpoint-blocks", "all"},
        {TOY, "gpus", "4", "global-batch", "64", "strategy", "zero3", "checkpoint-blocks", "all"},
        {TOY, "gpus", "4", "strategy", "fsdp2", "checkpointing", "none", "units", "2",
         "optimizer-impl", "loop", "max-memory", "1720MiB", "replicate", "2", "accumulate-sync",
         "last", "backward-prefetch", "1"},
        /* large micro-batches take too much by themselves: no strategy is lowered for them */
        {"model",
         "tests/data/configs/toy-llama",
         "seq",
         "16384",
         "gpus",
         "2",
         "strategy",
         "fsdp2",
         "global-batch",
         "64",
         "units",
         "blocks",
         "replicate",
         "1",
         "keep-unsharded",
         "0",
         "forward-prefetch",
         "0",
         "backward-prefetch",
         "0",
         "optimizer-impl",
         "fused",
         "max-memory",
         "4GiB",
         "offload",
         "none"},
        {"model",
         "tests/data/configs/toy-llama",
         "seq",
         "2048",
         "gpus",
         "2",
         "strategy",
         "fsdp2",
         "units",
         "blocks",
         "reshard",
         "always",
         "optimizer-impl",
         "fused",
         "micro-batch",
         "4",
         "keep-unsharded",
         "0",
         "max-memory",
         "2GiB",
         "offload",
         "none"},
        /* with the values that are searched where that is allowed */
        {TOY,
         "gpus",
         "4",
         "strategy",
         "fsdp2",
         "allow",
         "loss",
         "allow",
         "units",
         "allow",
         "checkpoint-blocks",
         "reshard",
         "default",
         "optimizer-impl",
         "fused",
         "replicate",
         "1",
         "keep-unsharded",
         "0",
         "forward-prefetch",
         "0",
         "backward-prefetch",
         "0",
         "offload",
         "none",
         "max-memory",
         "1700MiB"},
    };
    uint32_t unframed = 0;
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++)
        compare_with_brute_force(spaces[i], &unframed);
    assert_true(unframed > 0);
}

/* ---- threads, options ---- */

static void any_number_of_threads_finds_the_same(void **state)
{
    (void)state;
    static const char *const pairs[] = {TOY,    "gpus",  "8",      "global-batch", "32", "offload",
                                        "none", "units", "blocks", "replicate",    "1",  NULL};
    const struct settings settings = settings_of(pairs);
    struct tuned t[3];
    struct err err = {0};
    for (uint32_t threads = 1; threads <= 3; threads++) {
        const struct tune_options options = {.threads = threads, .grain_bytes = 1 << 20};
        assert_int_equal(tune(&settings, &options, &t[threads - 1], &err), ERR_OK);
    }
    for (int i = 1; i < 3; i++) {
        assert_int_equal(t[i].search.front_count, t[0].search.front_count);
        assert_memory_equal(t[i].search.front, t[0].search.front,
                            t[0].search.front_count * sizeof *t[0].search.front);
        assert_int_equal(t[i].search.simulated_count, t[0].search.simulated_count);
        assert_int_equal(t[i].search.verified, t[0].search.verified);
        assert_int_equal(t[i].chosen.point, t[0].chosen.point);
        assert_int_equal(t[i].runner_count, t[0].runner_count);
    }
    for (int i = 0; i < 3; i++)
        tune_free(&t[i]);
}

static void tune_fixed(struct tuned *out, const char *fix, const char *allow, uint64_t max_memory,
                       uint64_t headroom)
{
    static const char *const pairs[] = {TOY,     "gpus",           "8",      "offload",
                                        "none",  "units",          "blocks", "strategy",
                                        "fsdp2", "keep-unsharded", "0",      NULL};
    struct settings settings = settings_of(pairs);
    const struct tune_options options = {.threads = 1};
    struct err err = {0};
    if (fix)
        settings.tune.fix.at[settings.tune.fix.count++] = fix;
    if (allow)
        settings.tune.allow.at[settings.tune.allow.count++] = allow;
    settings.tune.max_memory = max_memory;
    settings.tune.headroom = headroom;
    if (tune(&settings, &options, out, &err) != ERR_OK)
        fail_msg("%s", err.text);
}

static void what_is_fixed_stays_and_what_is_allowed_moves(void **state)
{
    (void)state;
    struct tuned open, fixed, allowed;
    tune_fixed(&open, NULL, NULL, 0, 0);
    tune_fixed(&fixed, "reshard=always", NULL, 0, 0);
    tune_fixed(&allowed, NULL, "store-dtype", 0, 0);
    assert_true(fixed.choice.job.strategy.reshard == RESHARD_ALWAYS);
    assert_true(fixed.space.points < open.space.points);
    assert_int_equal(allowed.space.points, 2 * open.space.points);
    assert_true(open.choice.job.strategy.store == DTYPE_FP32);
    assert_true(fixed.search.front[0].step_s >= open.search.front[0].step_s);
    assert_true(allowed.search.front[0].step_s <= open.search.front[0].step_s);
    tune_free(&open);
    tune_free(&fixed);
    tune_free(&allowed);
}

/* As if it had not been given, but for where the search begins: DDP computes in fp32. */
static void a_system_that_is_given_may_be_left(void **state)
{
    (void)state;
    static const char *const open[] = {TOY, "gpus", "4", "param-dtype", "fp32", NULL};
    static const char *const given[] = {TOY, "gpus", "4", "strategy", "ddp", NULL};
    struct settings settings[3] = {settings_of(open), settings_of(given), settings_of(given)};
    const struct tune_options options = {.threads = 1};
    struct tuned t[3];
    struct err err = {0};
    settings[2].tune.allow.at[settings[2].tune.allow.count++] = "strategy";
    for (int i = 0; i < 3; i++)
        assert_int_equal(tune(&settings[i], &options, &t[i], &err), ERR_OK);
    assert_int_equal(t[1].space.grid_count, 1);
    assert_int_equal(t[2].space.grid_count, t[0].space.grid_count);
    assert_true(t[2].space.grids[0].base.job.strategy.system == SYSTEM_DDP);
    assert_true(t[2].search.front[0].step_s == t[0].search.front[0].step_s);
    for (int i = 0; i < 3; i++)
        tune_free(&t[i]);
}

/* ---- what is trained stays what it is ---- */

struct wanted_systems {
    const char *pairs[12];
    const char *allow[3];
    uint32_t searched; /* bits by enum system_kind */
};

/* Every grid's base trains what was asked for, or what it does otherwise is allowed: the rest are
 * left out, each with the names that let it in. */
static void check_systems(const struct wanted_systems *wanted)
{
    struct settings settings = settings_of(wanted->pairs);
    struct model_config config;
    struct space space;
    struct err err = {0};
    uint32_t searched = 0, left = 0;
    for (int i = 0; wanted->allow[i]; i++)
        settings.tune.allow.at[settings.tune.allow.count++] = wanted->allow[i];
    assert_int_equal(model_find(settings.model, &config, &err), ERR_OK);
    const struct space_options options = {.config = &config};
    assert_int_equal(space_new(&settings, &options, &space, &err), ERR_OK);
    for (uint32_t i = 0; i < space.grid_count; i++) {
        struct numerics numerics;
        numerics_compare(&settings, &space.grids[i].base, &config, &numerics);
        searched |= 1U << space.grids[i].base.job.strategy.system;
        for (uint32_t k = 0; k < numerics.count; k++) {
            bool allowed = false;
            for (int n = 0; wanted->allow[n]; n++)
                allowed |= strstr(wanted->allow[n], numerics.settings[k]) != NULL;
            assert_true(allowed);
        }
    }
    for (uint32_t i = 0; i < space.left_out_count; i++) {
        left |= 1U << space.left_out[i].system;
        assert_true(space.left_out[i].numerics.text[0]);
    }
    assert_int_equal(searched, wanted->searched);
    assert_int_equal(searched | left, (1U << SYSTEM_COUNT) - 1);
    assert_int_equal(searched & left, 0);
    space_free(&space);
    model_release(&config);
}

static void systems_that_train_otherwise_are_left_out(void **state)
{
    enum {
        FSDP = 1U << SYSTEM_FSDP1 | 1U << SYSTEM_FSDP2,
        DDP = 1U << SYSTEM_DDP,
        ZERO = 1U << SYSTEM_ZERO1 | 1U << SYSTEM_ZERO2 | 1U << SYSTEM_ZERO3,
    };
    static const struct wanted_systems cases[] = {
        {{TOY, NULL}, {NULL}, FSDP},
        {{TOY, NULL}, {"reduce-dtype", NULL}, FSDP | ZERO},
        {{TOY, NULL}, {"param-dtype", NULL}, FSDP | DDP},
        {{TOY, NULL}, {"param-dtype", "reduce-dtype", NULL}, FSDP | DDP | ZERO},
        {{TOY, NULL}, {"param-dtype,reduce-dtype", NULL}, FSDP | DDP | ZERO},
        /* a dtype that all come to, whether they have a word for it or not */
        {{TOY, "reduce-dtype", "bf16", NULL}, {NULL}, FSDP | ZERO},
        {{TOY, "param-dtype", "fp32", NULL}, {NULL}, FSDP | DDP | ZERO},
        {{TOY, "store-dtype", "bf16", NULL}, {NULL}, FSDP},
        /* from a system whose dtypes the others are told */
        {{TOY, "strategy", "zero3", NULL}, {"strategy", NULL}, FSDP | ZERO},
        {{TOY, "strategy", "ddp", NULL}, {"strategy", NULL}, FSDP | DDP | ZERO},
        /* autocast casts what others compute with */
        {{TOY, "strategy", "ddp", "autocast", "bf16", NULL},
         {"strategy", NULL},
         1U << SYSTEM_FSDP1 | DDP},
        {{TOY, "strategy", "ddp", "autocast", "bf16", NULL},
         {"strategy", "param-dtype", NULL},
         FSDP | DDP},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_systems(&cases[i]);
}

/* A system that nobody gave is one that can do what was; one that was given is held to it. */
static void systems_that_cannot_are_left_out(void **state)
{
    (void)state;
    struct model_config config;
    struct space space;
    struct err err = {0};
    struct settings settings = settings_of((const char *const[]){TOY, "compile", "model", NULL});
    assert_int_equal(model_find(settings.model, &config, &err), ERR_OK);
    const struct space_options options = {.config = &config};
    assert_int_equal(space_new(&settings, &options, &space, &err), ERR_OK);
    assert_int_equal(space.grid_count, 1);
    assert_int_equal(space.grids[0].base.job.strategy.system, SYSTEM_DDP);
    assert_int_equal(space.left_out_count, SYSTEM_COUNT - 1);
    for (uint32_t i = 0; i < space.left_out_count; i++) {
        assert_non_null(strstr(space.left_out[i].numerics.text, "--compile"));
        assert_null(strstr(space.left_out[i].numerics.text, "--autocast")); /* nobody gave it */
    }
    space_free(&space);
    settings =
        settings_of((const char *const[]){TOY, "compile", "model", "strategy", "fsdp2", NULL});
    assert_int_equal(space_new(&settings, &options, &space, &err), ERR_OK);
    assert_int_equal(space.grids[0].base.job.strategy.system, SYSTEM_FSDP2);
    space_free(&space);
    model_release(&config);
}

static void memory_that_is_withheld_is_not_used(void **state)
{
    (void)state;
    struct tuned all, capped, spared, none;
    tune_fixed(&all, NULL, NULL, 0, 0);
    const uint64_t capacity = profile_bytes(&all.machine.profile, PROFILE_CAPACITY);
    const uint64_t cap = all.search.front[0].device_bytes - (2 << 20);
    tune_fixed(&capped, NULL, NULL, cap, 0);
    tune_fixed(&spared, NULL, NULL, 0, capacity - cap);
    assert_true(capped.search.front[0].device_bytes <= cap);
    assert_true(capped.search.front[0].step_s >= all.search.front[0].step_s);
    assert_int_equal(spared.chosen.point, capped.chosen.point);
    assert_int_equal(spared.limit_bytes, cap);
    assert_int_equal(all.limit_bytes, capacity); /* a headroom of 0 is none */
    tune_fixed(&none, NULL, NULL, 1 << 20, 0);
    assert_int_equal(none.search.front_count, 0);
    assert_true(none.search.least_floor > 1 << 20);
    tune_free(&all);
    tune_free(&capped);
    tune_free(&spared);
    tune_free(&none);
}

static void every_reason_is_what_putting_it_back_does(void **state)
{
    (void)state;
    struct tuned t;
    tune_fixed(&t, NULL, NULL, 0, 0);
    assert_true(t.reason_count > 0);
    for (uint32_t i = 0; i < t.reason_count; i++) {
        struct settings back = t.choice;
        struct job job;
        struct prediction prediction;
        struct step_time time;
        struct err err = {0};
        struct machine machine = t.machine;
        assert_int_equal(settings_set(&back, t.reasons[i].name, t.reasons[i].usual, &err), ERR_OK);
        machine.expandable_segments = back.expandable_segments;
        assert_int_equal(settings_job(&back, &t.job.config, &job, &err), ERR_OK);
        assert_int_equal(predict(&job, &machine, &prediction, &err), ERR_OK);
        assert_int_equal(step_time(&prediction, &job, &machine, 0, &time, &err), ERR_OK);
        assert_true(t.reasons[i].step_s == time.timeline.step_s);
        assert_int_equal(t.reasons[i].device_bytes, prediction.device_bytes);
        step_time_free(&time);
        prediction_free(&prediction);
    }
    tune_free(&t);
}

static void what_cannot_be_asked_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *fix, *allow, *says;
    } cases[] = {{"reshard", NULL, "NAME=VALUE"},
                 {"resharding=never", NULL, "did you mean --reshard?"},
                 {"reshard=nevr", NULL, "did you mean never?"},
                 {"json=on", NULL, "no setting of a job"},
                 {NULL, "stored-dtype", "did you mean --store-dtype?"},
                 {NULL, "clip", "no values to search"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static const char *const pairs[] = {TOY, NULL};
        struct settings settings = settings_of(pairs);
        const struct tune_options options = {.threads = 1};
        struct tuned t;
        struct err err = {0};
        if (cases[i].fix)
            settings.tune.fix.at[settings.tune.fix.count++] = cases[i].fix;
        if (cases[i].allow)
            settings.tune.allow.at[settings.tune.allow.count++] = cases[i].allow;
        assert_int_equal(tune(&settings, &options, &t, &err), ERR_INVALID);
        if (!strstr(err.text, cases[i].says))
            fail_msg("said: %s", err.text);
    }
}

/* ---- what cannot be said ---- */

static enum err_code refuse_as(void *context, const struct settings *settings, uint64_t *rows,
                               uint64_t *idle, char *list, size_t size, struct err *err)
{
    struct settings planned = *settings;
    planned.command = COMMAND_PLAN;
    return export_refused(&planned, context, rows, idle, list, size, err);
}

static enum err_code would_as(void *context, const struct settings *settings,
                              struct settings *would, struct arena *arena, struct err *err)
{
    struct settings planned = *settings;
    planned.command = COMMAND_PLAN;
    const enum err_code rc = export_would(&planned, context, would, arena, err);
    would->command = settings->command;
    return rc;
}

static enum err_code tune_to(const char *const *pairs, char *to, struct tuned *out, struct err *err)
{
    const struct settings settings = settings_of(pairs);
    const struct tune_options options = {
        .threads = 2, .refuses = refuse_as, .would = would_as, .refuses_context = to, .reader = to};
    return tune(&settings, &options, out, err);
}

/* Every simulated one is written by the framework's own exporter, which reads it back. */
static void what_a_framework_cannot_say_is_not_searched(void **state)
{
    (void)state;
    static const char *const pairs[] = {TOY, "gpus", "4", "global-batch", "16", NULL};
    struct tuned t;
    struct err err = {0};
    assert_int_equal(tune_to(pairs, "deepspeed", &t, &err), ERR_OK);
    assert_non_null(strstr(t.space.unsaid, "--strategy fsdp2"));
    assert_null(strstr(t.space.unsaid, "--optimizer-impl")); /* the script builds it */
    assert_null(strstr(t.space.unsaid, "zero"));
    assert_true(t.space.grids[0].base.job.strategy.system == SYSTEM_ZERO1); /* the first it runs */
    assert_int_equal(t.space.grid_count, 3);
    for (uint32_t i = 0; i < t.search.simulated_count; i++) {
        struct settings found;
        struct exported exported;
        tuned_settings(&t, &t.search.simulated[i], &found);
        found.command = COMMAND_PLAN;
        if (export_plan(&found, NULL, "deepspeed", &exported, &err) != ERR_OK)
            fail_msg("%s", err.text);
        export_free(&exported);
    }
    tune_free(&t);
}

/* What nobody gave becomes what the framework has; what was given and it cannot say is refused. */
static void what_nobody_gave_is_the_frameworks(void **state)
{
    (void)state;
    static const char *const pairs[] = {TOY, "gpus", "4", NULL};
    static const char *const unclipped[] = {TOY, "gpus", "4", "clip", "off", NULL};
    struct tuned t;
    struct err err = {0};
    assert_int_equal(tune_to(unclipped, "torchtitan", &t, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "--clip off (it would be 1)"));
    assert_int_equal(tune_to(pairs, "torchtitan", &t, &err), ERR_OK);
    assert_string_equal(t.space.adopted, "--clip 1");
    assert_true(t.choice.job.strategy.max_norm == 1);
    assert_true(t.space.grids[0].base.job.strategy.system == SYSTEM_FSDP2);
    assert_true(t.space.grids[0].base.job.strategy.units == UNITS_TORCHTITAN);
    assert_non_null(strstr(t.space.unsaid, "--units blocks|2|4"));
    assert_non_null(strstr(t.space.unsaid, "--strategy zero3"));
    tune_free(&t);
}

/* Of 4 GPUs no job has 8 replicas or more, whoever reads it; 2 of FSDP1's need another sharding
 * than the first. */
static void what_no_job_has_is_no_lack_of_the_reader(void **state)
{
    static char *const cases[][2] = {{"torchtitan", "--replicate 4, "},
                                     {"accelerate", "--replicate 2, "}};
    static const char *const pairs[] = {TOY, "gpus", "4", NULL};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tuned t;
        struct err err = {0};
        assert_int_equal(tune_to(pairs, cases[i][0], &t, &err), ERR_OK);
        if (!strstr(t.space.unsaid, cases[i][1]))
            fail_msg("%s cannot say %s", cases[i][0], t.space.unsaid);
        tune_free(&t);
    }
}

/* Blocks are chosen only where they are checkpointed: asked about where they are not, a framework
 * seems to have no objection. Every point of the space is written. */
static void what_has_no_effect_is_asked_about_where_it_has(void **state)
{
    static char *const targets[] = {"torchtitan", "accelerate", "deepspeed"};
    static const char *const pairs[] = {TOY, "gpus", "4", "global-batch", "16", NULL};
    (void)state;
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        struct tuned t;
        struct err err = {0};
        assert_int_equal(tune_to(pairs, targets[i], &t, &err), ERR_OK);
        for (uint32_t g = 0; g < t.space.grid_count; g++)
            for (uint64_t p = 0; p < t.space.grids[g].outer_points; p++) {
                struct settings point;
                uint64_t rows[SETTINGS_MOST_ROWS / 64], idle[SETTINGS_MOST_ROWS / 64];
                char list[256];
                grid_settings(&t.space.grids[g], p * t.space.grids[g].inner_points, &point);
                assert_int_equal(refuse_as(targets[i], &point, rows, idle, list, sizeof list, &err),
                                 ERR_OK);
                if (list[0])
                    fail_msg("%s cannot say %s", targets[i], list);
            }
        tune_free(&t);
    }
}

static volatile int stop_at_once = 1;

static void an_interrupt_ends_it_with_what_there_is(void **state)
{
    (void)state;
    static const char *const pairs[] = {TOY, "gpus", "8", NULL};
    const struct settings settings = settings_of(pairs);
    const struct tune_options options = {.threads = 2, .stop = &stop_at_once};
    struct tuned t;
    struct err err = {0};
    assert_int_equal(tune(&settings, &options, &t, &err), ERR_OK);
    assert_true(t.search.interrupted);
    assert_int_equal(t.search.front_count, 0);
    tune_free(&t);
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
        cmocka_unit_test(brute_force_finds_the_same_front),
        cmocka_unit_test(any_number_of_threads_finds_the_same),
        cmocka_unit_test(what_is_fixed_stays_and_what_is_allowed_moves),
        cmocka_unit_test(a_system_that_is_given_may_be_left),
        cmocka_unit_test(systems_that_train_otherwise_are_left_out),
        cmocka_unit_test(systems_that_cannot_are_left_out),
        cmocka_unit_test(memory_that_is_withheld_is_not_used),
        cmocka_unit_test(every_reason_is_what_putting_it_back_does),
        cmocka_unit_test(what_cannot_be_asked_is_refused),
        cmocka_unit_test(what_a_framework_cannot_say_is_not_searched),
        cmocka_unit_test(what_nobody_gave_is_the_frameworks),
        cmocka_unit_test(what_no_job_has_is_no_lack_of_the_reader),
        cmocka_unit_test(what_has_no_effect_is_asked_about_where_it_has),
        cmocka_unit_test(an_interrupt_ends_it_with_what_there_is),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
