/* test_search.c - what a search finds is what trying everything finds. */
#include "job/step_time.h"
#include "search/nearer.h"
#include "search/tune.h"
#include "settings/settings_resolve.h"
#include "tests/support/soak.h"
#include "tests/support/tune_settings.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_POINTS = 10240 };

/* ---- against trying everything ---- */

struct tried { /* in full, by the way that fit and plan take */
    double step_s;
    uint64_t device_bytes;
    uint64_t outer; /* of its grid */
    uint32_t grid;
};

static bool try_point(const struct tuned *t, const struct grid *grid, uint64_t point,
                      struct tried *out)
{
    struct settings settings;
    struct job job;
    struct prediction prediction;
    struct step_time time;
    struct machine machine = t->machine;
    grid_settings(grid, point, &settings);
    machine.expandable_segments = settings.expandable_segments;
    if (settings_job(&settings, &t->job.config, &job, NULL) != ERR_OK ||
        predict(&job, &machine, &prediction, NULL) != ERR_OK)
        return false;
    prediction.call_count = 0; /* the step without what giving memory back costs */
    assert_int_equal(step_time(&prediction, &job, &machine, 0, &time, NULL), ERR_OK);
    const bool by_clock = prediction.by_clock;
    *out = (struct tried){time.timeline.step_s,
                          by_clock ? prediction.device_bytes : prediction.unconstrained_bytes,
                          point / grid->inner_points, (uint32_t)(grid - t->space.grids)};
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

/* ---- ... of runners-up ---- */

static bool is_as_long(double a, double b)
{
    return fabs(a / b - 1) < 1e-9;
}

static bool is_of(const struct tuned *t, const struct tried *tried, const struct found *found)
{
    const struct candidate *candidate = &t->candidates.at[found->candidate];
    return tried->grid == candidate->grid && tried->outer == candidate->outer;
}

/* Whether one is the fastest, the chosen one or one of the first `runners`, or of the same
 * candidate as one of them, or takes as long as one of these. */
static bool is_told(const struct tuned *t, const struct tried *all, uint32_t count,
                    const struct tried *tried, uint32_t runners)
{
    bool told = false;
    for (uint32_t i = 0; i < count && !told; i++) {
        bool of_told = is_of(t, &all[i], &t->chosen) || is_of(t, &all[i], &t->search.front[0]);
        for (uint32_t k = 0; k < runners; k++)
            of_told |= is_of(t, &all[i], &t->runners[k]);
        told = of_told && is_as_long(all[i].step_s, tried->step_s);
    }
    return told;
}

/* Nothing that fits and is another is faster than a runner-up and was not told before it. */
static void check_runners(const struct tuned *t, const struct tried *all, uint32_t count)
{
    for (uint32_t r = 0; r <= t->runner_count && r < TUNE_RUNNERS; r++) {
        const double step_s = r < t->runner_count ? t->runners[r].step_s : (double)INFINITY;
        for (uint32_t i = 0; i < count; i++)
            if (all[i].device_bytes <= t->limit_bytes && all[i].step_s < step_s &&
                !is_as_long(all[i].step_s, step_s) && !is_told(t, all, count, &all[i], r))
                fail_msg("runner-up %u takes %.9g s, another %.9g s", r, step_s, all[i].step_s);
    }
}

/* Of a front to the byte none that is as fast as the choice takes less, but for what is not shown:
 * of that there may be once of what was put back, and once of what was chosen. */
static void check_choice(const struct tuned *t, const struct tried *front, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (front[i].step_s <= t->chosen.step_s &&
            front[i].device_bytes + 2 * SHOWN_BYTES < t->chosen.device_bytes)
            fail_msg("%.9g s is chosen, %.9g s takes less", t->chosen.step_s, front[i].step_s);
}

/* Every job is counted, each once. */
static void check_jobs(const struct tuned *t)
{
    uint64_t jobs = 0;
    for (uint32_t i = 0; i < t->candidates.count; i++) {
        const struct candidate *at = &t->candidates.at[i];
        const struct grid *grid = &t->space.grids[at->grid];
        uint64_t variants[AXES_MOST];
        uint64_t *points = xmalloc(grid->inner_points * sizeof *points);
        const uint64_t own = (uint64_t)candidate_members(&t->candidates, at, points) *
                             member_variants(grid, at->outer * grid->inner_points, variants);
        assert_int_equal(at->jobs, own);
        jobs += own;
        free(points);
    }
    assert_int_equal(t->search.configurations, jobs);
}

/* Adds up candidates that are excluded with their class. */
static void compare_with_brute_force(const char *const *pairs, uint32_t *unframed)
{
    static struct tried tried[MOST_POINTS];
    const struct settings settings = tune_settings_of(pairs);
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
    check_jobs(&t);
    check_runners(&t, tried, count);
    /* beside a front that leaves most of them out */
    const struct tune_options coarse = {.threads = 2};
    struct tuned rough;
    assert_int_equal(tune(&settings, &coarse, &rough, &err), ERR_OK);
    check_runners(&rough, tried, count);
    tune_free(&rough);
    const uint32_t front = brute_front(tried, count, t.limit_bytes);
    assert_true(front > 0);
    assert_int_equal(t.search.front_count, front);
    for (uint32_t i = 0; i < front; i++) {
        assert_true(fabs(t.search.front[i].step_s / tried[i].step_s - 1) < 1e-9);
        assert_int_equal(t.search.front[i].device_bytes, tried[i].device_bytes);
    }
    assert_true(t.chosen.device_bytes <= t.limit_bytes);
    assert_true(t.chosen.weight <= t.search.front[0].weight ||
                t.chosen.device_bytes < t.search.front[0].device_bytes);
    check_choice(&t, tried, front);
    tune_free(&t);
}

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
         "16",
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
    /* searched in a soak alone */
    static const char *const fixed[sizeof spaces / sizeof *spaces][2] = {
        [2] = {"optimizer-impl", "fused"}, [8] = {"checkpointing", "full"}};
    uint32_t unframed = 0;
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        const char *pairs[36] = {NULL};
        size_t count = 0;
        for (; spaces[i][count]; count++)
            pairs[count] = spaces[i][count];
        if (!is_soak())
            memcpy(&pairs[count], fixed[i], sizeof fixed[i]);
        compare_with_brute_force(pairs, &unframed);
    }
    assert_true(unframed > 0);
}

