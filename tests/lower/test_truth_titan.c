/* test_truth_titan.c - torchtitan's own classes of models: our parameters and events beside the
 * recorded ones (tests/data/truth/titan_events.jsonl, titan_visible.jsonl, which
 * tests/truth/titan.py makes models for). */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void events_of_torchtitan_equal_pytorchs(void **state)
{
    (void)state;
    static const enum system_kind events[] = {SYSTEM_FSDP2, SYSTEM_DDP, SYSTEM_SINGLE};
    static const enum system_kind numbers[] = {SYSTEM_FSDP2, SYSTEM_DDP, SYSTEM_SINGLE,
                                               SYSTEM_FSDP1};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        truth_check_file("tests/data/truth/titan_events.jsonl", events[i], true, truth_read_hf);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        truth_check_file("tests/data/truth/titan_visible.jsonl", numbers[i], false, truth_read_hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_of_torchtitan_equal_pytorchs),
    };
    return cmocka_run_group_tests_name("truth_titan", tests, NULL, NULL);
}
