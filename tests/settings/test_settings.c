/* test_settings.c - the table of settings: every row keeps what it says of itself, and together
 * they are the options that scripts were promised. */
#include "families/families.h"
#include "settings/settings_resolve.h"

#include <gsl/gsl_rng.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

/* Any command that has the row, with its defaults and a system that has it. */
static struct settings settings_for(const struct setting *row)
{
    struct settings settings;
    int command = 0;
    while (!setting_is_of(row, (enum command)command))
        command++;
    settings_defaults(&settings, (enum command)command);
    for (uint32_t s = 0; !setting_suits(row, settings.job.strategy.system); s++)
        settings.job.strategy.system = (enum system_kind)s;
    return settings;
}

static void expect(const struct setting *row, const struct settings *settings, const char *text)
{
    char buffer[NUMBER_TEXT];
    const char *value = setting_read(row, settings, buffer);
    if (!text != !value || (text && strcmp(value, text) != 0))
        fail_msg("--%s is %s, not %s", row->name, value ? value : "(none)", text ? text : "(none)");
}

static void accept(const struct setting *row, struct settings *settings, const char *text)
{
    struct err err = {0};
    if (setting_write(row, settings, text, &err) != ERR_OK)
        fail_msg("%s", err.text);
}

/* In the one form of such messages, and nothing is changed. */
static void refuse(const struct setting *row, const char *text)
{
    char begin[128];
    struct settings settings = settings_for(row);
    const struct settings before = settings;
    struct err err = {0};
    if (setting_write(row, &settings, text, &err) != ERR_INVALID)
        fail_msg("--%s takes \"%s\"", row->name, text);
    snprintf(begin, sizeof begin, "--%s %s: allowed are ", row->name, text);
    if (strncmp(err.text, begin, strlen(begin)) != 0)
        fail_msg("not the form of an error: %s", err.text);
    assert_memory_equal(&settings, &before, sizeof settings);
}

static void every_default_is_read_as_itself(void **state)
{
    (void)state;
    uint32_t count, with_default = 0;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++)
        for (int command = 0; command < COMMAND_COUNT; command++) {
            struct settings settings;
            if (!setting_is_of(&rows[i], (enum command)command))
                continue;
            settings_defaults(&settings, (enum command)command);
            assert_false(settings_is_given(&settings, &rows[i]));
            const char *initial = rows[i].initial;
            if (rows[i].kind == SETTING_FLAG)
                initial = "off";
            expect(&rows[i], &settings, initial);
            if (!initial)
                continue;
            accept(&rows[i], &settings, initial);
            expect(&rows[i], &settings, initial);
            with_default++;
        }
    assert_true(with_default > 40);
}

static void every_word_is_taken_and_given_back(void **state)
{
    (void)state;
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        struct settings settings = settings_for(&rows[i]);
        for (const struct setting_word *w = rows[i].words; w && w->text; w++) {
            const struct setting_word *plain = rows[i].words;
            if (rows[i].offers && !rows[i].offers(w->value)) {
                refuse(&rows[i], w->text);
                continue;
            }
            while (plain->text && (plain->hidden || plain->value != w->value))
                plain++;
            accept(&rows[i], &settings, w->text);
            expect(&rows[i], &settings, plain->text ? plain->text : rows[i].initial);
        }
        if (rows[i].words)
            refuse(&rows[i], "no-such-word");
    }
}

static void write_integer(const struct setting_number *number, double value, char text[NUMBER_TEXT])
{
    snprintf(text, NUMBER_TEXT, "%s%.0f%s", number->before ? number->before : "", value,
             number->after ? number->after : "");
}

