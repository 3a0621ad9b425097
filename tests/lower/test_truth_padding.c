/* test_truth_padding.c - batches that are padded, and the masks that say so, beside PyTorch and
 * DeepSpeed: every event, and the numbers of rows that have no events. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void rows_of(void **state)
{
    static const enum system_kind systems[] = {SYSTEM_FSDP2,  SYSTEM_FSDP1, SYSTEM_DDP,
                                               SYSTEM_SINGLE, SYSTEM_ZERO1, SYSTEM_ZERO2,
                                               SYSTEM_ZERO3};
    (void)state;
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
        truth_check_file("tests/data/truth/padding_events.jsonl", systems[i], true, truth_read_hf);
}

static void other_families(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/padding_visible.jsonl", SYSTEM_SINGLE, false, truth_read_hf);
    truth_check_file("tests/data/truth/padding_visible.jsonl", SYSTEM_FSDP2, false, truth_read_hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of),
        cmocka_unit_test(other_families),
    };
    return cmocka_run_group_tests_name("truth_padding", tests, NULL, NULL);
}
