/* test_per_unit.c - a search that chooses unit by unit: what it takes is faster than all of its
 * grid, fits as everything is predicted, and can be typed. */
#include "search/tune.h"
#include "settings/settings_parse.h"
#include "settings/settings_resolve.h"
#include "tests/support/tune_settings.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* GLM-4.5-Air, whose first block is dense: 128 GPUs hold a few of its 46 blocks unsharded. */
#define GLM                                                                                        \
    "model", "tests/data/configs/glm-4.5-air", "gpus", "128", "gpu", "h100-sxm", "seq", "2048",    \
        "strategy", "fsdp2", "units", "blocks", "checkpointing", "full", "checkpoint-blocks",      \
        "all", "optimizer-impl", "fused", "replicate", "1", "forward-prefetch", "0", "offload",    \
        "none"

static void tune_pairs(const char *const *pairs, const struct tune_options *options,
                       struct tuned *out)
{
    const struct settings settings = tune_settings_of(pairs);
    struct err err = {0};
    if (tune(&settings, options, out, &err) != ERR_OK)
        fail_msg("%s", err.text);
    assert_true(out->search.front_count > 0);
}

/* As `plan` predicts it. */
static void check_choice(const struct tuned *t)
{
    struct tuned_prediction p;
    struct err err = {0};
    assert_int_equal(tuned_predict(t, &t->choice, true, 0, &p, &err), ERR_OK);
    assert_int_equal(p.prediction.device_bytes, t->chosen.device_bytes);
    assert_true(p.prediction.device_bytes <= t->limit_bytes);
    assert_true(fabs(p.time.timeline.step_s / t->chosen.step_s - 1) < 1e-9);
    tuned_prediction_free(&p);
}

/* Its settings, given again one by one. */
static void check_typed(const struct tuned *t)
{
    struct arena arena = {0};
    struct settings again;
    struct err err = {0};
    uint32_t count;
    char difference[512];
    const char **arguments = settings_arguments(&t->choice, COMMAND_TUNE, &arena, &count);
    settings_defaults(&again, COMMAND_TUNE);
    settings_set(&again, "model", t->choice.model, &err);
    for (uint32_t i = 0; i < count; i++)
        if (strncmp(arguments[i], "--keep-", 7) == 0)
            assert_int_equal(settings_set(&again, arguments[i] + 2, arguments[i + 1], &err),
                             ERR_OK);
    assert_int_equal(again.job.strategy.keep_last, t->choice.job.strategy.keep_last);
    const char *typed = again.job.strategy.keep_units, *kept = t->choice.job.strategy.keep_units;
    assert_true(typed ? kept && strcmp(typed, kept) == 0 : !kept);
    assert_non_null(settings_difference(&t->settings, &t->choice, difference, sizeof difference));
    assert_non_null(strstr(difference, "--keep-"));
    arena_free(&arena);
}

static void a_set_is_taken_where_memory_binds(void **state)
{
    (void)state;
    static const char *const pairs[] = {GLM, NULL};
    const struct tune_options options = {.threads = 2};
    struct tuned t;
    tune_pairs(pairs, &options, &t);
    const struct per_unit *p = &t.per_unit;
    const struct kept_set *set = per_unit_set(p);
    assert_int_equal(p->state, PER_UNIT_SEARCHED);
    assert_true(p->taken && p->of.units == 46);
    assert_true(set->count > 0 && set->count < p->of.units);
    assert_true(t.chosen.step_s < t.search.front[0].step_s);
    assert_true(set->step_s <= p->of.last.step_s && p->of.best.step_s <= set->step_s);
    /* faster than keeping none, not than what all of it would be, nor than the bound */
    assert_true(set->step_s < p->of.none.step_s && set->step_s > p->of.all.step_s);
    assert_true(p->of.bound_s <= p->of.best.step_s && p->of.bound_s > 0.8 * p->of.best.step_s);
    check_choice(&t);
    check_typed(&t);
    const struct tuned_setting *why = &t.reasons[t.reason_count - 1];
    assert_true(strncmp(why->name, "keep-", 5) == 0 && why->possible && why->fits);
    assert_true(fabs(why->step_s / p->of.none.step_s - 1) < 1e-9);
    tune_free(&t);
}

