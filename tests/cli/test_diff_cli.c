/* test_diff_cli.c - shardplan diff as people and scripts call it. SHARDPLAN names the program. */
#include "tests/support/program.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define JOB "tests/data/configs/toy-llama --gpus 4 --seq 128"

static char folder[] = "/tmp/shardplan_diff.XXXXXX";

static int make_plans(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    return shardplan("plan " JOB " --files plan -q -o %s/a", folder) ||
           shardplan("plan " JOB " --reshard never --files plan -q -o %s/b", folder);
}

static int remove_plans(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command); // NOLINT(cert-env33-c)
}

static void expect_says(int status, int expected, const char *says)
{
    if (status != expected || !strstr(program_output(), says))
        fail_msg("exit %d, no \"%s\" in: %s", status, says, program_output());
}

/* Equal, but for what files leave out of the last digits of seconds. */
static bool are_alike(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    size_t i;
    bool alike = json_typeof(a) == json_typeof(b);
    if (json_is_real(a) && json_is_number(b))
        return fabs(json_number_value(a) - json_number_value(b)) < 1e-9;
    if (!json_is_object(a) && !json_is_array(a))
        return json_equal(a, b);
    alike = alike && json_object_size(a) == json_object_size(b) &&
            json_array_size(a) == json_array_size(b);
    json_object_foreach((json_t *)(uintptr_t)a, key, value)
    {
        alike = alike && json_object_get(b, key) && are_alike(value, json_object_get(b, key));
    }
    json_array_foreach((json_t *)(uintptr_t)a, i, value)
    {
        alike = alike && are_alike(value, json_array_get(b, i));
    }
    return alike;
}

/* What a plan leaves open of its step, `diff` says of it, whether it read it or made it. */
static void sides_have_the_range_of_their_plans(void **state)
{
    (void)state;
    static const char *const lines[] = {"diff %s/a %s/b --json", "diff %s/a reshard=never --json",
                                        "diff " JOB " reshard=never --json"};
    static const char *const keys[] = {"step_low_s", "step_s", "step_high_s"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_int_equal(shardplan(lines[i], folder, folder), 0); // NOLINT
        json_t *of = program_object();
        for (int side = 0; side < 2; side++) {
            assert_int_equal(
                shardplan("plan " JOB "%s --no-files --json", side ? " --reshard never" : ""), 0);
            json_t *plan = program_object();
            const json_t *a = json_object_get(json_object_get(of, side ? "b" : "a"), "time"),
                         *b = json_object_get(plan, "time");
            for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
                assert_true(are_alike(json_object_get(b, keys[k]), json_object_get(a, keys[k])));
            assert_true(json_number_value(json_object_get(a, "step_low_s")) <
                        json_number_value(json_object_get(a, "step_s")));
            json_decref(plan);
        }
        json_decref(of);
    }
}

/* Two files, their folders, a file and changes, a model and changes: the same difference. */
static void every_form_says_the_same(void **state)
{
    (void)state;
    static const char *const members[] = {"settings", "lanes", "kinds", "units", "groups"};
    enum { FORMS = 4 };
    json_t *of[FORMS];
    assert_int_equal(shardplan("diff %s/a/plan.json %s/b/plan.json --json", folder, folder), 0);
    of[0] = program_object();
    assert_int_equal(shardplan("diff %s/a reshard=never --json", folder), 0); /* its plan.json */
    of[1] = program_object();
    assert_int_equal(shardplan("diff " JOB " reshard=never --json"), 0);
    of[2] = program_object();
    assert_int_equal(shardplan("diff %s/a %s/b/ --json", folder, folder), 0);
    of[3] = program_object();
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        for (int k = 1; k < FORMS; k++)
            if (!are_alike(json_object_get(of[0], members[i]), json_object_get(of[k], members[i])))
                fail_msg("%s of form %d is another", members[i], k);
    const json_t *settings = json_object_get(of[0], "settings");
    assert_int_equal(json_object_size(settings), 1);
    const json_t *reshard = json_object_get(settings, "reshard");
    assert_string_equal(json_string_value(json_array_get(reshard, 0)), "default");
    assert_string_equal(json_string_value(json_array_get(reshard, 1)), "never");
    for (int k = 0; k < FORMS; k++)
        json_decref(of[k]);
}

/* What a plan's settings have by default was not asked for: another system need not have it. */
static void a_plan_is_set_beside_another_system(void **state)
{
    (void)state;
    static const char *const systems[] = {"fsdp1", "ddp", "zero3"};
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
        expect_says(shardplan("diff %s/a/plan.json strategy=%s", folder, systems[i]), 0,
                    systems[i]);
}

