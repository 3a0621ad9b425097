/* test_space.c - which systems a search chooses from, and which values of their settings. */
#include "families/families.h"
#include "frameworks/export.h"
#include "search/tune.h"
#include "tests/support/tune_settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

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
    struct settings settings = tune_settings_of(wanted->pairs);
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
    const uint32_t alone = settings.job.strategy.world > 1 ? 1U << SYSTEM_SINGLE : 0;
    assert_int_equal(searched | left | alone, (1U << SYSTEM_COUNT) - 1);
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
        {{TOY, "gpus", "1", NULL}, {"param-dtype", NULL}, FSDP | DDP | 1U << SYSTEM_SINGLE},
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
    struct settings settings =
        tune_settings_of((const char *const[]){TOY, "torch", "2.5", "offload", "cpu", NULL});
    assert_int_equal(model_find(settings.model, &config, &err), ERR_OK);
    const struct space_options options = {.config = &config};
    assert_int_equal(space_new(&settings, &options, &space, &err), ERR_OK);
    assert_int_equal(space.grid_count, 1);
    assert_int_equal(space.grids[0].base.job.strategy.system, SYSTEM_FSDP1);
    assert_int_equal(space.left_out_count, SYSTEM_COUNT - 1);
    for (uint32_t i = 0; i < space.left_out_count; i++) {
        const char *why = space.left_out[i].numerics.text;
        assert_true(strstr(why, "--offload") || strstr(why, "not known of torch 2.5"));
        assert_null(strstr(why, "--autocast")); /* nobody gave it */
    }
    space_free(&space);
    settings = tune_settings_of(
        (const char *const[]){TOY, "torch", "2.5", "offload", "cpu", "strategy", "fsdp2", NULL});
    assert_int_equal(space_new(&settings, &options, &space, &err), ERR_OK);
    assert_int_equal(space.grids[0].base.job.strategy.system, SYSTEM_FSDP2);
    space_free(&space);
    model_release(&config);
}

/* ---- what cannot be said ---- */

static enum err_code refuse_as(void *context, const struct settings *settings,
                               uint64_t rows[SETTINGS_ROW_WORDS], uint64_t idle[SETTINGS_ROW_WORDS],
                               char *list, size_t size, struct err *err)
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
    const struct settings settings = tune_settings_of(pairs);
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
    static const struct {
        char *to;
        const char *lacks, *pairs[9]; /* and NULL */
    } cases[] = {
        {"torchtitan", "--replicate 4, ", {TOY, "gpus", "4"}},
        {"accelerate", "--replicate 2, ", {TOY, "gpus", "4", "strategy", "fsdp1"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tuned t;
        struct err err = {0};
        assert_int_equal(tune_to(cases[i].pairs, cases[i].to, &t, &err), ERR_OK);
        if (!strstr(t.space.unsaid, cases[i].lacks))
            fail_msg("%s cannot say %s", cases[i].to, t.space.unsaid);
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
                uint64_t rows[SETTINGS_ROW_WORDS], idle[SETTINGS_ROW_WORDS];
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(systems_that_train_otherwise_are_left_out),
        cmocka_unit_test(systems_that_cannot_are_left_out),
        cmocka_unit_test(what_a_framework_cannot_say_is_not_searched),
        cmocka_unit_test(what_nobody_gave_is_the_frameworks),
        cmocka_unit_test(what_no_job_has_is_no_lack_of_the_reader),
        cmocka_unit_test(what_has_no_effect_is_asked_about_where_it_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