static void limits_are_taken_and_what_is_beyond_is_not(void **state)
{
    (void)state;
    static const char *const never[] = {"",   "inf", "nan",  "-inf", "1e300", "12x",
                                        " 1", "1 ",  "0x10", "-1",   "1e99",  "1,0"};
    uint32_t count, numbers = 0;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++)
        for (size_t n = 0; n < COUNT(rows[i].numbers); n++) {
            const struct setting_number *number = &rows[i].numbers[n];
            struct settings settings = settings_for(&rows[i]);
            char text[NUMBER_TEXT];
            if (number->kind == NUMBER_NONE || rows[i].kind != SETTING_VALUE)
                continue;
            for (size_t k = 0; k < COUNT(never); k++)
                refuse(&rows[i], never[k]);
            if (number->kind == NUMBER_INTEGER) {
                refuse(&rows[i], "4294967296"); /* 2^32: not 0 */
                refuse(&rows[i], "18446744073709551617");
                write_integer(number, number->most + 1, text);
                refuse(&rows[i], text);
                write_integer(number, number->most, text);
                accept(&rows[i], &settings, text);
                expect(&rows[i], &settings, text);
                assert_true(number->field.size == sizeof(uint32_t) && number->most < 0x1p32);
            } else if (number->kind == NUMBER_SIZE) {
                accept(&rows[i], &settings, number_bytes_text((uint64_t)number->most, text));
                expect(&rows[i], &settings, text);
                refuse(&rows[i], number_bytes_text((uint64_t)number->most + 1, text));
                if (number->least > 0) {
                    refuse(&rows[i], "0B");
                } else { /* then it is not what stands for "not given" */
                    accept(&rows[i], &settings, "0B");
                    expect(&rows[i], &settings, "0B");
                }
            } else {
                number_real_text(number->most, number->field.size == sizeof(float), text);
                accept(&rows[i], &settings, text);
                expect(&rows[i], &settings, text);
                snprintf(text, sizeof text, "%.9g", number->most * 1.001);
                refuse(&rows[i], text);
            }
            numbers++;
        }
    assert_true(numbers > 20);
}

/* The command line that scripts were promised, for what this version plans. */
static void every_promised_option_is_there(void **state)
{
    (void)state;
    static const char *const promised[COMMAND_COUNT] = {
        [COMMAND_FIT] =
            "model from code gpus rank seq micro-batch accumulate accumulate-sync gpu "
            "gpus-per-node profile clock attention strategy replicate units reshard "
            "forward-prefetch backward-prefetch param-dtype reduce-dtype store-dtype checkpointing "
            "optimizer optimizer-impl clip offload events json quiet",
        [COMMAND_PLAN] =
            "model from code gpus rank seq micro-batch accumulate accumulate-sync gpu "
            "gpus-per-node profile clock attention strategy replicate units reshard "
            "forward-prefetch backward-prefetch param-dtype reduce-dtype store-dtype checkpointing "
            "optimizer optimizer-impl clip offload output json quiet",
        [COMMAND_TUNE] = "model code gpus rank seq micro-batch accumulate accumulate-sync gpu "
                         "gpus-per-node profile strategy replicate units reshard forward-prefetch "
                         "backward-prefetch param-dtype reduce-dtype store-dtype checkpointing "
                         "optimizer optimizer-impl clip offload global-batch fix allow max-memory "
                         "headroom output json quiet",
        [COMMAND_SWEEP] = "model gpus seq micro-batch reshard over largest fewest show output json "
                          "quiet",
        [COMMAND_DIFF] = "a b gpus seq micro-batch reshard output json quiet",
        [COMMAND_RUN] = "plan ranks device output json quiet",
        [COMMAND_COMPARE] = "plan trace output json quiet",
        [COMMAND_EXPORT] = "plan to output json quiet",
        [COMMAND_CALIBRATE] = "output json quiet",
        [COMMAND_MODELS] = "json quiet",
        [COMMAND_GPUS] = "json quiet",
        [COMMAND_KERNELS] = "table gpu clock json quiet",
        [COMMAND_RANK] = "plan device output json quiet",
    };
    static const char *const of_ddp[] = {
        "bucket-cap-mb", "gradient-as-bucket-view", "static-graph",      "comm-hook",
        "autocast",      "find-unused-parameters",  "broadcast-buffers", "zero-redundancy"};
    char names[1024], *rest;
    struct settings settings;
    struct err err = {0};
    for (int command = 0; command < COMMAND_COUNT; command++) {
        settings_defaults(&settings, (enum command)command);
        snprintf(names, sizeof names, "%s", promised[command]);
        for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
            if (!settings_find(&settings, name, &err))
                fail_msg("%s", err.text);
    }
    settings_defaults(&settings, COMMAND_PLAN);
    settings.job.strategy.system = SYSTEM_DDP;
    for (size_t i = 0; i < COUNT(of_ddp); i++)
        if (!settings_find(&settings, of_ddp[i], &err))
            fail_msg("%s", err.text);
}

