/* test_sweep_cli.c - shardplan sweep as people and scripts call it. SHARDPLAN names the program. */
#include "tests/support/program.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TOY "tests/data/configs/toy-llama --seq 256"
#define JOB "llama-3.1-8b --gpus 8 --seq 8192 --checkpointing selective"

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void expect_says(int status, int expected, const char *says)
{
    if (status != expected || !strstr(program_output(), says))
        fail_msg("exit %d, no \"%s\" in: %s", status, says, program_output());
}

/* What sweep says of a point, plan says, too. */
static void a_point_is_what_plan_says(void **state)
{
    (void)state;
    static const char *const values[] = {"default", "never"};
    assert_int_equal(shardplan("sweep " JOB " --over reshard=default,never --json"), 0);
    json_t *sweep = program_object();
    const json_t *points = json_object_get(sweep, "points");
    assert_int_equal(json_array_size(points), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *point = json_array_get(points, i);
        char folder[] = "/tmp/shardplan_sweep.XXXXXX";
        assert_non_null(mkdtemp(folder));
        assert_int_equal(shardplan("plan " JOB " --reshard %s --json -o %s", values[i], folder), 0);
        json_t *plan = program_object();
        const json_t *time = json_object_get(plan, "time"), *peak = json_object_get(plan, "peak");
        assert_string_equal(
            json_string_value(json_object_get(json_object_get(point, "values"), "reshard")),
            values[i]);
        assert_true(number(point, "step_s") == number(time, "step_s"));
        assert_true(number(point, "mfu") == number(time, "mfu"));
        assert_true(number(point, "exposed_communication_s") ==
                    number(time, "exposed_communication_s"));
        assert_true(number(point, "device_bytes") == number(peak, "device_bytes"));
        assert_true(number(point, "requested_bytes") == number(peak, "requested_bytes"));
        json_decref(plan);
        char command[128];
        snprintf(command, sizeof command, "rm -r %s", folder);
        assert_int_equal(system(command), 0); // NOLINT(cert-env33-c)
    }
    assert_int_equal(json_integer_value(json_object_get(sweep, "best")), 1);
    json_decref(sweep);
}

static void a_table_marks_what_is_best_and_what_is_not_possible(void **state)
{
    (void)state;
    expect_says(shardplan("sweep " JOB " --over micro-batch=1,2,4"), 0,
                "best: micro-batch 1: the only one that fits without giving cached memory back\n");
    assert_non_null(strstr(program_output(), "  4            no "));
    assert_null(strstr(program_output(), "\x1b")); /* no colour, no progress in a pipe */
    assert_null(strstr(program_output(), "\r"));
    expect_says(shardplan("sweep " TOY " --over replicate=2,3"), 0,
                "refused: --replicate 3 does not divide --gpus 8");
    expect_says(shardplan("sweep " JOB " --over forward-prefetch=0..3"), 0,
                "every value takes the same time");
    assert_non_null(strstr(program_output(), "reduce_scatter of the root, bwd"));
}

static void two_axes_make_a_map(void **state)
{
    (void)state;
    expect_says(shardplan("sweep " JOB " --over checkpointing --over micro-batch=1,2,4"), 0,
                "(in parentheses): does not fit");
    assert_non_null(strstr(program_output(), "tokens/s of a GPU"));
    expect_says(
        shardplan("sweep " JOB " --over checkpointing --over micro-batch=1,2,4 --show device"), 0,
        "device, GiB");
    expect_says(shardplan("sweep " TOY " --over gpus=4,6 --over replicate=2,3"), 0,
                "-: --replicate 3 does not divide --gpus 4 (gpus 4, replicate 3)");
    expect_says(shardplan("sweep llama-3.1-8b --gpus 8 --gpu h100 --over seq=6k,8k --over "
                          "checkpointing=none,full"),
                0, "*: the best; ~: fits only by giving cached memory back, expect slow steps\n");
    assert_non_null(strstr(program_output(), "~  "));
    assert_non_null(strstr(program_output(), "best: seq 6k, checkpointing none: "));
}

