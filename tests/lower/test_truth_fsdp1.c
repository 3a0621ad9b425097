/* test_truth_fsdp1.c - plans of FSDP1 beside recordings of torch 2.14.1's own
 * FullyShardedDataParallel (tests/data/truth): every event, and every number of the rows that have
 * no events. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void events_equal_pytorchs(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/fsdp1_events.jsonl", SYSTEM_FSDP1, true, truth_read_written);
}

static void events_of_transformers_models_do(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/fsdp1_hf_events.jsonl", SYSTEM_FSDP1, true, truth_read_hf);
}

static void events_where_some_blocks_are_checkpointed_do(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/blocks_systems_events.jsonl", SYSTEM_FSDP1, true,
                     truth_read_written);
}

static void events_of_a_toy_do(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/systems_events.jsonl", SYSTEM_FSDP1, true,
                     truth_read_written);
}

static void numbers_of_real_sizes_do(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/systems_visible.jsonl", SYSTEM_FSDP1, false,
                     truth_read_written);
}

/* CPUOffload(offload_params=True): shards, gradients and states on the host. */
static void events_with_offloaded_parameters_do(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/offload_events.jsonl", SYSTEM_FSDP1, true,
                     truth_read_written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_with_offloaded_parameters_do),
        cmocka_unit_test(events_equal_pytorchs),
        cmocka_unit_test(events_of_transformers_models_do),
        cmocka_unit_test(events_where_some_blocks_are_checkpointed_do),
        cmocka_unit_test(events_of_a_toy_do),
        cmocka_unit_test(numbers_of_real_sizes_do),
    };
    return cmocka_run_group_tests_name("truth_fsdp1", tests, NULL, NULL);
}
