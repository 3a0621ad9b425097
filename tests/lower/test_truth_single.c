/* test_truth_single.c - plans of one GPU that trains alone beside recordings of torch 2.14.1
 * without any wrapper (tests/data/truth): every event. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void events_equal_pytorchs(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/single_events.jsonl", SYSTEM_SINGLE, true,
                     truth_read_either);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_equal_pytorchs),
    };
    return cmocka_run_group_tests_name("truth_single", tests, NULL, NULL);
}
