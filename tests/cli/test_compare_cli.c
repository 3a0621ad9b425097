/* test_compare_cli.c - shardplan compare as scripts call it: exit status, JSON, files left behind.
 *
 * SHARDPLAN names the program (tests/run sets it). */
#include "plan/plan_json.h"
#include "tests/support/program.h"
#include "tests/support/recording.h"
#include "tests/support/small_jobs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static const char *const names[] = {"plan.json", "true.json",      "wrong.json", "timed.json",
                                    "wide.json", "predicted.json", "other.json"};

static char *path_of(const char *name, char path[128])
{
    snprintf(path, 128, "%s/%s", folder, name);
    return path;
}

/* Exit status of "shardplan compare ARGUMENTS", in which % stands for the folder. */
static int compare(const char *arguments)
{
    char text[1024];
    size_t used = 0;
    for (const char *c = arguments; *c; c++)
        used += (size_t)(*c == '%' ? snprintf(text + used, sizeof text - used, "%s", folder)
                                   : snprintf(text + used, sizeof text - used, "%c", *c));
    return shardplan("compare %s", text);
}

static void write_recording(const struct plan *plan, const struct fault *fault, const char *name)
{
    char path[128];
    struct err err = {0};
    struct trace *trace = record(plan, fault);
    assert_int_equal(trace_write(trace, path_of(name, path), &err), ERR_OK);
    trace_free(trace);
}

/* A plan whose step is predicted 10 % too long, and no shorter than `low` microseconds a kernel,
 * which are recorded to take one each. */
static void write_timed(const struct plan *plan, double low, const char *name)
{
    char path[128];
    struct err err = {0};
    uint32_t kernels = 0;
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        kernels += plan_op_is_kernel((enum plan_op)plan->instructions[i].op) &&
                   !(plan->instructions[i].flags & PLAN_FIRST_STEP);
    const struct plan_json_extra extra = {
        .time = json_pack("{s:f, s:f, s:f}", "step_s", 1.1e-6 * kernels, "step_low_s",
                          1e-6 * low * kernels, "step_high_s", 1.2e-6 * kernels),
    };
    assert_int_equal(plan_write_json(plan, &extra, path_of(name, path), &err), ERR_OK);
    json_decref(extra.time);
}

static int make_folder(void **state)
{
    (void)state;
    char path[128];
    struct err err = {0};
    struct fault fault = no_fault;
    struct plan *plan = small_plan();
    snprintf(folder, sizeof folder, "/tmp/test_compare.XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(plan_write_json(plan, NULL, path_of("plan.json", path), &err), ERR_OK);
    write_recording(plan, &no_fault, "true.json");
    fault.corrupt = 40;
    write_recording(plan, &fault, "wrong.json");
    fault = no_fault;
    fault.process = "rank 0 (predicted)";
    write_recording(plan, &fault, "predicted.json");
    write_timed(plan, 1.05, "timed.json");
    write_timed(plan, 0.9, "wide.json");
    plan_free(plan);
    struct job longer = small_job(ARCH_LLAMA);
    longer.model.seq *= 2;
    plan = small_plan_of(&longer);
    write_recording(plan, &no_fault, "other.json");
    plan_free(plan);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(path_of(names[i], path));
    return rmdir(folder);
}

static void the_exit_status_tells_equal_from_different_from_bad_input(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        int status;
        const char *says;
    } cases[] = {
        {"%/plan.json %/true.json", 0, "memory is equal"},
        {"%/plan.json %/wrong.json", 1, "512 bytes too few predicted"},
        {"%/plan.json %/other.json", 1, "is the trace this plan's"},
        {"%/timed.json %/true.json --tolerance 15", 0, "within"},
        {"%/timed.json %/true.json --tolerance 5", 1, "not within"},
        {"%/timed.json %/true.json", 0, ": the step is outside"},
        {"%/wide.json %/true.json", 0, ": the step is inside"},
        {"%/plan.json %/true.json --tolerance 5", 2, "predicts no times"},
        {"%/plan.json %/true.json --tolerance five", 2, "percentages"},
        {"%/plan.json %/predicted.json", 2, "predicted trace"},
        {"%/plan.json %/none.json", 2, "none.json"},
        {"%/none.json %/true.json", 2, "none.json"},
        {"%/true.json %/plan.json", 2, "true.json"},
        {"%/plan.json", 2, "PLAN.json and TRACE.json are needed"},
        {"a b c", 2, "too much"},
        {"--help", 0, "--tolerance"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int status = compare(cases[i].arguments);
        if (status != cases[i].status || !strstr(program_output(), cases[i].says))
            fail_msg("compare %s: exit %d, said: %s", cases[i].arguments, status, program_output());
    }
    assert_int_equal(compare("%/plan.json %/wrong.json --quiet"), 1);
    assert_string_equal(program_output(), "");
}

static void json_is_one_object_with_both_peaks(void **state)
{
    (void)state;
    assert_int_equal(compare("%/plan.json %/wrong.json --json"), 1);
    json_error_t error;
    json_t *root = json_loads(program_output(), 0, &error);
    assert_non_null(root);
    const json_t *memory = json_object_get(root, "memory");
    const json_t *allocated = json_object_get(memory, "allocated");
    assert_true(json_is_false(json_object_get(memory, "equal")));
    assert_int_equal(json_integer_value(json_object_get(memory, "differing")), 1);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(allocated, "largest"), "error_bytes")),
        -512);
    assert_true(json_is_null(json_object_get(json_object_get(memory, "reserved"), "largest")));
    const json_t *step = json_object_get(json_object_get(root, "time"), "step");
    assert_true(json_is_null(json_object_get(step, "predicted_s")));
    assert_true(json_is_real(json_object_get(step, "recorded_s")));
    json_decref(root);
}

static long size_of(const char *name)
{
    char path[128];
    struct stat st;
    return stat(path_of(name, path), &st) == 0 ? (long)st.st_size : -1;
}

static void a_folder_gets_the_numbers_and_a_page(void **state)
{
    (void)state;
    static const char *const left[] = {"compare.json", "compare.html", "memory-compare.svg",
                                       "timeline.svg"};
    char path[128], name[64];
    assert_int_equal(compare("%/plan.json %/wrong.json -o %/out"), 1);
    json_t *root = json_load_file(path_of("out/compare.json", path), 0, NULL);
    assert_non_null(root);
    const json_t *rows = json_object_get(json_object_get(root, "curve"), "rows");
    const json_t *points = json_object_get(json_object_get(root, "memory"), "points");
    assert_int_equal(json_array_size(rows), json_integer_value(points));
    json_decref(root);
    assert_true(size_of("out/compare.html") > 1000);
    if (size_of("out/timeline.svg") > 0) { /* a trace has no lane of the host's, nor who waited */
        const char *svg = path_of("out/timeline.svg", path);
        assert_int_equal(shell("grep -q '>collective, with waiting<' %s", svg), 0);
        assert_int_equal(shell("grep -q -e 'host issues' -e 'slower ranks' %s", svg), 1);
    }
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "out/%s", left[i]);
        if (size_of(name) < 0)
            assert_non_null(strstr(program_output(), "gnuplot"));
        unlink(path_of(name, path));
    }
    assert_int_equal(rmdir(path_of("out", path)), 0); /* and nothing else */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_exit_status_tells_equal_from_different_from_bad_input),
        cmocka_unit_test(json_is_one_object_with_both_peaks),
        cmocka_unit_test(a_folder_gets_the_numbers_and_a_page),
    };
    return cmocka_run_group_tests_name("compare command", tests, make_folder, remove_folder);
}
