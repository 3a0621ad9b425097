/* test_truth_versions.c - our event lists beside those of other versions of PyTorch, as each of
 * them recorded itself (tests/data/truth/version_events.jsonl, older_events.jsonl, of
 * transformers' code version_hf_events.jsonl, and of DeepSpeed under them
 * version_zero_events.jsonl). */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void events_equal_those_of_older_versions(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/version_events.jsonl", SYSTEM_FSDP2, true,
                     truth_read_written);
}

static void transformers_code_equals_that_of_older_versions(void **state)
{
    static const enum system_kind systems[] = {SYSTEM_FSDP2, SYSTEM_FSDP1, SYSTEM_DDP};
    (void)state;
    for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++)
        truth_check_file("tests/data/truth/version_hf_events.jsonl", systems[i], true,
                         truth_read_hf);
}

/* From 2.4 on, of every system. */
static void check_oldest(enum system_kind system)
{
    truth_check_file("tests/data/truth/older_events.jsonl", system, true, truth_read_written);
}

static void fsdp2_equals_the_oldest(void **state)
{
    (void)state;
    check_oldest(SYSTEM_FSDP2);
}

static void fsdp1_equals_the_oldest(void **state)
{
    (void)state;
    check_oldest(SYSTEM_FSDP1);
}

static void ddp_equals_the_oldest(void **state)
{
    (void)state;
    check_oldest(SYSTEM_DDP);
}

static void zero_equals_that_of_other_versions(void **state)
{
    static const enum system_kind stages[] = {SYSTEM_ZERO1, SYSTEM_ZERO2, SYSTEM_ZERO3};
    (void)state;
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        truth_check_file("tests/data/truth/version_zero_events.jsonl", stages[i], true,
                         truth_read_either);
}

/* Autocast and adapters, which are refused of versions before the default. */
static void numerics_of_ddp_and_fsdp1_equal_those_of_later_versions(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/version_systems_events.jsonl", SYSTEM_DDP, true,
                     truth_read_either);
    truth_check_file("tests/data/truth/version_systems_events.jsonl", SYSTEM_FSDP1, true,
                     truth_read_either);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_equal_those_of_older_versions),
        cmocka_unit_test(transformers_code_equals_that_of_older_versions),
        cmocka_unit_test(fsdp2_equals_the_oldest),
        cmocka_unit_test(fsdp1_equals_the_oldest),
        cmocka_unit_test(ddp_equals_the_oldest),
        cmocka_unit_test(zero_equals_that_of_other_versions),
        cmocka_unit_test(numerics_of_ddp_and_fsdp1_equal_those_of_later_versions),
    };
    return cmocka_run_group_tests_name("truth of versions", tests, NULL, NULL);
}
