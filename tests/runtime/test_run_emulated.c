/* test_run_emulated.c - several ranks of the cuda backend over tests/emulate: NCCL's collectives
 * among processes, and what becomes of a run whose peers fail, stop, or hang. */
#include "tests/support/folder.h"
#include "tests/support/local_ranks.h"
#include "tests/support/program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 2 };

#define FP32 "--param-dtype fp32 --reduce-dtype fp32 "

static char folder[] = "/tmp/shardplan_run_emulated.XXXXXX";
static int ranks; /* of the plan that was made last */

/* Skips where mpirun or the emulated backend is not there. */
static void need_ranks(void)
{
    const char *file = getenv("SHARDRUN_EMULATED");
    const bool built = file && access(file, R_OK) == 0;
    if (built && system("command -v mpirun >/dev/null 2>&1") == 0)
        return;
    printf("note: %s\n", built ? "mpirun is not installed (package openmpi-bin)"
                               : "the emulated backend is not built");
    skip();
}

static void make_plan(int gpus, const char *options)
{
    const int status =
        shardplan("plan tests/data/configs/tiny-llama --gpus %d --seq 8 --micro-batch 1 "
                  "%s --files plan -q -o %s",
                  gpus, options, folder);
    if (status != 0)
        fail_msg("%s", program_output());
    ranks = gpus;
}

static int run(const char *options)
{
    return local_ranks(ranks, "%s/plan.json --steps %d --json %s", folder, STEPS, options);
}

static int run_by_mpirun(const char *options)
{
    return shardplan("run %s/plan.json --steps %d --json %s", folder, STEPS, options);
}

/* By either of these. */
static int run_emulated(int (*start)(const char *options), const char *options)
{
    char kept[4096], all[512];
    const char *before = getenv("SHARDRUN_CUDA"), *file = getenv("SHARDRUN_EMULATED");
    snprintf(kept, sizeof kept, "%s", before ? before : "");
    snprintf(all, sizeof all, "--device cuda --share-gpu %s", options);
    setenv("SHARDRUN_CUDA", file ? file : "", 1);
    setenv("SHARDRUN_EMULATED_FOLDER", folder, 1);
    const int status = start(all);
    if (before)
        setenv("SHARDRUN_CUDA", kept, 1);
    else
        unsetenv("SHARDRUN_CUDA");
    return status;
}

/* Losses and norms of the steps, one JSON object a line. */
static void read_steps(double out[2 * STEPS])
{
    static const char *const keys[] = {"\"loss\": ", "\"grad_norm\": "};
    const char *at = program_output();
    for (int i = 0; i < 2 * STEPS; i++) {
        at = strstr(at, keys[i % 2]);
        if (!at) {
            fail_msg("%s", program_output());
            return;
        }
        at += strlen(keys[i % 2]);
        out[i] = strtod(at, NULL);
    }
}

/* ---- results ---- */

static void ranks_over_nccl_train_as_they_do_on_the_host(void **state)
{
    (void)state;
    static const struct {
        int gpus;
        const char *options, *run;
    } cases[] = {{2, FP32, ""},
                 {2, FP32, "--register-buffers"},
                 {3, FP32 "--clip 1", ""},
                 {4, FP32 "--replicate 2", "--register-buffers"},
                 {2, "--strategy ddp", ""},
                 {2, FP32 "--accumulate 2", ""}};
    need_ranks();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double host[2 * STEPS] = {0}, cuda[2 * STEPS] = {0};
        make_plan(cases[i].gpus, cases[i].options);
        if (run("") != 0)
            fail_msg("%s", program_output());
        read_steps(host);
        if (run_emulated(i == 0 ? run_by_mpirun : run, cases[i].run) != 0)
            fail_msg("%s: %s", cases[i].options, program_output());
        read_steps(cuda);
        for (int k = 0; k < 2 * STEPS; k++) /* sums in another order */
            if (!(fabs(cuda[k] - host[k]) <= 1e-5 * host[k]))
                fail_msg("%s: %.9g instead of %.9g", cases[i].options, cuda[k], host[k]);
    }
}

/* ---- which of cuBLASLt's kernels ---- */

