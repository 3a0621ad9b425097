/* test_truth.c - our event lists and numbers beside those recorded from PyTorch itself.
 *
 * tests/data/truth holds recordings of torch 2.14.1's own fully_shard (see the README there). Each
 * configuration is planned here and compared: every event's bytes, sign and order, its category,
 * where the host was and what was born; and every number of the configurations without events. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void events_equal_pytorchs(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/events.jsonl", SYSTEM_FSDP2, true, truth_read_written);
}

static void events_of_more_strategies_equal_pytorchs(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/more_events.jsonl", SYSTEM_FSDP2, true, truth_read_written);
}

static void events_of_units_that_stay_unsharded_equal_pytorchs(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/keep_events.jsonl", SYSTEM_FSDP2, true, truth_read_written);
}

static void events_where_some_blocks_are_checkpointed_equal_pytorchs(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/blocks_events.jsonl", SYSTEM_FSDP2, true,
                     truth_read_written);
    truth_check_file("tests/data/truth/blocks_hf_events.jsonl", SYSTEM_FSDP2, true, truth_read_hf);
}

static void events_of_fsdp2s_rest_equal_pytorchs(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/fsdp2_events.jsonl", SYSTEM_FSDP2, true, truth_read_written);
}

static void peaks_and_marks_equal_pytorchs(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/visible.jsonl", SYSTEM_FSDP2, false, truth_read_written);
}

struct pairs {
    uint32_t rows;
    uint64_t recorded, planned; /* of the row before */
};

static void second_takes_less(void *context, const struct truth_result *row)
{
    struct pairs *p = context;
    assert_int_equal(row->planned_peak, row->recorded_peak);
    assert_int_equal(row->unequal, 0);
    if (p->rows++ % 2)
        assert_true(row->recorded_peak < p->recorded && row->planned_peak < p->planned);
    p->recorded = row->recorded_peak;
    p->planned = row->planned_peak;
}

/* Pairs of rows. Parameters that are kept, no checkpoints, more layers: in PyTorch each may take
 * less than its opposite, and what is planned takes less where that does (tests/soak). */
static void what_should_take_more_takes_less_where_pytorchs_does(void **state)
{
    (void)state;
    struct pairs pairs = {0};
    assert_true(truth_each("tests/data/truth/order.jsonl", SYSTEM_FSDP2, false, truth_read_written,
                           second_takes_less, &pairs));
    assert_true(pairs.rows >= 14 && pairs.rows % 2 == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_equal_pytorchs),
        cmocka_unit_test(events_of_more_strategies_equal_pytorchs),
        cmocka_unit_test(events_of_units_that_stay_unsharded_equal_pytorchs),
        cmocka_unit_test(events_of_fsdp2s_rest_equal_pytorchs),
        cmocka_unit_test(events_where_some_blocks_are_checkpointed_equal_pytorchs),
        cmocka_unit_test(peaks_and_marks_equal_pytorchs),
        cmocka_unit_test(what_should_take_more_takes_less_where_pytorchs_does),
    };
    return cmocka_run_group_tests_name("truth", tests, NULL, NULL);
}
