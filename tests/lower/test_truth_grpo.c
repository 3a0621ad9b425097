/* test_truth_grpo.c - the step of TRL 1.16.0's trainer of policies beside PyTorch and DeepSpeed
 * with it, and steps of which prompts have no labels: every event, and the numbers of rows that
 * have no events. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void check(enum system_kind system)
{
    truth_check_file("tests/data/truth/grpo_events.jsonl", system, true, truth_read_hf);
}

static void events(void **state)
{
    (void)state;
    check(SYSTEM_FSDP2);
    check(SYSTEM_FSDP1);
    check(SYSTEM_DDP);
    check(SYSTEM_SINGLE);
}

static void events_of_zero(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/zero_grpo_events.jsonl", SYSTEM_ZERO1, true, truth_read_hf);
    truth_check_file("tests/data/truth/zero_grpo_events.jsonl", SYSTEM_ZERO2, true, truth_read_hf);
    truth_check_file("tests/data/truth/zero_grpo_events.jsonl", SYSTEM_ZERO3, true, truth_read_hf);
}

static void numbers(void **state)
{
    static const enum system_kind systems[] = {SYSTEM_FSDP2,  SYSTEM_FSDP1, SYSTEM_DDP,
                                               SYSTEM_SINGLE, SYSTEM_ZERO1, SYSTEM_ZERO2,
                                               SYSTEM_ZERO3};
    (void)state;
    for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++)
        truth_check_file("tests/data/truth/grpo_visible.jsonl", systems[i], false, truth_read_hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events),
        cmocka_unit_test(events_of_zero),
        cmocka_unit_test(numbers),
    };
    return cmocka_run_group_tests_name("truth_grpo", tests, NULL, NULL);
}