static void a_search_says_what_does_not_fit(void **state)
{
    (void)state;
    expect_says(shardplan("sweep " JOB " --largest micro-batch"), 0,
                "largest micro-batch: 2; 3 does not fit");
    expect_says(shardplan("sweep llama-3.1-8b --gpus 64 --seq 8192 --fewest gpus"), 0,
                "fewest gpus: ");
    expect_says(shardplan("sweep " JOB " --largest seq=1024..65536+1024 --json"), 0,
                "\"largest\": \"seq\"");
    json_t *object = program_object();
    const json_t *answer = json_array_get(json_object_get(object, "points"), 0);
    const char *seq = json_string_value(json_object_get(answer, "answer"));
    assert_non_null(seq);
    assert_int_equal(shardplan("fit " JOB " --seq %s -q", seq), 0);
    assert_int_equal(shardplan("fit " JOB " --seq %lu -q", strtoul(seq, NULL, 10) + 1024), 1);
    assert_true(json_array_size(json_object_get(object, "tried")) > 3);
    json_decref(object);
    expect_says(shardplan("sweep llama-3.1-70b --gpus 8 --seq 8192 --largest micro-batch"), 1,
                "no micro-batch fits");
}

/* Halved bandwidth is a profile file with half of it. */
static void a_number_of_the_profile_is_an_axis(void **state)
{
    (void)state;
    assert_int_equal(shardplan("sweep llama-3.1-8b --gpus 16 --seq 2048 --over "
                               "profile.nic_bytes_per_s=x0.5,x1 --json"),
                     0);
    json_t *object = program_object();
    const json_t *points = json_object_get(object, "points");
    assert_true(number(json_array_get(points, 0), "communication_s") >
                1.2 * number(json_array_get(points, 1), "communication_s"));
    json_decref(object);
}

/* However many cores there are: what is over soon shows no progress. */
#define ONE_CORE "taskset -c $(taskset -cp $$ | sed 's/.* //; s/[-,].*//') "

/* A line that is written over, on a terminal alone. */
static void progress_is_shown_on_a_terminal(void **state)
{
    (void)state;
    static const char job[] = "sweep llama-3.1-8b --over seq=128..16384+128 --over checkpointing";
    if (shell("script --version >/dev/null 2>&1 && " ONE_CORE "true") != 0)
        skip();
    shell(ONE_CORE "script -qec '^/shardplan %s' /dev/null", job);
    assert_non_null(strstr(program_output(), " of 384"));
    assert_non_null(strstr(program_output(), "\r\x1b[K")); /* and taken away */
    /* a line would be due after half a second */
    shell(ONE_CORE "script -qec 'timeout 0.8 ^/shardplan %s -q' /dev/null", job);
    assert_null(strstr(program_output(), " of 384"));
    shell(ONE_CORE "timeout 0.8 ^/shardplan %s 2>&1", job);
    assert_null(strstr(program_output(), " of 384"));
}

/* Nothing is asked of thousands of points first; a folder that could be made is not made for it. */
static void a_folder_that_cannot_be_made_is_said_at_once(void **state)
{
    (void)state;
    static const char job[] = "sweep llama-3.1-70b --over seq=1..60000+1 --over checkpointing";
    assert_int_equal(shell("^/shardplan %s -o /dev/null/x/y 2>&1", job), 3);
    assert_string_equal(program_output(),
                        "shardplan: create folder /dev/null/x/y: /dev/null: Not a directory\n");
    assert_int_equal(shell("^/shardplan tune llama-3.1-405b --gpus 512 -o /dev/null/x 2>&1"), 3);
    assert_string_equal(program_output(),
                        "shardplan: create folder /dev/null/x: /dev/null: Not a directory\n");
    assert_int_equal(
        shell("d=$(mktemp -d) && ^/shardplan sweep llama-3.1-8b --over seq=0 -o $d/a/b; "
              "status=$?; rmdir $d && exit $status"),
        2);
}

/* So is what would make a job fit, below what is said of it. */
static void a_search_for_remedies_is_shown_on_a_terminal(void **state)
{
    (void)state;
    if (shell("script --version >/dev/null 2>&1") != 0)
        skip();
    shell(
        "script -qec '^/shardplan fit llama-3.1-8b --gpus 8 --seq 8192 --micro-batch 2' /dev/null");
    const char *said = program_output(),
               *bar = strstr(said, " %  searching what would fit on 8 GPUs");
    assert_non_null(bar);
    assert_true(strstr(said, "does not fit") < bar);
    const char *away = strstr(bar, "\r\x1b[K"), *told = strstr(bar, "what would make it fit");
    assert_true(away && told && away < told);
}

