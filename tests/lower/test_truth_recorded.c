/* test_truth_recorded.c - models that no builder of ours knows, planned from what tools/record.py
 * recorded of them once, beside fully_shard itself.
 *
 * tests/data/truth/recorded_events.jsonl holds recordings of those models under torch 2.14.1's
 * fully_shard; the row names the file that they are planned from. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void every_model_is_planned_event_for_event(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/recorded_events.jsonl", SYSTEM_FSDP2, true,
                     truth_read_recorded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_is_planned_event_for_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
