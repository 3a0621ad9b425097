/* test_truth_optimizers.c - bitsandbytes' and torchao's optimizers beside the libraries, event by
 * event; and what they make in the first step. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define ROWS "tests/data/truth/optimizers_events.jsonl"
#define FIRST "tests/data/truth/optimizers_first.jsonl"

static void rows_of(enum system_kind system)
{
    truth_check_file(ROWS, system, true, truth_read_either);
}

static void rows_of_single(void **state)
{
    (void)state;
    rows_of(SYSTEM_SINGLE);
}

static void rows_of_ddp(void **state)
{
    (void)state;
    rows_of(SYSTEM_DDP);
}

static void rows_of_fsdp2(void **state)
{
    (void)state;
    rows_of(SYSTEM_FSDP2);
}

static void rows_of_fsdp1(void **state)
{
    (void)state;
    rows_of(SYSTEM_FSDP1);
}

static void rows_of_zero(void **state)
{
    (void)state;
    rows_of(SYSTEM_ZERO1);
    rows_of(SYSTEM_ZERO2);
    rows_of(SYSTEM_ZERO3);
}

static void first_steps(void **state)
{
    (void)state;
    FILE *file = fopen(FIRST, "r");
    assert_non_null(file);
    char *line = NULL;
    size_t size = 0, rows = 0;
    while (getline(&line, &size, file) > 0) {
        json_t *row = truth_row(line);
        struct plan *plan = truth_plan(row, truth_read_either);
        assert_non_null(plan);
        assert_int_equal(truth_compare_states(row, plan), 0);
        plan_free(plan);
        json_decref(row);
        rows++;
    }
    free(line);
    fclose(file);
    assert_true(rows > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_single), cmocka_unit_test(rows_of_ddp),
        cmocka_unit_test(rows_of_fsdp2),  cmocka_unit_test(rows_of_fsdp1),
        cmocka_unit_test(rows_of_zero),   cmocka_unit_test(first_steps),
    };
    return cmocka_run_group_tests_name("truth_optimizers", tests, NULL, NULL);
}
