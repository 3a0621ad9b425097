/* test_truth_few_bits.c - models in few bits of bitsandbytes under systems that cut them, beside
 * PyTorch and DeepSpeed: every event. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void rows_of(void **state)
{
    static const enum system_kind systems[] = {SYSTEM_FSDP1, SYSTEM_ZERO1, SYSTEM_ZERO2,
                                               SYSTEM_ZERO3};
    (void)state;
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
        truth_check_file("tests/data/truth/few_bits_events.jsonl", systems[i], true, truth_read_hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of),
    };
    return cmocka_run_group_tests_name("truth_few_bits", tests, NULL, NULL);
}
