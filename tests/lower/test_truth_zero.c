/* test_truth_zero.c - plans of ZeRO beside recordings of DeepSpeed 0.19.8 itself
 * (tests/data/truth): every event, and every number of the rows that have no events. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void events_equal_deepspeeds(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/zero_events.jsonl", "deepspeed", true, truth_read_written);
}

static void events_of_a_toy_do(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/systems_events.jsonl", "deepspeed", true,
                     truth_read_written);
}

static void numbers_of_real_sizes_do(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/systems_visible.jsonl", "deepspeed", false,
                     truth_read_written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_equal_deepspeeds),
        cmocka_unit_test(events_of_a_toy_do),
        cmocka_unit_test(numbers_of_real_sizes_do),
    };
    return cmocka_run_group_tests_name("truth_zero", tests, NULL, NULL);
}
