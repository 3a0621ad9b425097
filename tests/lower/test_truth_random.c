/* test_truth_random.c - random jobs that were planned wrong once, beside PyTorch and DeepSpeed.
 *
 * tests/truth/random_jobs.py draws jobs, records them and compares;
 * tests/data/truth/random_events.jsonl has those that found something: of all systems, models of
 * both kinds. options_events.jsonl has what they led to: DDP's options, autocast under checkpoints,
 * modules of dropout; outputs_events.jsonl jobs whose script keeps what the model returned.
 * linear_systems_events.jsonl has jobs drawn of models with linear attention, under all but FSDP2
 * (test_truth_hf.c). */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define ROWS "tests/data/truth/random_events.jsonl"
#define LINEAR "tests/data/truth/linear_systems_events.jsonl"
#define OUTPUTS "tests/data/truth/outputs_events.jsonl"
#define OPTIONS "tests/data/truth/options_events.jsonl"

static void rows_of_fsdp2(void **state)
{
    (void)state;
    truth_check_file(ROWS, SYSTEM_FSDP2, true, truth_read_either);
    truth_check_file(OUTPUTS, SYSTEM_FSDP2, true, truth_read_either);
}

static void rows_of_fsdp1(void **state)
{
    (void)state;
    truth_check_file(ROWS, SYSTEM_FSDP1, true, truth_read_either);
    truth_check_file(OUTPUTS, SYSTEM_FSDP1, true, truth_read_either);
    truth_check_file(LINEAR, SYSTEM_FSDP1, true, truth_read_either);
}

static void rows_of_ddp(void **state)
{
    (void)state;
    truth_check_file(ROWS, SYSTEM_DDP, true, truth_read_either);
    truth_check_file(OUTPUTS, SYSTEM_DDP, true, truth_read_either);
    truth_check_file(OPTIONS, SYSTEM_DDP, true, truth_read_either);
    truth_check_file(LINEAR, SYSTEM_DDP, true, truth_read_either);
}

static void rows_of_zero(void **state)
{
    (void)state;
    truth_check_file(ROWS, SYSTEM_ZERO2, true, truth_read_either);
    truth_check_file(OUTPUTS, SYSTEM_ZERO2, true, truth_read_either);
    truth_check_file(LINEAR, SYSTEM_ZERO2, true, truth_read_either);
    truth_check_file(ROWS, SYSTEM_ZERO3, true, truth_read_either);
    truth_check_file(OUTPUTS, SYSTEM_ZERO3, true, truth_read_either);
    truth_check_file(OPTIONS, SYSTEM_ZERO3, true, truth_read_either);
    truth_check_file(LINEAR, SYSTEM_ZERO3, true, truth_read_either);
}

static void rows_of_one_gpu(void **state)
{
    (void)state;
    truth_check_file(LINEAR, SYSTEM_SINGLE, true, truth_read_either);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_fsdp2),   cmocka_unit_test(rows_of_fsdp1),
        cmocka_unit_test(rows_of_ddp),     cmocka_unit_test(rows_of_zero),
        cmocka_unit_test(rows_of_one_gpu),
    };
    return cmocka_run_group_tests_name("truth_random", tests, NULL, NULL);
}
