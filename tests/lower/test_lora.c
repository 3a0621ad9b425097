/* test_lora.c - peft's adapters under fully_shard and the others, beside recordings of them. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define FILE_OF_ROWS "tests/data/truth/lora_events.jsonl"

static void adapters_under_fsdp2(void **state)
{
    (void)state;
    truth_check_file(FILE_OF_ROWS, SYSTEM_FSDP2, true, truth_read_hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_under_fsdp2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