static void a_system_has_its_own_settings(void **state)
{
    (void)state;
    char buffer[NUMBER_TEXT];
    struct settings settings;
    struct err err = {0};
    settings_defaults(&settings, COMMAND_FIT);
    assert_int_equal(settings_set(&settings, "bucket-cap-mb", "50", &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "--bucket-cap-mb: fsdp2 has no buckets; it belongs to ddp"));
    settings.job.strategy.system = SYSTEM_DDP;
    err = (struct err){0};
    assert_int_equal(settings_set(&settings, "reshard", "never", &err), ERR_INVALID);
    assert_string_equal(err.text, "--reshard: ddp shards no parameters; it belongs to fsdp2");
    assert_null(settings_get(&settings, "reshard", buffer));

    /* the default is two values: 25 MiB, and 1 for the first bucket */
    assert_true(settings.job.strategy.bucket_cap_mb == 0);
    assert_string_equal(settings_get(&settings, "bucket-cap-mb", buffer), "default");
    assert_int_equal(settings_set(&settings, "bucket-cap-mb", "default", NULL), ERR_OK);
    assert_true(settings.job.strategy.bucket_cap_mb == 0);
    assert_int_equal(settings_set(&settings, "bucket_cap_mb", "25", NULL), ERR_OK);
    assert_true(settings.job.strategy.bucket_cap_mb == 25);
    assert_int_equal(settings_set(&settings, "gradient-as-bucket-view", "on", NULL), ERR_OK);
    assert_int_equal(settings_set(&settings, "comm-hook", "bf16_compress", NULL), ERR_OK);
    const struct strategy *s = &settings.job.strategy;
    assert_true(s->bucket_view && !s->static_graph);
    assert_int_equal(s->comm_hook, COMM_HOOK_BF16);

    /* the dtypes of what it has not are not fsdp2's defaults */
    struct model_config config;
    struct job job;
    assert_int_equal(model_preset_find("gpt2", &config, NULL), ERR_OK);
    assert_int_equal(settings_job(&settings, &config, &job, NULL), ERR_OK);
    assert_int_equal(job.strategy.compute, DTYPE_FP32);
    assert_int_equal(job.strategy.reduce, DTYPE_FP32);
    assert_int_equal(job.model.compute, DTYPE_FP32);
    json_t *echo = settings_echo(&settings);
    assert_true(json_number_value(json_object_get(echo, "bucket_cap_mb")) == 25);
    assert_null(json_object_get(echo, "reshard"));
    json_decref(echo);
}

static void an_unknown_name_is_answered_with_the_nearest(void **state)
{
    (void)state;
    static const struct {
        const char *name, *says;
    } cases[] = {
        {"resharding", "did you mean --reshard?"},
        {"--microbatch", "did you mean --micro-batch?"},
        {"mirco_batch", "did you mean --micro-batch?"},
        {"goodput", "it belongs to `shardplan plan`"},
        {"steps", "it belongs to `shardplan run`"},
        {"zzzzzzzz", "--zzzzzzzz: `shardplan fit` does not have it"},
    };
    struct settings settings;
    settings_defaults(&settings, COMMAND_FIT);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct err err = {0};
        assert_int_equal(settings_set(&settings, cases[i].name, "1", &err), ERR_INVALID);
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s: %s", cases[i].name, err.text);
    }
    struct err err = {0};
    settings_set(&settings, "reshard", "nevr", &err);
    assert_string_equal(err.text, "--reshard nevr: allowed are default, always, never, numbers of "
                                  "ranks 1 ... 1000000; did you mean never?");
    err = (struct err){0};
    settings_set(&settings, "gpu", "h1000", &err);
    assert_non_null(strstr(err.text, "did you mean h100-sxm?"));
}

