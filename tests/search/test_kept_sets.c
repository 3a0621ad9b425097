/* test_kept_sets.c - which units to keep unsharded, beside trying every choice there is. */
#include "search/kept_sets.h"
#include "settings/settings_resolve.h"

#include <gsl/gsl_rng.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Each unit more doubles the sets: up to FEW_UNITS are tried in a moment. */
enum { SEED = 20261123, FEW_UNITS = 11, MOST_UNITS = 13, EVERY = 1 << 14 };

static gsl_rng *rng;

static const char *one_of(const char *const *words, size_t count)
{
    return words[gsl_rng_uniform_int(rng, count)];
}

#define ONE_OF(...)                                                                                \
    one_of((const char *const[]){__VA_ARGS__},                                                     \
           sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

struct drawn {
    struct settings settings;
    struct job job;
    struct machine machine;
    struct stream_class *class;
};

static void set(struct settings *settings, const char *name, const char *value)
{
    struct err err = {0};
    if (settings_set(settings, name, value, &err) != ERR_OK)
        fail_msg("%s", err.text);
}

/* Models of alike and of unlike blocks, cut to a few, where much is waited for. */
static bool draw_job(struct drawn *d)
{
    struct err err = {0};
    const char *model =
        ONE_OF("tests/data/configs/toy-llama", "tests/data/configs/llama-3.1-8b",
               "tests/data/configs/deepseek-v2-lite", "tests/data/configs/glm-4.5-air",
               "tests/data/configs/t5-small", "tests/data/configs/gpt2");
    *d = (struct drawn){.class = NULL};
    settings_defaults(&d->settings, COMMAND_PLAN);
    set(&d->settings, "model", model);
    set(&d->settings, "strategy", "fsdp2");
    set(&d->settings, "gpus", ONE_OF("4", "8", "16", "64", "128"));
    set(&d->settings, "gpu", ONE_OF("h100-sxm", "a100-sxm-80gb", "l4"));
    set(&d->settings, "seq", ONE_OF("128", "512"));
    set(&d->settings, "units", ONE_OF("blocks", "torchtitan", "2", "300MB"));
    set(&d->settings, "reshard", ONE_OF("default", "always", "2"));
    set(&d->settings, "accumulate", ONE_OF("1", "1", "2", "4"));
    set(&d->settings, "accumulate-sync", ONE_OF("last", "each"));
    set(&d->settings, "checkpointing", ONE_OF("none", "full"));
    set(&d->settings, "forward-prefetch", ONE_OF("0", "0", "2"));
    set(&d->settings, "backward-prefetch", ONE_OF("0", "0", "2"));
    if (settings_resolve(&d->settings, &d->job, &d->machine, &err) != ERR_OK)
        fail_msg("%s", err.text);
    if (!strstr(model, "t5"))
        d->job.config.layers = 4 + (uint32_t)gsl_rng_uniform_int(rng, 6);
    if (stream_class_new(&d->job, &d->machine, &d->class, &err) == ERR_OK)
        return true;
    settings_release(&d->job, &d->machine);
    return false;
}

static void free_job(struct drawn *d)
{
    stream_class_free(d->class);
    settings_release(&d->job, &d->machine);
}

/* ---- every choice ---- */

struct every {
    char names[MOST_UNITS][64];
    uint32_t units;
    double steps_s[EVERY];
    uint64_t bytes[EVERY];
};

static const char *text_of(const struct every *e, uint32_t chosen, struct arena *arena)
{
    const char *text = NULL;
    for (uint32_t u = 0; u < e->units; u++)
        if (chosen >> u & 1)
            text = text ? arena_printf(arena, "%s,%s", text, e->names[u]) : e->names[u];
    return text;
}

static bool try_every(const struct drawn *d, uint32_t most_units, struct every *e)
{
    struct plan *plan;
    struct err err = {0};
    struct arena arena = {0};
    struct strategy strategy = d->job.strategy;
    if (lower_plan(d->class->graph, d->class->stream, &strategy, &plan, &err) != ERR_OK)
        return false;
    e->units = plan->unit_count - 1;
    for (uint32_t u = 0; u < e->units && e->units <= MOST_UNITS; u++)
        snprintf(e->names[u], sizeof e->names[u], "%.*s",
                 (int)strcspn(plan->units[u + 1].name, ","), plan->units[u + 1].name);
    plan_free(plan);
    if (e->units == 0 || e->units > most_units)
        return false;
    struct evaluator *evaluator = evaluator_new(&d->machine);
    for (uint32_t i = 0; i < (uint32_t)1 << e->units; i++) {
        struct evaluation fast;
        strategy.keep_units = text_of(e, i, &arena);
        assert_int_equal(evaluate_fast(evaluator, d->class, &strategy, &fast, &err), ERR_OK);
        assert_int_equal(
            evaluate_full(evaluator, d->class, &strategy, false, 0, &e->bytes[i], &err), ERR_OK);
        assert_true(fast.device_floor <= e->bytes[i]);
        e->steps_s[i] = fast.step_s;
    }
    evaluator_free(evaluator);
    arena_free(&arena);
    return true;
}

static double fastest_within(const struct every *e, uint64_t limit)
{
    double best_s = INFINITY;
    for (uint32_t i = 0; i < (uint32_t)1 << e->units; i++)
        if (e->bytes[i] <= limit && e->steps_s[i] < best_s)
            best_s = e->steps_s[i];
    return best_s;
}

static uint64_t draw_limit(const struct every *e)
{
    const uint32_t all = ((uint32_t)1 << e->units) - 1;
    const double low = (double)e->bytes[0], high = (double)e->bytes[all];
    return (uint64_t)(low + (high - low) * (gsl_rng_uniform(rng) * 1.2 - 0.1));
}

struct seen {
    uint32_t jobs, sets, binding, not_last, more_is_slower, more_takes_less;
    double slower, above_last, loose;
};

/* What no bound rests on. */
static void look_at(const struct every *e, struct seen *seen)
{
    for (uint32_t i = 0; i < (uint32_t)1 << e->units; i++)
        for (uint32_t u = 0; u < e->units; u++) {
            const uint32_t more = i | (uint32_t)1 << u;
            const double slower = e->steps_s[more] / e->steps_s[i] - 1;
            seen->sets++;
            seen->more_is_slower += slower > 1e-9;
            seen->slower = fmax(seen->slower, slower);
            seen->more_takes_less += e->bytes[more] < e->bytes[i];
        }
}

static void check_answer(const struct drawn *d, const struct every *e, uint32_t most,
                         struct seen *seen)
{
    struct err err = {0};
    struct kept_answer answer;
    struct pool *pool = pool_new(2);
    struct evaluator *evaluators[2] = {evaluator_new(&d->machine), evaluator_new(&d->machine)};
    const struct kept_problem problem = {.stream_class = d->class,
                                         .strategy = d->job.strategy,
                                         .limit_bytes = draw_limit(e),
                                         .evaluators = evaluators,
                                         .pool = pool,
                                         .most_simulated = most};
    const double best_s = fastest_within(e, problem.limit_bytes);
    const uint32_t all = ((uint32_t)1 << e->units) - 1;
    if (kept_sets_search(&problem, &answer, &err) != ERR_OK)
        fail_msg("%s", err.text);
    assert_true(fabs(answer.none.step_s / e->steps_s[0] - 1) < 1e-9);
    assert_true(fabs(answer.all.step_s / e->steps_s[all] - 1) < 1e-9);
    if (isinf(best_s)) {
        assert_true(isinf(answer.best.step_s));
    } else if (most >= EVERY) { /* proven */
        assert_true(answer.closed);
        if (fabs(answer.best.step_s / best_s - 1) > 1e-8)
            fail_msg("%s: %.9g s with %s, and the fastest of %u is %.9g s", d->settings.model,
                     answer.best.step_s, answer.best.text, all + 1, best_s);
    } else { /* bounded */
        assert_true(answer.best.step_s >= best_s * (1 - 1e-9));
        if (answer.bound_s > best_s * (1 + 1e-9))
            fail_msg("%s: a bound of %.9g s, and the fastest is %.9g s", d->settings.model,
                     answer.bound_s, best_s);
        seen->above_last = fmax(seen->above_last, answer.best.step_s / best_s - 1);
        seen->loose = fmax(seen->loose, 1 - answer.bound_s / best_s);
    }
    if (isfinite(best_s)) {
        assert_true(answer.best.device_bytes <= problem.limit_bytes);
        seen->binding += e->bytes[all] > problem.limit_bytes && e->bytes[0] <= problem.limit_bytes;
        seen->not_last += answer.last.step_s > answer.best.step_s * (1 + 1e-6);
    }
    kept_answer_free(&answer);
    for (int i = 0; i < 2; i++)
        evaluator_free(evaluators[i]);
    pool_free(pool);
}

/* KEPT_SOAK=200 draws so many jobs, of more units. */
static void branch_and_bound_finds_what_brute_force_finds(void **state)
{
    (void)state;
    static struct every every;
    const char *soak = getenv("KEPT_SOAK");
    const uint32_t jobs = soak ? (uint32_t)atoi(soak) : 16;
    struct seen seen = {.jobs = 0};
    rng = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(rng, SEED);
    while (seen.jobs < jobs) {
        struct drawn d;
        if (!draw_job(&d))
            continue;
        if (try_every(&d, soak ? MOST_UNITS : FEW_UNITS, &every)) {
            look_at(&every, &seen);
            for (int i = 0; i < 3; i++)
                check_answer(&d, &every, EVERY, &seen);
            check_answer(&d, &every, every.units < 7 ? 1 : 64, &seen);
            seen.jobs++;
        }
        free_job(&d);
    }
    print_message("%u jobs, %u limits that bind, %u of them better met than by the last k; found "
                  "without proof at most %.3f %% above the fastest, bounds at most %.2f %% below "
                  "it; of %u sets one unit more is slower than %u by at most %.3g %%, and takes "
                  "less than %u\n",
                  seen.jobs, seen.binding, seen.not_last, 100 * seen.above_last, 100 * seen.loose,
                  seen.sets, seen.more_is_slower, 100 * seen.slower, seen.more_takes_less);
    assert_true(seen.binding > jobs && seen.not_last > 0);
    gsl_rng_free(rng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branch_and_bound_finds_what_brute_force_finds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
