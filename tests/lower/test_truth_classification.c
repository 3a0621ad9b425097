/* test_truth_classification.c - models that classify sequences, and the step of TRL 1.16.0's
 * trainer of rewards, beside PyTorch and DeepSpeed with them: every event, and the numbers of rows
 * that have no events. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const enum system_kind systems[] = {SYSTEM_FSDP2, SYSTEM_FSDP1, SYSTEM_DDP,  SYSTEM_SINGLE,
                                           SYSTEM_ZERO1, SYSTEM_ZERO2, SYSTEM_ZERO3};
enum { SYSTEMS = sizeof systems / sizeof systems[0], OF_PYTORCH = 4 };

static void events(void **state)
{
    (void)state;
    for (size_t i = 0; i < OF_PYTORCH; i++)
        truth_check_file("tests/data/truth/classification_events.jsonl", systems[i], true,
                         truth_read_hf);
}

static void events_of_zero(void **state)
{
    (void)state;
    for (size_t i = OF_PYTORCH + 1; i < SYSTEMS; i++) /* ZeRO-1 has numbers alone */
        truth_check_file("tests/data/truth/zero_classification_events.jsonl", systems[i], true,
                         truth_read_hf);
}

static void numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < SYSTEMS; i++)
        truth_check_file("tests/data/truth/classification_visible.jsonl", systems[i], false,
                         truth_read_hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events),
        cmocka_unit_test(events_of_zero),
        cmocka_unit_test(numbers),
    };
    return cmocka_run_group_tests_name("truth_classification", tests, NULL, NULL);
}