/* None of what the least is told with can be put back and gain nothing. */
static void check_least_is_simplest(const struct tuned *t)
{
    const struct found *least = &t->least.found;
    const struct grid *grid = &t->space.grids[t->candidates.at[least->candidate].grid];
    uint64_t points[AXES_MOST];
    const uint32_t count = nearer_points(grid, least->point, points);
    for (uint32_t i = 0; i < count; i++) {
        struct tried tried;
        if (try_point(t, grid, points[i], &tried) && tried.device_bytes <= least->device_bytes &&
            tried.step_s < least->step_s * (1 + SHOWN_STEP))
            fail_msg("a setting less takes as much, in %g s, not %g", tried.step_s, least->step_s);
    }
}

/* Where a byte is missing for what takes least: that, in the shortest step that takes no more. */
static void brute_force_finds_the_same_least(void **state)
{
    (void)state;
    static const char *const spaces[][32] = {
        {TOY, "gpus", "4", "strategy", "fsdp2", "optimizer-impl", "fused", "checkpoint-blocks",
         "all", "units", "blocks", "keep-unsharded", "0", "replicate", "1"},
        {TOY, "gpus", "4", "strategy", "zero3", "checkpoint-blocks", "all"},
    };
    for (size_t k = 0; k < sizeof spaces / sizeof *spaces; k++) {
        struct settings settings = tune_settings_of(spaces[k]);
        const struct tune_options options = {.threads = 2};
        struct tried tried, least = {.device_bytes = UINT64_MAX};
        struct tuned all, none;
        assert_int_equal(tune(&settings, &options, &all, NULL), ERR_OK);
        const struct grid *grid = &all.space.grids[0];
        for (uint64_t p = 0; p < grid->outer_points * grid->inner_points; p++)
            if (try_point(&all, grid, p, &tried) &&
                (tried.device_bytes < least.device_bytes ||
                 (tried.device_bytes == least.device_bytes && tried.step_s < least.step_s)))
                least = tried;
        settings.tune.max_memory = least.device_bytes - 1;
        settings.tune.headroom = 0;
        assert_int_equal(tune(&settings, &options, &none, NULL), ERR_OK);
        assert_int_equal(none.search.front_count, 0);
        assert_true(least_is_known(&none.least));
        assert_int_equal(none.least.found.device_bytes, least.device_bytes);
        assert_true(none.least.found.step_s <= least.step_s * (1 + SHOWN_STEP));
        check_least_is_simplest(&none);
        tune_free(&all);
        tune_free(&none);
    }
}

