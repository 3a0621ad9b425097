/* test_truth_versions.c - our event lists beside those of older versions of PyTorch, as each of
 * them recorded itself (tests/data/truth/version_events.jsonl). */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void events_equal_those_of_older_versions(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/version_events.jsonl", SYSTEM_FSDP2, true,
                     truth_read_written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_equal_those_of_older_versions),
    };
    return cmocka_run_group_tests_name("truth of versions", tests, NULL, NULL);
}
