/* test_truth_llama_factory.c - what LLaMA-Factory v1's trainer has, its loss, gradients of what
 * frozen embeddings return, adapters as units, beside PyTorch and DeepSpeed: every event. */
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
    check("tests/data/truth/llama_factory_events.jsonl", SYSTEM_FSDP2);
    check("tests/data/truth/llama_factory_events.jsonl", SYSTEM_DDP);
    check("tests/data/truth/llama_factory_events.jsonl", SYSTEM_SINGLE);
}

static void rows_of_zero(void **state)
{
    (void)state;
    check("tests/data/truth/zero_llama_factory_events.jsonl", SYSTEM_ZERO2);
    check("tests/data/truth/zero_llama_factory_events.jsonl", SYSTEM_ZERO3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_torch),
        cmocka_unit_test(rows_of_zero),
    };
    return cmocka_run_group_tests_name("truth_llama_factory", tests, NULL, NULL);
}
