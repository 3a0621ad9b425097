/* test_truth_per_token.c - what LLaMA-Factory v1's trainer has, its loss and gradients of what
 * frozen embeddings return, beside PyTorch and DeepSpeed: every event. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void check(const char *path, enum system_kind system)
{
    truth_check_file(path, system, true, truth_read_hf);
}

static void rows_of_torch(void **state)
{
    (void)state;
    check("tests/data/truth/per_token_events.jsonl", SYSTEM_FSDP2);
    check("tests/data/truth/per_token_events.jsonl", SYSTEM_DDP);
    check("tests/data/truth/per_token_events.jsonl", SYSTEM_SINGLE);
}

static void rows_of_zero(void **state)
{
    (void)state;
    check("tests/data/truth/zero_per_token_events.jsonl", SYSTEM_ZERO2);
    check("tests/data/truth/zero_per_token_events.jsonl", SYSTEM_ZERO3);
}

static void rows_of_input_gradients(void **state)
{
    (void)state;
    check("tests/data/truth/input_grads_events.jsonl", SYSTEM_FSDP2);
    check("tests/data/truth/input_grads_events.jsonl", SYSTEM_DDP);
    check("tests/data/truth/input_grads_events.jsonl", SYSTEM_SINGLE);
    check("tests/data/truth/input_grads_events.jsonl", SYSTEM_ZERO2);
}

static void rows_of_adapters_as_units(void **state)
{
    (void)state;
    check("tests/data/truth/adapter_units_events.jsonl", SYSTEM_FSDP2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_torch),
        cmocka_unit_test(rows_of_zero),
        cmocka_unit_test(rows_of_input_gradients),
        cmocka_unit_test(rows_of_adapters_as_units),
    };
    return cmocka_run_group_tests_name("truth_per_token", tests, NULL, NULL);
}
