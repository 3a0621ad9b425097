/* test_long_step_cli.c - steps of very many micro-batches, whose files have few: what may be done
 * with them, and that it is the same as with all. SHARDPLAN names the program. */
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define JOB "llama-3.2-1b --gpus 4 --seq 128 "
#define TOY "tests/data/configs/toy-llama --gpus 4 --seq 128 "

static char folder[] = "/tmp/shardplan_long.XXXXXX";

static int make_plans(void **state)
{
    (void)state;
    if (folder_make(folder) != 0 || folder_draws_at_once(folder) != 0)
        return -1;
    return shardplan("plan " JOB "--accumulate 4096 -o %s/long", folder);
}

static int remove_plans(void **state)
{
    (void)state;
    return shell("rm -r %s", folder);
}

static void expect_says(int status, int expected, const char *says)
{
    if (status != expected || !strstr(program_output(), says))
        fail_msg("exit %d, no \"%s\" in: %s", status, says, program_output());
}

/* Numbers to so many digits as a file keeps of seconds; sums of many have lost some. */
static void expect_alike(const json_t *a, const json_t *b, const char *where)
{
    const char *key;
    json_t *value;
    size_t i;
    if (json_is_number(a) && json_is_number(b)) {
        const double x = json_number_value(a), y = json_number_value(b);
        if (fabs(x - y) > 1e-8 * fmax(1, fmax(fabs(x), fabs(y))))
            fail_msg("%s: %.12g and %.12g", where, x, y);
        return;
    }
    if (!json_is_object(a) && !json_is_array(a)) {
        if (!json_equal(a, b))
            fail_msg("%s: not the same", where);
        return;
    }
    assert_int_equal(json_object_size(a), json_object_size(b));
    assert_int_equal(json_array_size(a), json_array_size(b));
    json_object_foreach((json_t *)(uintptr_t)a, key, value)
    {
        expect_alike(value, json_object_get(b, key), key);
    }
    json_array_foreach((json_t *)(uintptr_t)a, i, value)
    {
        expect_alike(value, json_array_get(b, i), where);
    }
}

/* Plans of all micro-batches, and jobs of which few are lowered. */
static void few_differ_as_all_do(void **state)
{
    (void)state;
    static const char *const members[] = {"settings", "lanes", "kinds", "units", "groups"};
    static const char *const sides[] = {"a", "b"};
    static const char *const times[] = {"step_s", "spent_s", "communication_s", "host_s"};
    static const char *const systems[] = {"fsdp2", "fsdp1", "zero2"};
    for (size_t k = 0; k < sizeof systems / sizeof *systems; k++) {
        const char *system = systems[k];
        assert_int_equal(shardplan("plan " TOY
                                   "--strategy %s --accumulate 16 --files plan -q -o %s/a",
                                   system, folder),
                         0);
        assert_int_equal(shardplan("plan " TOY
                                   "--strategy %s --accumulate 9 --files plan -q -o %s/b",
                                   system, folder),
                         0);
        assert_int_equal(shell("! grep -q '\"repeats\"' %s/a/plan.json", folder), 0);
        assert_int_equal(shardplan("diff %s/a/plan.json %s/b/plan.json --json", folder, folder), 0);
        json_t *all = program_object();
        assert_int_equal(
            shardplan("diff " TOY "accumulate=9 --strategy %s --accumulate 16 --json", system), 0);
        json_t *few = program_object();
        for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
            assert_non_null(json_object_get(all, members[i]));
            expect_alike(json_object_get(all, members[i]), json_object_get(few, members[i]),
                         members[i]);
        }
        for (int side = 0; side < 2; side++) {
            const json_t *x = json_object_get(all, sides[side]);
            const json_t *y = json_object_get(few, sides[side]);
            assert_non_null(json_object_get(x, "memory"));
            assert_non_null(json_object_get(x, "time"));
            expect_alike(json_object_get(x, "memory"), json_object_get(y, "memory"), "memory");
            for (size_t i = 0; i < sizeof times / sizeof *times; i++)
                expect_alike(json_object_get(json_object_get(x, "time"), times[i]),
                             json_object_get(json_object_get(y, "time"), times[i]), times[i]);
        }
        json_decref(all);
        json_decref(few);
    }
}

static void a_long_step_is_written_short(void **state)
{
    (void)state;
    struct stat file;
    char path[128];
    snprintf(path, sizeof path, "%s/long/plan.json", folder);
    assert_int_equal(stat(path, &file), 0);
    assert_true(file.st_size < 100 << 20);
    expect_says(shardplan("plan " JOB "--accumulate 4096 -o %s/long", folder), 0,
                "has 5 of the step's 4096 micro-batches: number 4 stands for 4092");
    assert_int_equal(shardplan("plan " JOB "--accumulate 4096 --no-files --json"), 0);
    json_t *planned = program_object();
    assert_int_equal(shardplan("fit " JOB "--accumulate 4096 --time --json"), 0);
    json_t *fitted = program_object();
    expect_alike(json_object_get(planned, "time"), json_object_get(fitted, "time"), "time");
    json_decref(planned);
    json_decref(fitted);
}

static void it_is_compared_and_exported(void **state)
{
    (void)state;
    expect_says(shardplan("diff %s/long/plan.json accumulate=2048", folder), 0, "-50.0 %");
    assert_int_equal(shardplan("diff %s/long/plan.json accumulate=2048 --json", folder), 0);
    json_t *read = program_object();
    assert_int_equal(shardplan("diff " JOB "accumulate=2048 --accumulate 4096 --json"), 0);
    json_t *made = program_object();
    expect_alike(json_object_get(read, "units"), json_object_get(made, "units"), "units");
    expect_alike(json_object_get(read, "lanes"), json_object_get(made, "lanes"), "lanes");
    json_decref(read);
    json_decref(made);
    expect_says(shardplan("export %s/long/plan.json --to fsdp2", folder), 0, "fully_shard");
}

/* A step that is walked needs all of its micro-batches. */
static void it_is_not_run(void **state)
{
    (void)state;
    expect_says(shardplan("run %s/long/plan.json", folder), 2,
                "it has 5 of the step's 4096 micro-batches");
    assert_int_equal(shell("cp %s/long/trace.json %s/recorded.json", folder, folder), 0);
    expect_says(shardplan("compare %s/long/plan.json %s/recorded.json", folder, folder), 2,
                "it has 5 of the step's 4096 micro-batches");
}

/* What a file says of its micro-batches is looked at. */
static void a_micro_batch_that_does_not_repeat_is_refused(void **state)
{
    (void)state;
    expect_says(shell("sed '/\"micro_batches\"/,/]/s/\"event\": [1-9][0-9]*/\"event\": 1/' "
                      "%s/long/plan.json > %s/bad.json; ^/shardplan diff %s/bad.json "
                      "reshard=never 2>&1",
                      folder, folder, folder),
                2, "repeats");
    expect_says(shell("sed 's/\"repeats\": 4091/\"repeats\": -1/' %s/long/plan.json > %s/bad.json; "
                      "^/shardplan diff %s/bad.json reshard=never 2>&1",
                      folder, folder, folder),
                2, "repeats");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_differ_as_all_do),
        cmocka_unit_test(a_long_step_is_written_short),
        cmocka_unit_test(it_is_compared_and_exported),
        cmocka_unit_test(it_is_not_run),
        cmocka_unit_test(a_micro_batch_that_does_not_repeat_is_refused),
    };
    return cmocka_run_group_tests(tests, make_plans, remove_plans);
}