/* Two units ahead instead of one are faster by a 10,000th of the step here, which nothing shows. */
static void what_takes_least_has_no_setting_that_gains_nothing(void **state)
{
    (void)state;
    static const char *const pairs[32] = {"model",    "llama-3.2-1b", "gpus",    "8",
                                          "strategy", "fsdp2",        "offload", "none"};
    struct settings settings = tune_settings_of(pairs);
    const struct tune_options options = {.threads = 2};
    struct tuned t;
    settings.tune.max_memory = 1 << 20;
    settings.tune.headroom = 0;
    assert_int_equal(tune(&settings, &options, &t, NULL), ERR_OK);
    assert_int_equal(t.search.front_count, 0);
    check_least_is_simplest(&t);
    tune_free(&t);
}

/* ---- threads, options ---- */

static void any_number_of_threads_finds_the_same(void **state)
{
    (void)state;
    static const char *const pairs[] = {TOY,    "gpus",  "8",      "global-batch", "32", "offload",
                                        "none", "units", "blocks", "replicate",    "1",  NULL};
    const struct settings settings = tune_settings_of(pairs);
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
    struct settings settings = tune_settings_of(pairs);
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
    struct settings settings[3] = {tune_settings_of(open), tune_settings_of(given),
                                   tune_settings_of(given)};
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

/* Of a found one that is told, all else left as it is. */
static void check_nearest(const struct tuned *t, const struct found *found)
{
    uint64_t points[AXES_MOST];
    struct tried tried;
    const struct grid *grid = &t->space.grids[t->candidates.at[found->candidate].grid];
    const uint32_t count = nearer_points(grid, found->point, points);
    for (uint32_t i = 0; i < count; i++)
        if (try_point(t, grid, points[i], &tried) && tried.device_bytes <= t->limit_bytes &&
            tried.step_s < found->step_s * 1.0005 &&
            tried.device_bytes < found->device_bytes + (5 << 20))
            fail_msg("%.9g s, %.9g s with one setting fewer", found->step_s, tried.step_s);
}

/* Neither of the choice, with its units or without, nor of the front. */
static void what_gains_nothing_that_is_shown_is_left_at_its_default(void **state)
{
    (void)state;
    static const char *const jobs[][26] = {
        {"model", "llama-3.1-8b", "gpus", "64", "seq", "8192", "strategy", "fsdp2", "units",
         "torchtitan", "checkpointing", "none", "offload", "none", "replicate", "1"},
        {TOY, "gpus", "8", "strategy", "fsdp2", "offload", "none"},
        /* the last blocks, which are taken because none are told apart from them */
        {"model", "tests/data/configs/glm-4.5-air", "gpus", "128", "seq", "2048", "strategy",
         "fsdp2", "units", "blocks", "checkpointing", "full", "optimizer-impl", "fused"},
    };
    for (size_t k = 0; k < sizeof jobs / sizeof *jobs; k++) {
        const struct settings settings = tune_settings_of(jobs[k]);
        const struct tune_options options = {.threads = 2};
        struct tuned t;
        assert_int_equal(tune(&settings, &options, &t, NULL), ERR_OK);
        assert_true(t.reason_count > 0 && t.front_count > 0);
        assert_int_equal(t.per_unit.taken, k != 1);
        for (uint32_t i = 0; i < t.reason_count; i++) {
            const struct tuned_setting *r = &t.reasons[i];
            if (r->possible && r->fits && r->step_s < t.chosen.step_s * 1.0005 &&
                r->device_bytes < t.chosen.device_bytes + (5 << 20))
                fail_msg("--%s %s gains nothing", r->name, r->value);
        }
        for (uint32_t i = 0; i < t.front_count; i++)
            check_nearest(&t, &t.front[i]);
        /* and the front is one, of as many bytes or fewer than what was found */
        for (uint32_t i = 1; i < t.front_count; i++)
            assert_true(t.front[i].step_s > t.front[i - 1].step_s &&
                        t.front[i].device_bytes < t.front[i - 1].device_bytes);
        tune_free(&t);
    }
}

/* Those that are told beside it: neither is as fast with less memory. */
static void check_beside(const struct tuned *t)
{
    /* what was chosen first was as fast as this or faster, as far as is shown */
    const double first_s = t->chosen.step_s / (1 + SHOWN_STEP);
    struct found chosen = t->chosen;
    assert_false(nearer_take_less(&chosen, first_s, t->front, t->front_count));
    assert_false(nearer_take_less(&chosen, first_s, t->runners, t->runner_count));
}

/* However many there are, each as fast as the one before it: none slower than the first, as far as
 * is shown, takes its place. */
static void less_memory_is_not_paid_for_again_and_again(void **state)
{
    enum { OTHERS = 8 };
    const uint64_t gib = UINT64_C(1) << 30;
    const struct found first = {.step_s = 1, .device_bytes = 70 * gib};
    struct found others[OTHERS], chosen = first;
    (void)state;
    for (uint32_t i = 0; i < OTHERS; i++)
        others[i] = (struct found){.candidate = i + 1,
                                   .step_s = 1 + 0.4 * SHOWN_STEP * (i + 1),
                                   .device_bytes = (69 - i) * gib};
    assert_true(nearer_take_less(&chosen, first.step_s, others, OTHERS));
    assert_int_equal(chosen.candidate, 2); /* 0.8 of what is shown */
    assert_false(nearer_take_less(&chosen, first.step_s, others, OTHERS));
    others[0].device_bytes = chosen.device_bytes - SHOWN_BYTES / 2; /* as much, as is shown */
    assert_false(nearer_take_less(&chosen, first.step_s, others, 1));
}

/* As it is predicted, with fewer settings off their defaults; and one fewer would be too slow, or
 * would not fit. */
static void check_simpler(const struct tuned *t)
{
    const struct simpler *simpler = &t->simpler;
    struct tuned_prediction p;
    uint64_t points[AXES_MOST];
    struct tried tried;
    assert_int_equal(tuned_predict(t, &simpler->own, false, 0, &p, NULL), ERR_OK);
    assert_int_equal(p.prediction.device_bytes, simpler->found.device_bytes);
    assert_true(p.prediction.device_bytes <= t->limit_bytes);
    assert_true(fabs(p.time.timeline.step_s / simpler->found.step_s - 1) < 1e-9);
    assert_true(simpler->found.step_s <= 1.01 * t->chosen.step_s);
    assert_true(simpler->found.weight < t->chosen.weight);
    tuned_prediction_free(&p);
    const struct grid *grid = &t->space.grids[t->candidates.at[simpler->found.candidate].grid];
    const uint32_t count = nearer_points(grid, simpler->found.point, points);
    for (uint32_t i = 0; i < count && !simpler->keeps_units; i++)
        if (try_point(t, grid, points[i], &tried) && tried.device_bytes <= t->limit_bytes)
            assert_true(tried.step_s > 1.01 * t->chosen.step_s);
}

static bool can_drop(const struct tuned *t)
{
    for (uint32_t i = 0; i < t->reason_count; i++)
        if (t->reasons[i].possible && t->reasons[i].fits &&
            t->reasons[i].step_s <= 1.01 * t->chosen.step_s)
            return true;
    return false;
}

/* All that it leaves open is the allocator, which costs no time: what takes less is taken, and what
 * is simpler is told beside it. */
static void of_what_is_as_fast_the_least_is_taken(void **state)
{
    (void)state;
    static const char *const jobs[][32] = {
        {"model", "llama-3.1-8b", "gpus", "8", "strategy", "fsdp2", "units", "torchtitan",
         "checkpointing", "none", "offload", "none", "replicate", "1", "forward-prefetch", "0",
         "backward-prefetch", "0"},
        {"model", "llama-3.1-8b", "gpus", "64", "seq", "8192", "strategy", "fsdp2", "units",
         "torchtitan", "checkpointing", "none", "offload", "none", "replicate", "1"},
        {TOY, "gpus", "8", "strategy", "fsdp2", "offload", "none"},
    };
    uint32_t simpler = 0, with_units = 0;
    for (size_t k = 0; k < sizeof jobs / sizeof *jobs; k++) {
        const struct settings settings = tune_settings_of(jobs[k]);
        const struct tune_options options = {.threads = 2};
        struct tuned t;
        assert_int_equal(tune(&settings, &options, &t, NULL), ERR_OK);
        check_beside(&t);
        assert_int_equal(t.simpler.is_there, can_drop(&t));
        if (t.simpler.is_there)
            check_simpler(&t);
        assert_true(k > 0 || t.choice.expandable_segments);
        simpler += t.simpler.is_there;
        with_units += t.simpler.is_there && t.simpler.keeps_units;
        tune_free(&t);
    }
    assert_true(simpler > with_units && with_units > 0);
}

/* Three blocks are not 16, and what keeps all of them is said in the shortest way. */
static void numbers_of_blocks_are_the_models(void **state)
{
    (void)state;
    static const char *const pairs[] = {TOY,      "strategy",      "fsdp2", "units",
                                        "blocks", "checkpointing", "none",  "offload",
                                        "none",   "replicate",     "1",     NULL};
    const struct settings settings = tune_settings_of(pairs);
    const struct tune_options options = {.threads = 1};
    struct tuned t;
    uint32_t keep = 0, all = 0;
    assert_int_equal(tune(&settings, &options, &t, NULL), ERR_OK);
    assert_int_equal(t.space.blocks, 3);
    const struct grid *grid = &t.space.grids[0];
    while (strcmp(grid->axes[keep].row->name, "keep-unsharded") != 0)
        keep++;
    assert_int_equal(grid->axes[keep].count, 3);
    assert_string_equal(grid->axes[keep].values[1].text, "1");
    assert_string_equal(grid->axes[keep].values[2].text, "3");
    for (uint64_t p = 0; p < grid->outer_points * grid->inner_points; p += grid->inner_points) {
        struct settings said, chosen;
        grid_settings(grid, p, &said);
        const uint32_t candidate = candidates_find(&t.candidates, 0, p);
        if (said.job.strategy.reshard != RESHARD_DEFAULT || said.job.strategy.keep_last != 3 ||
            candidate >= t.candidates.count)
            continue;
        grid_settings(grid, t.candidates.at[candidate].outer * grid->inner_points, &chosen);
        assert_int_equal(chosen.job.strategy.reshard, RESHARD_NEVER);
        assert_int_equal(chosen.job.strategy.keep_last, 0);
        all++;
    }
    assert_true(all > 0);
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
        struct settings settings = tune_settings_of(pairs);
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

static volatile int stop_at_once = 1;

static void an_interrupt_ends_it_with_what_there_is(void **state)
{
    (void)state;
    static const char *const pairs[] = {TOY, "gpus", "8", NULL};
    const struct settings settings = tune_settings_of(pairs);
    const struct tune_options options = {.threads = 2, .stop = &stop_at_once};
    struct tuned t;
    struct err err = {0};
    assert_int_equal(tune(&settings, &options, &t, &err), ERR_OK);
    assert_true(t.search.interrupted);
    assert_int_equal(t.search.front_count, 0);
    tune_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brute_force_finds_the_same_front),
        cmocka_unit_test(brute_force_finds_the_same_least),
        cmocka_unit_test(what_takes_least_has_no_setting_that_gains_nothing),
        cmocka_unit_test(any_number_of_threads_finds_the_same),
        cmocka_unit_test(what_is_fixed_stays_and_what_is_allowed_moves),
        cmocka_unit_test(a_system_that_is_given_may_be_left),
        cmocka_unit_test(memory_that_is_withheld_is_not_used),
        cmocka_unit_test(every_reason_is_what_putting_it_back_does),
        cmocka_unit_test(what_gains_nothing_that_is_shown_is_left_at_its_default),
        cmocka_unit_test(of_what_is_as_fast_the_least_is_taken),
        cmocka_unit_test(numbers_of_blocks_are_the_models),
        cmocka_unit_test(what_cannot_be_asked_is_refused),
        cmocka_unit_test(less_memory_is_not_paid_for_again_and_again),
        cmocka_unit_test(an_interrupt_ends_it_with_what_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