static void values_of_two_kinds_exclude_each_other(void **state)
{
    (void)state;
    char buffer[NUMBER_TEXT];
    struct settings s;
    settings_defaults(&s, COMMAND_FIT);
    settings_set(&s, "units", "4", NULL);
    assert_true(s.job.strategy.units == UNITS_BLOCKS && s.job.strategy.per_unit == 4);
    assert_string_equal(settings_get(&s, "units", buffer), "4");
    settings_set(&s, "units", "500MB", NULL);
    assert_true(s.job.strategy.units == UNITS_BYTES && s.job.strategy.unit_bytes == 500000000);
    assert_string_equal(settings_get(&s, "units", buffer), "500MB");
    settings_set(&s, "units", "torchtitan", NULL);
    assert_true(s.job.strategy.units == UNITS_TORCHTITAN && s.job.strategy.per_unit == 1 &&
                s.job.strategy.unit_bytes == 0);
    settings_set(&s, "reshard", "8", NULL);
    assert_true(s.job.strategy.reshard == RESHARD_INT && s.job.strategy.reshard_ranks == 8);
    settings_set(&s, "reshard", "always", NULL);
    assert_true(s.job.strategy.reshard == RESHARD_ALWAYS && s.job.strategy.reshard_ranks == 0);
    settings_set(&s, "clip", "0.5", NULL);
    assert_true(s.job.strategy.max_norm == 0.5F);
    settings_set(&s, "clip", "off", NULL);
    assert_true(s.job.strategy.max_norm == 0);
    settings_set(&s, "gpu", "NVIDIA A100-SXM4-80GB", NULL);
    assert_string_equal(settings_get(&s, "gpu", buffer), "a100-sxm-80gb");
    settings_defaults(&s, COMMAND_RUN);
    assert_null(settings_get(&s, "rehearse", buffer));
    assert_int_equal(settings_set(&s, "rehearse", "3/1024", NULL), ERR_OK);
    assert_true(s.run.rehearse_rank == 3 && s.run.rehearse_world == 1024);
    assert_string_equal(settings_get(&s, "rehearse", buffer), "3/1024");
    static const char *const bad[] = {"4/4",          "1",    "/4",   "1/", "a/4",
                                      "0/9999999999", "-1/4", "1/4/4"};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(settings_set(&s, "rehearse", bad[i], NULL), ERR_INVALID);
}

/* What is one option of several systems is said once: the first row has the words of all. */
static void an_option_of_several_systems_is_one(void **state)
{
    (void)state;
    uint32_t count, repeated = 0;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        const struct setting *first = rows;
        if (!setting_repeats(&rows[i]))
            continue;
        while (strcmp(first->name, rows[i].name) != 0 || first->group != rows[i].group ||
               first->commands != rows[i].commands)
            first++;
        struct settings settings = settings_for(first);
        for (const struct setting_word *w = rows[i].words; w && w->text; w++)
            accept(first, &settings, w->text);
        assert_string_equal(first->initial, rows[i].initial);
        repeated++;
    }
    assert_true(repeated > 0);
}

/* Lengths of sequences are called by their 1024s. */
static void tokens_may_be_counted_by_1024s(void **state)
{
    (void)state;
    struct settings s;
    char buffer[NUMBER_TEXT];
    settings_defaults(&s, COMMAND_FIT);
    assert_int_equal(settings_set(&s, "seq", "8k", NULL), ERR_OK);
    assert_string_equal(settings_get(&s, "seq", buffer), "8192");
    assert_int_equal(settings_set(&s, "seq", "128K", NULL), ERR_OK);
    assert_string_equal(settings_get(&s, "seq", buffer), "131072");
    static const char *const bad[] = {"k", "8kk", "8m", "0k", "1.5k", "18014398509481984k", "-1k"};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(settings_set(&s, "seq", bad[i], NULL), ERR_INVALID);
    assert_int_equal(settings_set(&s, "gpus", "8k", NULL), ERR_INVALID);
}

