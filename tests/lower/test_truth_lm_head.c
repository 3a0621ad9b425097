/* test_truth_lm_head.c - TRL's fused LM head beside PyTorch and DeepSpeed with TRL 1.16.0: every
 * event, and the numbers of rows that have no events. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void rows_of_fsdp(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/lm_head_events.jsonl", SYSTEM_FSDP2, true, truth_read_hf);
    truth_check_file("tests/data/truth/lm_head_events.jsonl", SYSTEM_FSDP1, true, truth_read_hf);
}

static void rows_of_whole_models(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/lm_head_events.jsonl", SYSTEM_DDP, true, truth_read_hf);
    truth_check_file("tests/data/truth/lm_head_events.jsonl", SYSTEM_SINGLE, true, truth_read_hf);
}

static void rows_of_zero(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/zero_lm_head_events.jsonl", SYSTEM_ZERO1, true,
                     truth_read_hf);
    truth_check_file("tests/data/truth/zero_lm_head_events.jsonl", SYSTEM_ZERO2, true,
                     truth_read_hf);
    truth_check_file("tests/data/truth/zero_lm_head_events.jsonl", SYSTEM_ZERO3, true,
                     truth_read_hf);
}

static void other_families(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/lm_head_visible.jsonl", SYSTEM_SINGLE, false, truth_read_hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_fsdp),
        cmocka_unit_test(rows_of_whole_models),
        cmocka_unit_test(rows_of_zero),
        cmocka_unit_test(other_families),
    };
    return cmocka_run_group_tests_name("truth_lm_head", tests, NULL, NULL);
}
