/* test_truth_accelerate.c - plans of what accelerate 1.15 runs in bf16 beside recordings of it
 * (tests/data/truth/accelerate_events.jsonl): autocast and convert_outputs_to_fp32 around the
 * model's forward, inside of DistributedDataParallel and FullyShardedDataParallel, and alone. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define FILE_OF "tests/data/truth/accelerate_events.jsonl"

static void events_under_ddp_do(void **state)
{
    (void)state;
    truth_check_file(FILE_OF, SYSTEM_DDP, true, truth_read_either);
}

static void events_of_one_gpu_do(void **state)
{
    (void)state;
    truth_check_file(FILE_OF, SYSTEM_SINGLE, true, truth_read_either);
}

static void events_under_fsdp1_do(void **state)
{
    (void)state;
    truth_check_file(FILE_OF, SYSTEM_FSDP1, true, truth_read_either);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_under_ddp_do),
        cmocka_unit_test(events_of_one_gpu_do),
        cmocka_unit_test(events_under_fsdp1_do),
    };
    return cmocka_run_group_tests_name("truth_accelerate", tests, NULL, NULL);
}