static void files_are_left_in_the_folder(void **state)
{
    (void)state;
    char folder[] = "/tmp/shardplan_sweep.XXXXXX", path[128];
    assert_non_null(mkdtemp(folder));
    for (int axes = 1; axes <= 2; axes++) {
        assert_int_equal(shardplan("sweep " TOY " --over checkpointing %s -o %s -q",
                                   axes == 2 ? "--over micro-batch=1,2" : "", folder),
                         0);
        assert_true(program_output()[0] == '\0' || strstr(program_output(), "gnuplot"));
        snprintf(path, sizeof path, "%s/sweep.json", folder);
        json_t *object = json_load_file(path, 0, NULL);
        assert_int_equal(json_array_size(json_object_get(object, "points")), axes == 1 ? 3 : 6);
        json_decref(object);
        assert_int_equal(unlink(path), 0);
        snprintf(path, sizeof path, "%s/sweep.svg", folder);
        assert_true((unlink(path) == 0) == !strstr(program_output(), "gnuplot"));
    }
    assert_int_equal(rmdir(folder), 0); /* and nothing else */
}

static void bad_questions_exit_with_2(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *says;
    } cases[] = {
        {"", "MODEL is missing"},
        {TOY, "--over AXIS, --largest AXIS or --fewest AXIS is needed"},
        {TOY " --over resharding", "did you mean --reshard?"},
        {TOY " --over seq", "seq has no values of its own: write seq=VALUE,..."},
        {TOY " --over reshard --over gpus=1,2 --over code", "at most 2 axes"},
        {TOY " --largest seq --fewest gpus", "one of them"},
        {TOY " --over gpus=1,2 --over gpus=4", "gpus: one axis only"},
        {TOY " --over gpus=1,2 --fewest gpus", "gpus: one axis only"},
        {TOY " --largest checkpointing", "no integer setting"},
        {TOY " --over gpus=9..11", "do not fill nodes"}, /* each of them is refused */
        {TOY " --over profile.nic=x2", "is no number of a profile"},
        {TOY " --over micro-batch=1..70000", "more than 65536 values"},
        {"nonesuch --over reshard", "no preset"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_says(shardplan("sweep %s", cases[i].arguments), 2, cases[i].says);
}

static void what_takes_least_is_said_where_nothing_fits(void **state)
{
    (void)state;
    shardplan("sweep llama-3.1-70b --fewest gpus --seq 4096");
    assert_non_null(strstr(program_output(), "no gpus fits; "));
    assert_non_null(strstr(program_output(), " of it activations\n"));
    assert_null(strstr(program_output(), "1000000")); /* but what is around it */
}

/* What `fit` says of the value that takes least; where nothing would do, that. */
static void what_would_fit_is_said_where_nothing_does(void **state)
{
    (void)state;
    expect_says(shardplan("sweep llama-3.1-70b --seq 2048 --fewest gpus=2,4"), 1, "with gpus 4:");
    const char *remedies = strstr(program_output(), "\n  what would make it fit, same training");
    assert_non_null(remedies);
    char row[512];
    remedies = strstr(remedies + 1, "\n  ") + 1;
    snprintf(row, sizeof row, "%.*s", (int)strcspn(remedies, "\n"), remedies);
    expect_says(shardplan("fit llama-3.1-70b --seq 2048 --gpus 4"), 1, row);
    expect_says(shardplan("sweep llama-3.1-405b --seq 512k --fewest gpus=8,16"), 1,
                "no change of up to");
    assert_int_equal(shardplan("sweep llama-3.1-70b --fewest gpus=2,4 --no-remedies"), 1);
    assert_null(strstr(program_output(), "would"));
    assert_int_equal(shardplan("sweep llama-3.1-70b --seq 2048 --fewest gpus=2,4 --json"), 1);
    json_t *object = program_object();
    assert_string_equal(json_string_value(json_object_get(object, "remedies_of")), "4");
    assert_true(json_array_size(json_object_get(object, "remedies")) > 0);
    json_decref(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_point_is_what_plan_says),
        cmocka_unit_test(a_table_marks_what_is_best_and_what_is_not_possible),
        cmocka_unit_test(two_axes_make_a_map),
        cmocka_unit_test(a_search_says_what_does_not_fit),
        cmocka_unit_test(a_number_of_the_profile_is_an_axis),
        cmocka_unit_test(progress_is_shown_on_a_terminal),
        cmocka_unit_test(a_folder_that_cannot_be_made_is_said_at_once),
        cmocka_unit_test(a_search_for_remedies_is_shown_on_a_terminal),
        cmocka_unit_test(files_are_left_in_the_folder),
        cmocka_unit_test(bad_questions_exit_with_2),
        cmocka_unit_test(what_takes_least_is_said_where_nothing_fits),
        cmocka_unit_test(what_would_fit_is_said_where_nothing_does),
    };
    return cmocka_run_group_tests_name("sweep_cli", tests, NULL, NULL);
}