/* planner/job has defaults of its own, for those that start from no text. */
static void defaults_are_those_of_a_job(void **state)
{
    (void)state;
    const struct model_preset *preset;
    struct settings settings;
    settings_defaults(&settings, COMMAND_FIT);
    for (uint32_t i = 0; (preset = model_preset_at(i)) != NULL; i++) {
        struct job job, expected;
        assert_int_equal(settings_job(&settings, &preset->config, &job, NULL), ERR_OK);
        job_defaults(&expected, &preset->config);
        expected.model.seq = job.model.seq; /* depends on the model here alone */
        assert_memory_equal(&job.model, &expected.model, sizeof job.model);
        assert_memory_equal(&job.tape, &expected.tape, sizeof job.tape);
        assert_memory_equal(&job.strategy, &expected.strategy, sizeof job.strategy);
        const uint32_t longest = model_longest(&preset->config);
        assert_int_equal(job.model.seq, longest && longest < 2048 ? longest : 2048);
        if (strcmp(preset->name, "roberta-base") == 0)
            assert_int_equal(job.model.seq, 512); /* of 514 rows two are for padding */
    }
}

static void axes_have_values_that_can_be_set(void **state)
{
    (void)state;
    uint32_t count, axes = 0, wide = 0;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        struct settings settings = settings_for(&rows[i]);
        char text[NUMBER_TEXT];
        uint32_t values = 0;
        while (setting_axis_value(&rows[i], values, text)) {
            accept(&rows[i], &settings, text);
            expect(&rows[i], &settings, text);
            values++;
        }
        assert_int_equal(values > 0, rows[i].axis != NULL);
        axes += values > 0;
        const uint32_t usual = values;
        for (; setting_wide_value(&rows[i], values, text); values++) {
            accept(&rows[i], &settings, text);
            expect(&rows[i], &settings, text);
        }
        assert_int_equal(values > usual, rows[i].wide != NULL);
        wide += values > usual;
    }
    assert_true(axes > 15 && wide > 3);
}

/* Dtypes and batch sizes change what is trained; how memory is spent on it does not. */
static void numerics_are_told_from_the_rest(void **state)
{
    (void)state;
    static const char *const changes[] = {"param-dtype", "reduce-dtype", "store-dtype",
                                          "micro-batch", "accumulate",   "optimizer",
                                          "clip",        "seq"};
    static const char *const same[] = {"reshard",
                                       "units",
                                       "forward-prefetch",
                                       "checkpointing",
                                       "optimizer-impl",
                                       "offload",
                                       "replicate",
                                       "gpu",
                                       "accumulate-sync",
                                       "expandable-segments",
                                       "rank"};
    struct settings settings;
    settings_defaults(&settings, COMMAND_FIT);
    for (size_t i = 0; i < COUNT(changes); i++)
        assert_true(settings_find(&settings, changes[i], NULL)->numerics);
    for (size_t i = 0; i < COUNT(same); i++)
        assert_false(settings_find(&settings, same[i], NULL)->numerics);
}

/* Sets a few random settings of a command to random values of their axes. */
static void choose_some(gsl_rng *random, struct settings *settings, char texts[8][NUMBER_TEXT])
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (int k = 0; k < 8; k++) {
        const struct setting *row = &rows[gsl_rng_uniform_int(random, count)];
        uint32_t values = 0;
        while (setting_axis_value(row, values, texts[k]))
            values++;
        if (values == 0 || !setting_is_of(row, settings->command) ||
            !setting_suits(row, settings->job.strategy.system))
            continue;
        setting_axis_value(row, (uint32_t)gsl_rng_uniform_int(random, values), texts[k]);
        assert_int_equal(settings_set(settings, row->name, texts[k], NULL), ERR_OK);
    }
}

static void arguments_give_the_same_settings_again(void **state)
{
    (void)state;
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    for (int round = 0; round < 200; round++) {
        struct settings a, b;
        struct arena arena = {0};
        char texts[8][NUMBER_TEXT];
        uint32_t count;
        settings_defaults(&a, COMMAND_PLAN);
        settings_defaults(&b, COMMAND_PLAN);
        settings_set(&a, "goodput", "on", NULL);
        choose_some(random, &a, texts);
        const char **arguments = settings_arguments(&a, COMMAND_PLAN, &arena, &count);
        for (uint32_t i = 0; i < count; i++) {
            const bool flag = strcmp(arguments[i], "--goodput") == 0;
            assert_int_equal(settings_set(&b, arguments[i], flag ? "on" : arguments[i + 1], NULL),
                             ERR_OK);
            i += !flag;
        }
        json_t *of_a = settings_echo(&a), *of_b = settings_echo(&b);
        assert_true(json_equal(of_a, of_b) && b.goodput);
        json_decref(of_a);
        json_decref(of_b);
        arena_free(&arena);
    }
    gsl_rng_free(random);
}

