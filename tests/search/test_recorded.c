/* test_recorded.c - settings chosen for recorded models (tools/record.py): each that is found is
 * planned by the commands, and takes what the search says of it. */
#include "search/tune.h"
#include "tests/support/soak.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* Rounding of sums of thousands of kernels' times, and the search's own (evaluate.c). */
#define TOLERANCE 1e-9

static void assert_as_planned(const struct tuned *t, const struct found *found, const char *name)
{
    struct settings own;
    struct tuned_prediction p;
    struct err err = {0};
    tuned_settings(t, found, &own);
    own.command = COMMAND_PLAN;
    if (tuned_predict(t, &own, true, 0, &p, &err) != ERR_OK)
        fail_msg("%s: %s", name, err.text);
    const double step_s = p.time.timeline.step_s;
    if (!(fabs(found->step_s - step_s) <= TOLERANCE * step_s))
        fail_msg("%s: %.12g s, and %.12g s as planned", name, found->step_s, step_s);
    assert_int_equal(found->device_bytes, p.prediction.unconstrained_bytes);
    tuned_prediction_free(&p);
}

static void search(const char *name)
{
    char path[128];
    struct settings settings;
    struct tuned t;
    struct err err = {0};
    const struct tune_options options = {.threads = 2, .grain_bytes = 1 << 20};
    snprintf(path, sizeof path, "tests/data/recorded/%s.stream.json.gz", name);
    settings_defaults(&settings, COMMAND_TUNE);
    assert_int_equal(settings_set(&settings, "model", path, &err), ERR_OK);
    assert_int_equal(settings_set(&settings, "gpus", "8", &err), ERR_OK);
    assert_int_equal(settings_set(&settings, "global-batch", "16", &err), ERR_OK);
    if (tune(&settings, &options, &t, &err) != ERR_OK)
        fail_msg("%s: %s", name, err.text);
    assert_true(t.search.front_count > 0);
    assert_as_planned(&t, &t.chosen, name);
    for (uint32_t i = 0; i < t.search.front_count; i++)
        assert_as_planned(&t, &t.search.front[i], name);
    for (uint32_t i = 0; i < t.runner_count; i++)
        assert_as_planned(&t, &t.runners[i], name);
    tune_free(&t);
}

/* Decoders, frozen and adapted weights; and a model whose lists of modules do not follow each
 * other.
 */
static void what_is_found_is_planned_so(void **state)
{
    static const char *const names[] = {"llama", "peft_llama", "litgpt_llama", "vit_frozen",
                                        "unet"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (i % 2 == 1 || is_taken(i, 5, 4))
            search(names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_found_is_planned_so),
    };
    return cmocka_run_group_tests_name("recorded models", tests, NULL, NULL);
}
