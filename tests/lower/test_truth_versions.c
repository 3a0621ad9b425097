/* test_truth_versions.c - our event lists beside those of older versions of PyTorch, as each of
 * them recorded itself (tests/data/truth/version_events.jsonl, older_events.jsonl and, of
 * transformers' code, version_hf_events.jsonl). */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_equal_those_of_older_versions),
        cmocka_unit_test(transformers_code_equals_that_of_older_versions),
        cmocka_unit_test(fsdp2_equals_the_oldest),
        cmocka_unit_test(fsdp1_equals_the_oldest),
        cmocka_unit_test(ddp_equals_the_oldest),
    };
    return cmocka_run_group_tests_name("truth of versions", tests, NULL, NULL);
}
