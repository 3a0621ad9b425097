/* test_truth_attention.c - attention in single ops (`--attention math`) and as transformers writes
 * it in Python (`--attention eager`): our event lists beside those that torch 2.14.1 and
 * transformers 5.23.0 recorded under FSDP2, DDP and FSDP1
 * (tests/data/truth/attention_events.jsonl), and beside steps that were computed
 * (attention_real_events.jsonl). */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const char recorded[] = "tests/data/truth/attention_events.jsonl";
static const char computed[] = "tests/data/truth/attention_real_events.jsonl";

static void events_equal_the_recorded(void **state)
{
    (void)state;
    truth_check_file(recorded, SYSTEM_FSDP2, true, truth_read_either);
    truth_check_file(recorded, SYSTEM_DDP, true, truth_read_either);
    truth_check_file(recorded, SYSTEM_FSDP1, true, truth_read_either);
}

static void events_equal_those_of_computed_steps(void **state)
{
    (void)state;
    FILE *file = fopen(computed, "r");
    assert_non_null(file);
    char *line = NULL;
    size_t size = 0, rows = 0, wrong = 0;
    while (getline(&line, &size, file) > 0) {
        json_t *row = truth_row(line);
        struct plan *plan = truth_plan(row, truth_read_either);
        rows++;
        wrong += !plan || truth_compare_bytes(row, plan) != 0;
        plan_free(plan);
        json_decref(row);
    }
    free(line);
    fclose(file);
    assert_true(rows >= 20);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_equal_the_recorded),
        cmocka_unit_test(events_equal_those_of_computed_steps),
    };
    return cmocka_run_group_tests_name("truth of attention", tests, NULL, NULL);
}
