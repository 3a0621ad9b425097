/* test_lora.c - peft's adapters under fully_shard and the others, beside recordings of them. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define FILE_OF_ROWS "tests/data/truth/lora_events.jsonl"
#define FROZEN "tests/data/truth/frozen_events.jsonl"

static void adapters_under_fsdp2(void **state)
{
    (void)state;
    truth_check_file(FILE_OF_ROWS, SYSTEM_FSDP2, true, truth_read_hf);
}

static void adapters_under_fsdp1(void **state)
{
    (void)state;
    truth_check_file(FILE_OF_ROWS, SYSTEM_FSDP1, true, truth_read_hf);
}

static void adapters_under_ddp(void **state)
{
    (void)state;
    truth_check_file(FILE_OF_ROWS, SYSTEM_DDP, true, truth_read_hf);
}

/* A model that was loaded in 16 bits, and adapters in fp32, as peft casts them. */
static void adapters_of_16_bits_alone(void **state)
{
    (void)state;
    truth_check_file(FROZEN, SYSTEM_SINGLE, true, truth_read_hf);
}

static void adapters_of_16_bits_under_ddp(void **state)
{
    (void)state;
    truth_check_file(FROZEN, SYSTEM_DDP, true, truth_read_hf);
}

/* In units of their own, as peft's auto_wrap_policy makes them. */
static void adapters_of_16_bits_under_fsdp1(void **state)
{
    (void)state;
    truth_check_file(FROZEN, SYSTEM_FSDP1, true, truth_read_hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_under_fsdp2),
        cmocka_unit_test(adapters_under_fsdp1),
        cmocka_unit_test(adapters_under_ddp),
        cmocka_unit_test(adapters_of_16_bits_alone),
        cmocka_unit_test(adapters_of_16_bits_under_ddp),
        cmocka_unit_test(adapters_of_16_bits_under_fsdp1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
