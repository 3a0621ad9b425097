/* test_gpu_kit.c - the stages of tools/gpu-truth, run over the emulated backend: that each works
 * before a card is at hand, that one which failed says so, and that the report claims nothing of
 * the rest. */
#include "tests/support/folder.h"
#include "tests/support/program.h"

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

static char folder[] = "/tmp/shardplan_gpu_kit.XXXXXX";

static void expect(int status, const char *says, const char *line)
{
    char all[1024];
    snprintf(all, sizeof all, "cd %s 2>/dev/null; %s 2>&1", folder, line);
    const int got = shell("%s", all);
    if (got != status || !strstr(program_output(), says))
        fail_msg("%s: exit %d: %s", line, got, program_output());
}

static void need_backends(void)
{
    const char *emulated = getenv("SHARDRUN_EMULATED"), *cuda = getenv("SHARDRUN_CUDA");
    if (emulated && cuda && access(emulated, R_OK) == 0 && access(cuda, R_OK) == 0 &&
        shell("command -v mpirun >/dev/null && [ -x ^/bench_device ]") == 0)
        return;
    printf("note: the cuda backend, bench_device or mpirun is not there\n");
    skip();
}

static void stages_run_one_by_one_and_the_report_says_which(void **state)
{
    (void)state;
    need_backends();
    if (shell("GPU_TRUTH_SMALL=1 tools/gpu-kit ^ %s/kit 2>&1", folder) != 0)
        fail_msg("%s", program_output());
    expect(0, "## pair: not yet run", "cd kit && tools/gpu-report");
#define DRY "cd kit && BENCH_OPTIONS=--small BACKEND=$PWD/build/emulated_cuda.so "
    expect(0, "probe      passed", DRY "tools/gpu-truth probe pair");
    expect(0, "suite      passed", DRY "SUITE='work work_views' tools/gpu-truth suite");
    expect(0, "eight      passed", DRY "tools/gpu-truth rehearsal attention eight");
    expect(0, "worlds     passed", DRY "tools/gpu-truth worlds");
    expect(0, "offload, rank 0 of 8: memory is equal to the byte", "cd kit && tools/gpu-report");
    expect(0, "sanitizer  skipped", DRY "PATH=/bin:/usr/bin tools/gpu-truth sanitizer");
    expect(0, "stopped    passed", DRY "tools/gpu-truth stopped kernels");
    /* a python without torch is said, and is no failure */
    expect(0, "pytorch    skipped", DRY "PYTHON=/bin/false tools/gpu-truth pytorch");
    expect(0, "## pytorch: skipped", "cd kit && tools/gpu-report");
    /* of a time that is spent nothing is left to begin with */
    expect(1, "worlds     not begun: no time is left", DRY "BUDGET=5 tools/gpu-truth worlds");
    expect(0, "## worlds: passed", "cd kit && tools/gpu-report");
    expect(2, "no stage dance", DRY "tools/gpu-truth dance");
    /* without a card, what needs one fails, and is not taken for passed */
    expect(1, "suite      failed",
           "cd kit && SUITE=device BACKEND=/no/such.so tools/gpu-truth suite");
    expect(0, "## suite: failed", "cd kit && tools/gpu-report");
    expect(0, "## pair: passed", "cd kit && tools/gpu-report");
    expect(0, "## calibrate: not yet run", "cd kit && tools/gpu-report");
    expect(0, "## calibrate: cut short",
           "cd kit && mkdir gpu-results/calibrate && touch gpu-results/calibrate/log && "
           "tools/gpu-report");
    expect(0, "| copy | float32 65536 float32 65536 |", "cd kit && tools/gpu-report");
}

/* What runs on each backend runs where a card is. */
static void every_test_of_backends_is_taken_along(void **state)
{
    (void)state;
    if (shell("for tool in gpu-kit gpu-truth check-gpu; do"
              "  for test in $(grep -l '[o]n_backends(' tests/runtime/test_*.c); do"
              "    name=${test##*/test_}; grep -qw \"${name%%.c}\" tools/$tool || echo $tool $test;"
              "  done; done | { ! grep .; }") != 0)
        fail_msg("not there: %s", program_output());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_test_of_backends_is_taken_along),
        cmocka_unit_test(stages_run_one_by_one_and_the_report_says_which),
    };
    return cmocka_run_group_tests_name("gpu_kit", tests, folder_set_up_undrawn(folder),
                                       folder_tear_down);
}
