/* test_streams.c - what a plan's streams wait for, beside what PyTorch's own FSDP2 and DDP asked of
 * their streams and events (tests/data/truth/streams.jsonl). */
#include "tests/support/streams.h"
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What a static graph's third step has besides, its buckets being made anew, no later one has. And
 * FSDP1's streams are held line by line in test_streams_fsdp1.c. */
static bool is_steady(const json_t *row)
{
    const char *system = truth_text(json_object_get(row, "strategy"), "system", "fsdp2");
    return strcmp(system, "fsdp1") != 0 &&
           !truth_bool(json_object_get(row, "strategy"), "static_graph", false);
}

struct tally {
    size_t rows, ops, wrong, left_out;
};

/* A row as one version of PyTorch recorded it. */
static void check_row(const json_t *row, struct tally *t)
{
    size_t ops = 0;
    struct plan *plan =
        truth_is_planned(row) && is_steady(row) ? truth_plan(row, truth_read_either) : NULL;
    t->left_out += !plan;
    if (plan) {
        if (!streams_equal(row, plan, &ops)) {
            t->wrong++;
            print_message("    torch %s\n", truth_text(row, "torch", "2.14"));
        }
        assert_true(ops > 0);
        t->rows++;
        t->ops += ops;
    }
    plan_free(plan);
}

static void check_file(const char *path, size_t least)
{
    FILE *file = fopen(path, "r");
    json_t *row, *version;
    struct tally t = {0};
    size_t i;
    assert_non_null(file);
    while ((row = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL))) {
        check_row(row, &t);
        json_array_foreach(json_object_get(row, "torch_also"), i, version)
        {
            json_object_set(row, "torch", version);
            check_row(row, &t);
        }
        json_decref(row);
    }
    fclose(file);
    print_message("    streams: %zu rows, %zu operations, %zu rows with another order; %zu rows "
                  "are of what is not planned\n",
                  t.rows, t.ops, t.wrong, t.left_out);
    assert_int_equal(t.wrong, 0);
    assert_true(t.rows >= least);
}

static void waits_are_those_of_pytorch(void **state)
{
    (void)state;
    check_file("tests/data/truth/streams.jsonl", 60);
}

static void waits_are_those_of_deepspeed(void **state)
{
    (void)state;
    check_file("tests/data/truth/zero_streams.jsonl", 39);
}

static void waits_are_those_of_older_versions(void **state)
{
    (void)state;
    check_file("tests/data/truth/version_streams.jsonl", 100);
    check_file("tests/data/truth/older_streams.jsonl", 29);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_are_those_of_pytorch),
        cmocka_unit_test(waits_are_those_of_deepspeed),
        cmocka_unit_test(waits_are_those_of_older_versions),
    };
    return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
