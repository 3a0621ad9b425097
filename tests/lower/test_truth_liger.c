/* test_truth_liger.c - Liger's kernels and losses beside PyTorch and DeepSpeed with liger-kernel
 * 0.8.5: every event, and the numbers of rows that have no events. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void check(enum system_kind system)
{
    truth_check_file("tests/data/truth/liger_events.jsonl", system, true, truth_read_hf);
    truth_check_file("tests/data/truth/liger_visible.jsonl", system, false, truth_read_hf);
}

static void rows_of_fsdp(void **state)
{
    (void)state;
    check(SYSTEM_FSDP2);
    check(SYSTEM_FSDP1);
}

static void rows_of_whole_models(void **state)
{
    (void)state;
    check(SYSTEM_DDP);
    check(SYSTEM_SINGLE);
}

static void rows_of_zero(void **state)
{
    static const enum system_kind stages[] = {SYSTEM_ZERO1, SYSTEM_ZERO2, SYSTEM_ZERO3};
    (void)state;
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        truth_check_file("tests/data/truth/zero_liger_events.jsonl", stages[i], true,
                         truth_read_hf);
    truth_check_file("tests/data/truth/liger_visible.jsonl", SYSTEM_ZERO3, false, truth_read_hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_fsdp),
        cmocka_unit_test(rows_of_whole_models),
        cmocka_unit_test(rows_of_zero),
    };
    return cmocka_run_group_tests_name("truth_liger", tests, NULL, NULL);
}
