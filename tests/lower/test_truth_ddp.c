/* test_truth_ddp.c - plans of DDP beside recordings of torch 2.14.1's own DistributedDataParallel
 * (tests/data/truth): every event, and every number of the rows that have no events. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void events_equal_pytorchs(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/ddp_events.jsonl", SYSTEM_DDP, true, truth_read_written);
}

static void events_of_transformers_models_do(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/ddp_hf_events.jsonl", SYSTEM_DDP, true, truth_read_hf);
}

static void events_where_some_blocks_are_checkpointed_do(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/blocks_systems_events.jsonl", SYSTEM_DDP, true,
                     truth_read_written);
}

static void events_of_a_toy_do(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/systems_events.jsonl", SYSTEM_DDP, true, truth_read_written);
}

static void numbers_of_real_sizes_do(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/systems_visible.jsonl", SYSTEM_DDP, false,
                     truth_read_written);
}

/* Autocast casts the parameters of a norm, and its node keeps the casts. */
static void events_of_parameters_of_16_bits_do(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/cast_events.jsonl", SYSTEM_DDP, true, truth_read_written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_equal_pytorchs),
        cmocka_unit_test(events_of_parameters_of_16_bits_do),
        cmocka_unit_test(events_of_transformers_models_do),
        cmocka_unit_test(events_where_some_blocks_are_checkpointed_do),
        cmocka_unit_test(events_of_a_toy_do),
        cmocka_unit_test(numbers_of_real_sizes_do),
    };
    return cmocka_run_group_tests_name("truth_ddp", tests, NULL, NULL);
}
