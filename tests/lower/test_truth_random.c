/* test_truth_random.c - random jobs that were planned wrong once, beside PyTorch and DeepSpeed.
 *
 * tests/truth/random_jobs.py draws jobs, records them and compares;
 * tests/data/truth/random_events.jsonl has those that found something: of all systems, models of
 * both kinds. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define ROWS "tests/data/truth/random_events.jsonl"

static bool read_either(const json_t *row, struct model_config *config, struct model_job *job)
{
    const bool hf = strcmp(truth_text(json_object_get(row, "model"), "kind", ""), "hf") == 0;
    return hf ? truth_read_hf(row, config, job) : truth_read_written(row, config, job);
}

static void rows_of_fsdp2(void **state)
{
    (void)state;
    truth_check_file(ROWS, SYSTEM_FSDP2, true, read_either);
}

static void rows_of_fsdp1(void **state)
{
    (void)state;
    truth_check_file(ROWS, SYSTEM_FSDP1, true, read_either);
}

static void rows_of_ddp(void **state)
{
    (void)state;
    truth_check_file(ROWS, SYSTEM_DDP, true, read_either);
}

static void rows_of_zero(void **state)
{
    (void)state;
    truth_check_file(ROWS, SYSTEM_ZERO2, true, read_either);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_fsdp2),
        cmocka_unit_test(rows_of_fsdp1),
        cmocka_unit_test(rows_of_ddp),
        cmocka_unit_test(rows_of_zero),
    };
    return cmocka_run_group_tests_name("truth_random", tests, NULL, NULL);
}
