/* test_hta.c - HTA (Holistic Trace Analysis) reads a plan's trace.json, and its temporal breakdown
 * and overlap of communication with computation are ours.
 *
 *     plan.json "time"                  HTA
 *     compute_s                         compute time
 *     spent_s: network, ranks, copy     non-compute time, and behind the last kernel
 *     spent_s: host                     idle time, and before the first kernel
 *     1 - exposed / communication       communication-computation overlap
 *
 * Behind the last kernel a rank waits for slower ones, which is communication to us: no event has
 * it.
 *
 * Python is SHARDPLAN_PYTHON, else python3; the test is skipped where HTA is not there. */
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

enum { ABSENT = 77, NOT_FOUND = 127 };

static char *folder;

static int make_folder(void **state)
{
    (void)state;
    folder = folder_new("hta");
    return 0;
}

static int drop_folder(void **state)
{
    (void)state;
    folder_drop(folder);
    return 0;
}

/* What HTA says of the folder's trace; skips the test where it is not installed. */
static json_t *asked(void)
{
    char command[1024];
    json_error_t error;
    size_t length;
    snprintf(command, sizeof command,
             PROGRAM_LIMITS "%s tests/peer/hta_breakdown.py %s/trace.json >%s/said 2>%s/errors",
             program_python(), folder, folder, folder);
    const int status = system(command);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == ABSENT || code == NOT_FOUND) {
        print_message("note: HolisticTraceAnalysis is not installed for this Python\n");
        skip();
    }
    if (code != 0)
        fail_msg("exit status %d: %s", code, file_text(file_in(folder, "errors"), &length));
    json_t *said = json_load_file(file_in(folder, "said"), 0, &error);
    assert_non_null(said);
    return said;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number \"%s\"", key);
    return json_number_value(value);
}

static void expect_near(const char *options, const char *what, double theirs, double ours,
                        double most)
{
    if (!(fabs(theirs - ours) <= most))
        fail_msg("%s: %s: HTA says %.6f, we %.6f", options, what, theirs, ours);
}

static void check(const char *options)
{
    json_error_t error;
    if (shardplan("plan %s -q -o %s", options, folder) == 2)
        fail_msg("%s: %s", options, program_output());
    json_t *said = asked(), *plan = json_load_file(file_in(folder, "plan.json"), 0, &error);
    assert_non_null(plan);
    const json_t *time = json_object_get(plan, "time"), *spent = json_object_get(time, "spent_s");
    const double us = 1e6, kernels = (double)json_array_size(json_object_get(plan, "instructions"));
    const double rounding = 2e-3 * kernels; /* each begin and end is a nanosecond off at most */
    const double first = number(said, "first_us"), talk = us * number(time, "communication_s");
    const double exposed = us * number(time, "exposed_communication_s");
    const double behind = us * number(time, "step_s") - first - number(said, "kernel_us");
    assert_int_equal(number(said, "rank"), 0);
    expect_near(options, "compute time", number(said, "compute_us"), us * number(time, "compute_s"),
                rounding);
    expect_near(options, "non-compute time", number(said, "non_compute_us") + behind,
                us * (number(spent, "network") + number(spent, "ranks") + number(spent, "copy")),
                rounding);
    expect_near(options, "idle time", number(said, "idle_us") + first, us * number(spent, "host"),
                rounding);
    expect_near(options, "overlap", number(said, "overlap_percent"),
                100 * (1 - (exposed - behind) / (talk - behind)),
                0.005 + 100 * rounding / talk); /* printed with two digits */
    json_decref(plan);
    json_decref(said);
}

static void its_breakdown_and_overlap_are_ours(void **state)
{
    (void)state;
    static const char *const jobs[] = {
        "llama-3.2-1b --gpus 8",
        "llama-3.2-1b --gpus 16 --replicate 2 --reduce-dtype bf16",
        "llama-3.2-1b --gpus 8 --strategy fsdp1",
        "llama-3.2-1b --gpus 8 --strategy zero2",
        "llama-3.2-1b --gpus 8 --strategy zero3",
        "gpt2 --gpus 8 --strategy ddp",
    };
    for (size_t i = 0; i < COUNT(jobs); i++)
        check(jobs[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(its_breakdown_and_overlap_are_ours)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
