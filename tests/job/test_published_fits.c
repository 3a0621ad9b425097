/* test_published_fits.c - what others ran fits: every row of llm-foundry's throughput tables is a
 * run that came to its end, on the GPU that it names. */
#include "families/families.h"
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

/* The step that is reported is like the one before; and the first one holds less than there is:
 * what is asked for behind it is in the place of cached segments that the optimizer's states took.
 */
static void check_release(const struct prediction *prediction, double capacity)
{
    const struct memory_options without_end = {.steps_before = 1};
    struct memory memory;
    struct err err = {0};
    assert_true(prediction->call_count == 0 && prediction->settling_frees > 0);
    assert_int_equal(memory_replay(prediction->plan, &without_end, NULL, NULL, &memory, &err),
                     ERR_OK);
    assert_true((double)(memory.first_step_reserved_bytes + prediction->outside_bytes +
                         (3ULL << 30)) < capacity);
    assert_true((double)(memory.reserved_bytes + prediction->outside_bytes) > capacity);
}

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
        if (prediction.after_release)
            check_release(&prediction, profile_value(&machine.profile, PROFILE_CAPACITY));
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

/* lightning-thunder's benchmark_litgpt.py, eager under FSDP2: torch.cuda.max_memory_allocated().
 * The model is recorded from the litgpt that it pins; its other rows are compiled or in fp8. */
static void the_eager_run_of_thunder_takes_what_was_measured(void **state)
{
    (void)state;
    struct csv csv = csv_read("tests/data/published/lightning_thunder_fsdp.csv");
    struct machine machine = {.gpus_per_node = 8};
    struct model_config config;
    struct prediction prediction;
    struct job job;
    struct err err = {0};
    size_t eager = 0;
    assert_int_equal(profile_find("h100-sxm", &machine.profile, &err), ERR_OK);
    assert_int_equal(model_find("tests/data/recorded/litgpt_llama.stream.json.gz", &config, &err),
                     ERR_OK);
    for (size_t i = 0; i < csv.rows; i++) {
        if (strcmp(csv_text(&csv, i, "compile"), "no") != 0)
            continue;
        job_defaults(&job, &config);
        job.model.code = CODE_RECORDED;
        job.model.batch = (uint32_t)csv_number(&csv, i, "micro_batch_per_gpu_seqs");
        job.model.seq = (uint32_t)csv_number(&csv, i, "seq_len_tokens");
        job.strategy.world = (uint32_t)csv_number(&csv, i, "n_gpus");
        job.strategy.store = job.strategy.reduce = DTYPE_BF16;
        job.strategy.reshard = RESHARD_NEVER; /* zero2 */
        job.strategy.impl = IMPL_FUSED;
        if (predict(&job, &machine, &prediction, &err) != ERR_OK)
            fail_msg("%s", err.text);
        const double planned = (double)prediction.memory.allocated.bytes / 1e9;
        const double error = planned / csv_number(&csv, i, "peak_mem") - 1;
        print_message("%s: %.2f GB, measured %.2f: %+.1f %%\n", csv_text(&csv, i, "row_id"),
                      planned, csv_number(&csv, i, "peak_mem"), 100 * error);
        assert_true(error > -0.02 && error < 0.02);
        prediction_free(&prediction);
        eager++;
    }
    assert_int_equal(eager, 1);
    model_release(&config);
    profile_free(&machine.profile);
    csv_free(&csv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_run_on_a100s_fits),
        cmocka_unit_test(every_run_on_h100s_fits),
        cmocka_unit_test(the_eager_run_of_thunder_takes_what_was_measured),
    };
    return cmocka_run_group_tests_name("published_fits", tests, NULL, NULL);
}
