/* test_truth_lora_kernels.c - axolotl's kernels of adapters beside axolotl's own functions under
 * PyTorch: every event, and the numbers of rows that have no events. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void check(enum system_kind system)
{
    truth_check_file("tests/data/truth/lora_kernels_events.jsonl", system, true, truth_read_hf);
}

static void rows_of_sharded_models(void **state)
{
    (void)state;
    check(SYSTEM_FSDP2);
    truth_check_file("tests/data/truth/lora_kernels_visible.jsonl", SYSTEM_FSDP2, false,
                     truth_read_hf);
}

static void rows_of_whole_models(void **state)
{
    (void)state;
    check(SYSTEM_DDP);
    check(SYSTEM_SINGLE);
    truth_check_file("tests/data/truth/lora_kernels_visible.jsonl", SYSTEM_SINGLE, false,
                     truth_read_hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_sharded_models),
        cmocka_unit_test(rows_of_whole_models),
    };
    return cmocka_run_group_tests_name("truth_lora_kernels", tests, NULL, NULL);
}