static void tables_summarise_units(void **state)
{
    (void)state;
    expect_says(shardplan("diff %s/a/plan.json %s/b/plan.json", folder, folder), 0,
                "3 of 4 units (layers.0 first), each: ");
    assert_non_null(strstr(program_output(), "-1 all_gather"));
    assert_non_null(strstr(program_output(), "  root: the same"));
    assert_null(strchr(program_output(), '\x1b'));
    /* how many calls there are more of does not stand in the place of how much longer they take */
    const char *row = strstr(program_output(), "by kind"), *end;
    assert_non_null(row = row ? strstr(row, "\n  all_gather") : NULL);
    end = strchr(row + 1, '\n');
    assert_true(strstr(row, " ms ") < end && strstr(row, " %  ") < end &&
                strstr(row, "-> ") < end && strstr(row, " calls\n") < end);
    /* in the words of fit, nothing wider than a line */
    assert_non_null(strstr(program_output(), "\n  sharded parameters "));
    for (const char *line = program_output(); *line; line += strcspn(line, "\n") + 1)
        if (strcspn(line, "\n") > 100)
            fail_msg("%s", line);
    expect_says(shardplan("diff %s/a/plan.json %s/a/plan.json", folder, folder), 0,
                "4 of 4 units (root first): the same");
    assert_non_null(strstr(program_output(), "  settings"));
    expect_says(shardplan("diff " JOB " units=2"), 0, "only A has 2 units: layers.0, ...");
    expect_says(shardplan("diff gpt2 llama-3.2-1b --seq 512"), 0, "only B has 16 units");
    expect_says(shardplan("diff llama-3.1-8b profile.nic_bytes_per_s=x0.5 --gpus 16"), 0,
                "33 of 33 units (root first): the same; ");
}

/* "13.4 ms" of side A, and half of its last digit. */
static double seconds_of_a(const char *row, double *half)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
    char number[32], unit[8];
    assert_int_equal(sscanf(row, "%31s %7s", number, unit), 2);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].unit, unit) == 0) {
            const char *dot = strchr(number, '.');
            *half = 0.5 * units[i].seconds * pow(10, dot ? -(double)strlen(dot + 1) : 0);
            return strtod(number, NULL) * units[i].seconds;
        }
    fail_msg("%s: no time", row);
    return 0;
}

/* Between "step" and "communication" stands all that a step is spent on. */
static void rows_of_time_add_up_to_the_step(void **state)
{
    (void)state;
    enum { NAMES = 28 }; /* columns */
    double sum = 0, slack = 0, half;
    bool ranks = false;
    assert_int_equal(shardplan("diff llama-3.2-1b reshard=never --gpus 64 --seq 2048"), 0);
    const char *row = strstr(program_output(), "\n  step ");
    assert_non_null(row);
    const double step = seconds_of_a(++row + NAMES, &slack);
    while ((row = strchr(row, '\n') + 1), strncmp(row, "  communication", 15) != 0) {
        const double seconds = seconds_of_a(row + NAMES, &half);
        sum += seconds;
        slack += half;
        ranks |= strncmp(row, "  waiting: slower ranks", 23) == 0 && seconds > 0;
    }
    if (!ranks || fabs(sum - step) > slack + 1e-12)
        fail_msg("%g of %g s: %s", sum, step, program_output());
}

static void files_are_left_in_the_folder(void **state)
{
    (void)state;
    char path[128];
    assert_int_equal(shardplan("diff " JOB " reduce-dtype=bf16 -q -o %s/d", folder), 0);
    snprintf(path, sizeof path, "%s/d/diff.json", folder);
    json_t *object = json_load_file(path, 0, NULL);
    assert_int_equal(json_object_size(json_object_get(object, "settings")), 1);
    json_decref(object);
    snprintf(path, sizeof path, "%s/d/diff.svg", folder);
    assert_true((access(path, R_OK) == 0) == !strstr(program_output(), "gnuplot"));
}

static void bad_questions_exit_with_2(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *says;
    } cases[] = {
        {"gpt2", "A and B are needed"},
        {"reshard=never gpt2", "changes come second"},
        {"gpt2 reshard=nevr", "did you mean never?"},
        {"gpt2 nonesuch", "no preset"},
        {"gpt2 reshard=never,seq", "expected SETTING=VALUE"},
        {"gpt2 resharding=never", "did you mean --reshard?"},
        {"gpt2 gpus=9", "do not fill nodes"},
        {"tests/data/bad/two-objects.json gpt2", "two-objects.json"},
        {"gpt2 reshard=never --from job.yaml",
         "`shardplan plan --from FILE -o DIR`, then `shardplan diff DIR B`"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_says(shardplan("diff %s", cases[i].arguments), 2, cases[i].says);
    expect_says(shardplan("diff %s/a/plan.json %s/b/plan.json --gpus 4", folder, folder), 2,
                "--gpus 4: options are for a model");
    expect_says(shardplan("diff %s/a/plan.json gpus=8 --gpus 4", folder), 2,
                "options are for a model");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_says_the_same),
        cmocka_unit_test(sides_have_the_range_of_their_plans),
        cmocka_unit_test(a_plan_is_set_beside_another_system),
        cmocka_unit_test(tables_summarise_units),
        cmocka_unit_test(rows_of_time_add_up_to_the_step),
        cmocka_unit_test(files_are_left_in_the_folder),
        cmocka_unit_test(bad_questions_exit_with_2),
    };
    return cmocka_run_group_tests_name("diff_cli", tests, make_plans, remove_plans);
}