/* Losses and norms where `fastest` names each rank's fastest kernel. */
static void train(const char *fastest, const char *options, double out[2 * STEPS])
{
    setenv("SHARDRUN_EMULATED_FASTEST", fastest, 1);
    const int status = run_emulated(run, options);
    unsetenv("SHARDRUN_EMULATED_FASTEST");
    if (status != 0)
        fail_msg("%s, %s: exit %d: %s", fastest, options, status, program_output());
    read_steps(out);
}

/* The fastest one on rank 0 is everybody's: kernels sum in other orders, which the last bits show.
 * With a file it is the next run's, too; deterministic runs have the first of the list. */
static void all_ranks_and_runs_have_one_kernel_for_a_product(void **state)
{
    (void)state;
    double first[2 * STEPS], second[2 * STEPS], got[2 * STEPS];
    char file[128], other[256];
    need_ranks();
    make_plan(2, FP32);
    train("0 0", "", first);
    train("1 1", "", second);
    assert_memory_not_equal(first, second, sizeof first);
    train("1 0", "", got);
    assert_memory_equal(got, second, sizeof got);
    train("0 1", "", got);
    assert_memory_equal(got, first, sizeof got);
    train("1 1", "--deterministic", got);
    assert_memory_equal(got, first, sizeof got);

    snprintf(file, sizeof file, "--products %s/products", folder);
    train("1 1", file, got);
    assert_memory_equal(got, second, sizeof got);
    train("0 0", file, got);
    assert_memory_equal(got, second, sizeof got);
    make_plan(2, "--param-dtype bf16 --reduce-dtype fp32"); /* others, which are added */
    train("1 1", file, second);
    train("0 0", file, got);
    assert_memory_equal(got, second, sizeof got);
    make_plan(2, FP32);
    train("0 0", file, got);
    assert_memory_not_equal(got, first, sizeof got);
    assert_int_equal(shell("sed -i s/130000/120900/ %s/products", folder), 0);
    assert_int_equal(run_emulated(run_by_mpirun, file), 3);
    assert_non_null(strstr(program_output(), "its first line is \"shardrun's products of cuBLASLt "
                                             "120900 on emulated\""));
    snprintf(other, sizeof other, "--products %s/plan.json", folder);
    assert_int_equal(run_emulated(run_by_mpirun, other), 3);
    assert_non_null(strstr(program_output(), "not shardrun's products"));
}

/* ---- faults ---- */

/* That a run with the fault ends with status 3 and says so, once: by itself, not by --timeout or
 * the limit of this test, which say something else. */
static void expect_end(const char *fault, const char *options, const char *says)
{
    setenv("SHARDRUN_EMULATED_NCCL", fault, 1);
    const int status = run_emulated(run_by_mpirun, options);
    unsetenv("SHARDRUN_EMULATED_NCCL");
    const char *found = strstr(program_output(), says);
    if (status != 3 || !found || strstr(found + 1, says))
        fail_msg("%s: exit %d: %s", fault, status, program_output());
}

static void a_communicator_that_fails_ends_the_run(void **state)
{
    (void)state;
    need_ranks();
    make_plan(2, FP32);
    expect_end("error 1 5", "--timeout 60", "a rank of the emulated NCCL has failed");
}

static void a_rank_that_is_stopped_ends_the_run_after_the_time_out(void **state)
{
    (void)state;
    need_ranks();
    make_plan(2, FP32);
    expect_end("stop 1 5", "--timeout 2", "shardrun: rank 0: the collective of instruction ");
    if (!strstr(program_output(), "has waited 2 s for the others; giving up"))
        fail_msg("%s", program_output());
}

/* The thread that has the device never comes back, so nobody but the watch can end it. */
static void a_host_that_hangs_in_the_driver_is_ended_by_the_watch(void **state)
{
    (void)state;
    need_ranks();
    make_plan(2, FP32);
    expect_end("stop 0 3 block 1 5", "--timeout 1",
               "shardrun: rank 1: the collective of instruction ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_over_nccl_train_as_they_do_on_the_host),
        cmocka_unit_test(all_ranks_and_runs_have_one_kernel_for_a_product),
        cmocka_unit_test(a_communicator_that_fails_ends_the_run),
        cmocka_unit_test(a_rank_that_is_stopped_ends_the_run_after_the_time_out),
        cmocka_unit_test(a_host_that_hangs_in_the_driver_is_ended_by_the_watch),
    };
    return cmocka_run_group_tests_name("run_emulated", tests, folder_set_up_undrawn(folder),
                                       folder_tear_down);
}
