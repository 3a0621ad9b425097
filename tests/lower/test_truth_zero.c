/* test_truth_zero.c - plans of ZeRO beside recordings of DeepSpeed 0.19.8 itself
 * (tests/data/truth): every event, and every number of the rows that have no events. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void check_of(const char *path, bool events, truth_read_model read)
{
    static const enum system_kind stages[] = {SYSTEM_ZERO1, SYSTEM_ZERO2, SYSTEM_ZERO3};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        truth_check_file(path, stages[i], events, read);
}

static void check(const char *path, bool events)
{
    check_of(path, events, truth_read_written);
}

static void events_equal_deepspeeds(void **state)
{
    (void)state;
    check("tests/data/truth/zero_events.jsonl", true);
}

static void events_of_offloading_do(void **state)
{
    (void)state;
    check("tests/data/truth/zero_offload_events.jsonl", true);
    check("tests/data/truth/zero_offload_visible.jsonl", false);
}

/* Of models that no builder knows, too: what tools/record.py recorded, lowered, beside DeepSpeed.
 * Among them mixtures of experts (leaf modules of two), and views of gathered weights that nodes
 * save. */
static void events_of_recorded_models_do(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/zero_recorded_events.jsonl", SYSTEM_ZERO3, true,
                     truth_read_recorded);
}

/* The quantiser's kernels were replaced by what allocates as they do. */
static void events_of_quantised_gathers_do(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/zero_quantized_events.jsonl", SYSTEM_ZERO3, true,
                     truth_read_written);
}

static void events_with_adapters_do(void **state)
{
    (void)state;
    check_of("tests/data/truth/zero_lora_events.jsonl", true, truth_read_hf);
}

/* Of transformers' own classes, whose modules without parameters are called, too. */
static void events_of_transformers_models_do(void **state)
{
    (void)state;
    check_of("tests/data/truth/zero_hf_events.jsonl", true, truth_read_hf);
}

/* Blocks of experts that are fetched as one, and views of gathered matrices that nodes save. */
static void events_of_experts_do(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/zero_moe_events.jsonl", SYSTEM_ZERO3, true, truth_read_hf);
}

static void events_where_some_blocks_are_checkpointed_do(void **state)
{
    (void)state;
    check("tests/data/truth/blocks_systems_events.jsonl", true);
}

static void events_of_a_toy_do(void **state)
{
    (void)state;
    check("tests/data/truth/systems_events.jsonl", true);
}

static void numbers_of_real_sizes_do(void **state)
{
    (void)state;
    check("tests/data/truth/systems_visible.jsonl", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_equal_deepspeeds),
        cmocka_unit_test(events_of_offloading_do),
        cmocka_unit_test(events_of_recorded_models_do),
        cmocka_unit_test(events_of_quantised_gathers_do),
        cmocka_unit_test(events_with_adapters_do),
        cmocka_unit_test(events_of_transformers_models_do),
        cmocka_unit_test(events_of_experts_do),
        cmocka_unit_test(events_where_some_blocks_are_checkpointed_do),
        cmocka_unit_test(events_of_a_toy_do),
        cmocka_unit_test(numbers_of_real_sizes_do),
    };
    return cmocka_run_group_tests_name("truth_zero", tests, NULL, NULL);
}
