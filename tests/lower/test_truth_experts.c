/* test_truth_experts.c - experts as units of their own, on a mesh of their own: our events beside
 * the recorded ones.
 *
 * tests/data/truth/experts_events.jsonl holds recordings of transformers' mixtures of experts under
 * torch 2.14.1's fully_shard, called on each block's experts with one mesh and on the rest with
 * another. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void events_of_experts_on_their_own_mesh_equal_pytorchs(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/experts_events.jsonl", SYSTEM_FSDP2, true, truth_read_hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_of_experts_on_their_own_mesh_equal_pytorchs),
    };
    return cmocka_run_group_tests_name("truth_experts", tests, NULL, NULL);
}
