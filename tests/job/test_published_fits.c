/* test_published_fits.c - what others ran fits: every row of llm-foundry's throughput tables is a
 * run that came to its end, on the GPU that it names. */
#include "job/predict.h"
#include "tests/support/csv.h"
#include "tests/support/mpt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void check_table(const char *path, size_t rows)
{
    struct csv csv = csv_read(path);
    struct err err = {0};
    size_t fitting = 0, tight = 0;
    assert_int_equal(csv.rows, rows);
    for (size_t i = 0; i < csv.rows; i++) {
        const struct job job = mpt_job(&csv, i);
        struct machine machine = {.gpus_per_node = 8};
        struct prediction prediction = {0};
        if (profile_find(mpt_gpu(&csv, i), &machine.profile, &err) != ERR_OK ||
            predict(&job, &machine, &prediction, &err) != ERR_OK)
            fail_msg("%s", err.text);
        fitting += prediction.fits;
        tight += prediction.after_release;
        if (prediction.after_release) /* the step that is reported is like the one before */
            assert_true(prediction.call_count == 0 && prediction.settling_frees > 0);
        if (!prediction.fits)
            print_error("MPT-%s, %u x %u, %u GPUs, %s: %.2f GiB requested, %.2f reserved\n",
                        csv_text(&csv, i, "model"), job.model.batch, job.model.seq,
                        job.strategy.world, csv_text(&csv, i, "gpu"),
                        (double)prediction.memory.requested.bytes / 0x1p30,
                        (double)prediction.memory.reserved_bytes / 0x1p30);
        prediction_free(&prediction);
        profile_free(&machine.profile);
    }
    print_message("%s: %zu of %zu fit, %zu of them by giving segments back\n", path, fitting,
                  csv.rows, tight);
    csv_free(&csv);
    assert_int_equal(fitting, rows);
}

static void every_run_on_a100s_fits(void **state)
{
    (void)state;
    check_table("tests/data/published/llmfoundry_a100.csv", 139);
}

static void every_run_on_h100s_fits(void **state)
{
    (void)state;
    check_table("tests/data/published/llmfoundry_h100_part.csv", 26);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_run_on_a100s_fits),
        cmocka_unit_test(every_run_on_h100s_fits),
    };
    return cmocka_run_group_tests_name("published_fits", tests, NULL, NULL);
}