static void any_number_of_threads_takes_the_same(void **state)
{
    (void)state;
    static const char *const pairs[] = {GLM, "expandable-segments", "on", "micro-batch",
                                        "1", "backward-prefetch",   "0",  NULL};
    const struct tune_options one = {.threads = 1}, three = {.threads = 3};
    struct tuned a, b;
    tune_pairs(pairs, &one, &a);
    tune_pairs(pairs, &three, &b);
    assert_string_equal(a.per_unit.of.best.text, b.per_unit.of.best.text);
    assert_int_equal(a.per_unit.simulated, b.per_unit.simulated);
    assert_true(a.per_unit.of.bound_s == b.per_unit.of.bound_s);
    assert_true(a.chosen.step_s == b.chosen.step_s);
    tune_free(&a);
    tune_free(&b);
}

static enum err_code refuses_units(void *context, const struct settings *settings, uint64_t *rows,
                                   uint64_t *idle, char *list, size_t size, struct err *err)
{
    (void)context;
    (void)err;
    *idle = 0;
    *rows = settings->job.strategy.keep_units != NULL;
    snprintf(list, size, "%s", *rows ? "--keep-units" : "");
    return ERR_OK;
}

/* It costs nothing there, and says why. */
static void nothing_is_searched_where_nothing_binds(void **state)
{
    (void)state;
    static const struct {
        const char *const pairs[40];
        enum per_unit_state state;
    } cases[] = {
        {{"model", "tests/data/configs/toy-llama", "gpus", "8", "seq", "512", "strategy", "fsdp2",
          "units", "blocks", "offload", "none", NULL},
         PER_UNIT_ALL_FIT},
        /* tiny parameters beside 32,768 tokens */
        {{"model", "tests/data/configs/toy-llama", "gpus", "8", "seq", "32768", "micro-batch", "8",
          "strategy", "fsdp2", "units", "blocks", "checkpointing", "full", "offload", "none", NULL},
         PER_UNIT_HIDDEN},
        {{GLM, "keep-unsharded", "4", NULL}, PER_UNIT_NOT_ASKED},
        {{GLM, "keep-units", "model.layers.40-45", NULL}, PER_UNIT_NOT_ASKED},
        {{"model", "tests/data/configs/toy-llama", "gpus", "8", "seq", "512", "strategy", "fsdp2",
          "reshard", "never", "units", "blocks", "offload", "none", NULL},
         PER_UNIT_NOT_ASKED},
        {{"model", "tests/data/configs/toy-llama", "gpus", "8", "seq", "512", "strategy", "ddp",
          NULL},
         PER_UNIT_NOT_ASKED},
    };
    const struct tune_options options = {.threads = 2};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tuned t;
        tune_pairs(cases[i].pairs, &options, &t);
        if (t.per_unit.state != cases[i].state)
            fail_msg("case %zu: %d", i, t.per_unit.state);
        assert_int_equal(t.per_unit.simulated, 0);
        assert_false(t.per_unit.taken);
        tune_free(&t);
    }
}

/* FSDP1 is the fastest, and all of FSDP2's units fit unsharded: which is not said of FSDP1. */
static void of_another_system_nothing_is_said(void **state)
{
    (void)state;
    static const char *const pairs[] = {"model",          "gpt2-medium", "micro-batch", "4",
                                        "checkpointing",  "none",        "offload",     "none",
                                        "optimizer-impl", "fused",       NULL};
    const struct tune_options options = {.threads = 2};
    struct tuned t;
    tune_pairs(pairs, &options, &t);
    assert_int_equal(t.choice.job.strategy.system, SYSTEM_FSDP1);
    assert_int_equal(t.per_unit.state, PER_UNIT_NOT_ASKED);
    assert_true(t.per_unit.cost_s == 0);
    tune_free(&t);
}

static void what_the_reader_cannot_say_is_not_asked(void **state)
{
    (void)state;
    static const char *const pairs[] = {GLM, "micro-batch", "1", NULL};
    const struct tune_options options = {
        .threads = 2, .refuses = refuses_units, .reader = "one without names"};
    struct tuned t;
    tune_pairs(pairs, &options, &t);
    assert_int_equal(t.per_unit.state, PER_UNIT_NOT_ASKED);
    tune_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_is_taken_where_memory_binds),
        cmocka_unit_test(any_number_of_threads_takes_the_same),
        cmocka_unit_test(nothing_is_searched_where_nothing_binds),
        cmocka_unit_test(of_another_system_nothing_is_said),
        cmocka_unit_test(what_the_reader_cannot_say_is_not_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