static void a_difference_is_what_to_type(void **state)
{
    (void)state;
    char text[128];
    struct settings a, b;
    settings_defaults(&a, COMMAND_FIT);
    settings_defaults(&b, COMMAND_FIT);
    assert_string_equal(settings_difference(&a, &b, text, sizeof text), "");
    settings_set(&b, "checkpointing", "full", NULL);
    settings_set(&b, "gpus", "8", NULL); /* as before */
    settings_set(&b, "micro-batch", "2", NULL);
    settings_set(&b, "freeze", "*norm*", NULL);
    assert_string_equal(settings_difference(&a, &b, text, sizeof text),
                        "--micro-batch 2 --checkpointing full --freeze *norm*");
    settings_defaults(&a, COMMAND_FIT);
    settings_set(&a, "gpu", "gb200", NULL);
    b = a;
    settings_set_gpus(&b, 72); /* nodes follow */
    assert_int_equal(a.gpus_per_node, 64);
    assert_int_equal(b.gpus_per_node, 72);
    assert_string_equal(settings_difference(&a, &b, text, sizeof text), "--gpus 72");
    settings_set(&b, "gpus-per-node", "36", NULL);
    assert_string_equal(settings_difference(&a, &b, text, sizeof text),
                        "--gpus 72 --gpus-per-node 36");
}

static void what_was_given_reads_as_typed(void **state)
{
    (void)state;
    char text[128];
    struct settings s;
    settings_defaults(&s, COMMAND_SWEEP);
    assert_string_equal(settings_given_text(&s, text, sizeof text), "");
    settings_set(&s, "gpus", "16", NULL);
    settings_set(&s, "model", "gpt2", NULL);
    settings_set(&s, "over", "reshard", NULL);
    settings_set(&s, "json", "on", NULL);
    assert_string_equal(settings_given_text(&s, text, sizeof text), "gpt2 --gpus 16");
    assert_string_equal(settings_given_text(&s, text, 8), "gpt2 --");
}

static void files_are_collected_up_to_a_limit(void **state)
{
    (void)state;
    struct settings settings;
    settings_defaults(&settings, COMMAND_CALIBRATE);
    for (int i = 0; i < SETTINGS_MOST_FILES; i++)
        assert_int_equal(settings_set(&settings, "from-nccl-tests", "a", NULL), ERR_OK);
    assert_int_equal(settings_set(&settings, "from-nccl-tests", "a", NULL), ERR_INVALID);
    json_t *echo = settings_echo(&settings);
    assert_int_equal(json_array_size(json_object_get(echo, "from_nccl_tests")),
                     SETTINGS_MOST_FILES);
    json_decref(echo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_default_is_read_as_itself),
        cmocka_unit_test(every_word_is_taken_and_given_back),
        cmocka_unit_test(limits_are_taken_and_what_is_beyond_is_not),
        cmocka_unit_test(every_promised_option_is_there),
        cmocka_unit_test(a_system_has_its_own_settings),
        cmocka_unit_test(an_unknown_name_is_answered_with_the_nearest),
        cmocka_unit_test(values_of_two_kinds_exclude_each_other),
        cmocka_unit_test(an_option_of_several_systems_is_one),
        cmocka_unit_test(tokens_may_be_counted_by_1024s),
        cmocka_unit_test(defaults_are_those_of_a_job),
        cmocka_unit_test(axes_have_values_that_can_be_set),
        cmocka_unit_test(numerics_are_told_from_the_rest),
        cmocka_unit_test(arguments_give_the_same_settings_again),
        cmocka_unit_test(a_difference_is_what_to_type),
        cmocka_unit_test(what_was_given_reads_as_typed),
        cmocka_unit_test(files_are_collected_up_to_a_limit),
    };
    return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
