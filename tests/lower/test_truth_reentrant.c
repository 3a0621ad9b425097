/* test_truth_reentrant.c - reentrant checkpoints (torch.utils.checkpoint's use_reentrant) beside
 * PyTorch and DeepSpeed: every event, on fake tensors and computed for real. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const char path[] = "tests/data/truth/reentrant_events.jsonl";

static void rows_of(void **state)
{
    static const enum system_kind systems[] = {SYSTEM_FSDP2,  SYSTEM_FSDP1, SYSTEM_DDP,
                                               SYSTEM_SINGLE, SYSTEM_ZERO1, SYSTEM_ZERO2,
                                               SYSTEM_ZERO3};
    (void)state;
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
        truth_check_file(path, systems[i], true, truth_read_either);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of)};
    return cmocka_run_group_tests_name("truth_reentrant", tests, NULL, NULL);
}
