/* test_truth_direct.c - losses on the logits as they are, beside PyTorch, event by event. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define ROWS "tests/data/truth/direct_events.jsonl"

static void rows_of_fsdp2(void **state)
{
    (void)state;
    truth_check_file(ROWS, SYSTEM_FSDP2, true, truth_read_written);
}

static void rows_of_fsdp1(void **state)
{
    (void)state;
    truth_check_file(ROWS, SYSTEM_FSDP1, true, truth_read_written);
}

static void rows_of_ddp(void **state)
{
    (void)state;
    truth_check_file(ROWS, SYSTEM_DDP, true, truth_read_written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_fsdp2),
        cmocka_unit_test(rows_of_fsdp1),
        cmocka_unit_test(rows_of_ddp),
    };
    return cmocka_run_group_tests_name("truth_direct", tests, NULL, NULL);
}
