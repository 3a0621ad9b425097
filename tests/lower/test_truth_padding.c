/* test_truth_padding.c - batches that are padded, the masks that say so, and attention as GPUs that
 * prefer cuDNN's have it, beside PyTorch and DeepSpeed: every event, and the numbers of rows that
 * have no events. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void check(const char *path, bool events)
{
    static const enum system_kind systems[] = {SYSTEM_FSDP2,  SYSTEM_FSDP1, SYSTEM_DDP,
                                               SYSTEM_SINGLE, SYSTEM_ZERO1, SYSTEM_ZERO2,
                                               SYSTEM_ZERO3};
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
        truth_check_file(path, systems[i], events, truth_read_hf);
}

static void rows_of(void **state)
{
    (void)state;
    check("tests/data/truth/padding_events.jsonl", true);
}

/* Masks, windows, narrower values where cuDNN's attention is preferred. */
static void chosen_as_on_hopper(void **state)
{
    (void)state;
    check("tests/data/truth/cudnn_events.jsonl", true);
}

/* Steps of TRL's trainers of preferences and of rewards. */
static void pairs(void **state)
{
    (void)state;
    check("tests/data/truth/padded_pairs_events.jsonl", true);
    check("tests/data/truth/padded_pairs_visible.jsonl", false);
}

static void other_families(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/padding_visible.jsonl", SYSTEM_SINGLE, false, truth_read_hf);
    truth_check_file("tests/data/truth/padding_visible.jsonl", SYSTEM_FSDP2, false, truth_read_hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of),
        cmocka_unit_test(chosen_as_on_hopper),
        cmocka_unit_test(pairs),
        cmocka_unit_test(other_families),
    };
    return cmocka_run_group_tests_name("truth_padding", tests, NULL, NULL);
}
