/* test_truth_offloading.c - what nodes save on the host (TRL's OffloadActivations) beside TRL and
 * PyTorch: every event, on fake tensors. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const char path[] = "tests/data/truth/offloading_events.jsonl";

static void rows_of(void **state)
{
    static const enum system_kind systems[] = {SYSTEM_FSDP2, SYSTEM_DDP, SYSTEM_SINGLE};
    (void)state;
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
        truth_check_file(path, systems[i], true, truth_read_either);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of)};
    return cmocka_run_group_tests_name("truth_offloading", tests, NULL, NULL);
}
