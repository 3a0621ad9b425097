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

static void check_file(const char *path, size_t least)
{
    FILE *file = fopen(path, "r");
    json_t *row;
    size_t rows = 0, all_ops = 0, wrong = 0, left_out = 0;
    assert_non_null(file);
    while ((row = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL))) {
        size_t ops = 0;
        struct plan *plan =
            truth_is_planned(row) && is_steady(row) ? truth_plan(row, truth_read_written) : NULL;
        left_out += !plan;
        if (plan) {
            wrong += !streams_equal(row, plan, &ops);
            assert_true(ops > 0);
            rows++;
            all_ops += ops;
        }
        plan_free(plan);
        json_decref(row);
    }
    fclose(file);
    print_message("    streams: %zu rows, %zu operations, %zu rows with another order; %zu rows "
                  "are of what is not planned\n",
                  rows, all_ops, wrong, left_out);
    assert_int_equal(wrong, 0);
    assert_true(rows >= least);
}

static void waits_are_those_of_pytorch(void **state)
{
    (void)state;
    check_file("tests/data/truth/streams.jsonl", 60);
}

static void waits_are_those_of_deepspeed(void **state)
{
    (void)state;
    check_file("tests/data/truth/zero_streams.jsonl", 36);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_are_those_of_pytorch),
        cmocka_unit_test(waits_are_those_of_deepspeed),
    };
    return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
