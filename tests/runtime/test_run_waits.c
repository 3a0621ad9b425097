/* test_run_waits.c - plans that nobody here has kernels for, rehearsed: memory is what was planned
 * at every instruction, copies and collectives are done, and each kernel takes its time. */
#include "tests/support/folder.h"
#include "tests/support/local_ranks.h"
#include "tests/support/program.h"
#include "traces/trace.h"

#include <jansson.h>
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

static char folder[] = "/tmp/test_waits.XXXXXX";

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define RECORDED(name) "tests/data/recorded/" name ".stream.json.gz --micro-batch 2 --gpu h100 "
#define TOY "tests/data/configs/tiny-llama --seq 32 --micro-batch 1 --gpu h100 "

/* Each has kernels that the host backend lacks. */
static const struct {
    int ranks;
    const char *options;
    const char *lacking; /* one of those */
    const char *zero;    /* DeepSpeed's file; NULL: none */
} plans[] = {
    {2, RECORDED("unet") "--accumulate 2", "convolution (", NULL},
    {1, RECORDED("vit"), "convolution (", NULL},
    {2, RECORDED("whisper"), "convolution (", NULL},
    {2, RECORDED("gpt_oss") "--strategy zero3", "grouped_mm_nn (", "zero.json"},
    {1, RECORDED("mamba2") "--clip 1 --strategy fsdp1", "no kernel for: ", NULL},
    {2, TOY "--compile on", "fused (", NULL},
    {2, TOY "--compile model --strategy ddp", "fused (", NULL},
    {2, TOY "--float8 tensorwise --float8-gather dynamic", "scaled_mm_nt (", NULL},
    {2, TOY "--gpus-per-node 1 --param-dtype fp16 --strategy zero3", "all_to_all (",
     "quantized.json"},
};

static void write_text(const char *name, const char *text)
{
    file_write(file_in(folder, name), text, strlen(text));
}

static int make_folder(void **state)
{
    const int rc = folder_set_up_undrawn(folder)(state);
    /* buckets as small as the models */
    write_text("zero.json",
               "{\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 100000}}");
    write_text("quantized.json",
               "{\"fp16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 3, "
               "\"reduce_bucket_size\": 100000, \"zero_quantized_weights\": true, "
               "\"zero_quantized_gradients\": true}}");
    return rc;
}

static void make_plan(int ranks, const char *options, const char *zero)
{
    if (shardplan("plan %s %s %s --gpus %d --files plan -q -o %s", options, zero ? "--zero" : "",
                  zero ? file_in(folder, zero) : "", ranks, folder) != 0)
        fail_msg("%s: %s", options, program_output());
}

/* ---- what it is held to ---- */

static json_t *read_json(const char *name)
{
    json_error_t at;
    json_t *tree = json_load_file(file_in(folder, name), 0, &at);
    if (!tree)
        fail_msg("%s: %s", name, at.text);
    return tree;
}

static struct trace *read_trace(const char *name)
{
    struct trace *trace;
    struct err err = {0};
    if (trace_read(file_in(folder, name), &trace, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return trace;
}

static bool is_moved(const char *op)
{
    return strcmp(op, "compute") != 0 && strcmp(op, "optimizer") != 0;
}

/* Each kernel takes its predicted time at least, one after the other on its lane: a lane is no
 * shorter than all of its kernels together. (Files keep nanoseconds.) */
static void expect_predicted_waits(const char *plan, const char *name)
{
    struct {
        double least_s, begin_s, end_s;
    } lanes[64] = {{0}};
    json_t *tree = read_json(plan);
    const json_t *seconds = json_object_get(json_object_get(tree, "time"), "instruction_s");
    struct trace *trace = read_trace(name);
    uint32_t waits = 0;
    assert_true(json_is_array(seconds) && trace->lane_count < COUNT(lanes));
    for (uint32_t i = 0; i < trace->event_count; i++) {
        const struct trace_event *event = &trace->events[i];
        if (event->id == TRACE_NO_ID || event->kind != TRACE_SPAN || is_moved(event->op))
            continue;
        const double least_s = json_number_value(json_array_get(seconds, event->id));
        if (!(least_s > 0 && event->end_s - event->begin_s >= least_s - 2e-9))
            fail_msg("%s: %u %s took %.9g s instead of %.9g", name, event->id, event->name,
                     event->end_s - event->begin_s, least_s);
        if (lanes[event->lane].least_s == 0 || event->begin_s < lanes[event->lane].begin_s)
            lanes[event->lane].begin_s = event->begin_s;
        if (event->end_s > lanes[event->lane].end_s)
            lanes[event->lane].end_s = event->end_s;
        lanes[event->lane].least_s += least_s - 2e-9;
        waits++;
    }
    for (uint32_t l = 0; l < trace->lane_count; l++)
        assert_true(lanes[l].end_s - lanes[l].begin_s >= lanes[l].least_s);
    assert_true(waits > 100);
    assert_string_equal(trace_get_info(trace, "kernels"), "waits of the predicted time");
    trace_free(trace);
    json_decref(tree);
}

static void expect_equal_memory(const char *name, const char *what)
{
    if (shardplan("compare %s/plan.json %s/%s", folder, folder, name) != 0 ||
        !strstr(program_output(), "memory is equal to the byte at all") ||
        !strstr(program_output(), "kernels were waits of the predicted time"))
        fail_msg("%s, %s: %s", what, name, program_output());
}

static void expect_steps(int steps, const char *what)
{
    const char *at = program_output();
    for (int i = 0; i < steps && at; i++)
        at = strstr(at, "\"seconds\": ") ? strstr(at, "\"seconds\": ") + 1 : NULL;
    if (!at || strstr(program_output(), "loss") || strstr(program_output(), "norm\""))
        fail_msg("%s: %s", what, program_output());
}

/* ---- tests ---- */

static void any_plan_is_rehearsed_by_all_its_ranks(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(plans); i++) {
        make_plan(plans[i].ranks, plans[i].options, plans[i].zero);
        shardplan_says(2, plans[i].lacking, "run %s", folder);
        const int status = local_ranks(plans[i].ranks, "%s --kernels waits --steps 2 --json -o %s",
                                       file_in(folder, "plan.json"), file_in(folder, "run"));
        if (status != 0)
            fail_msg("%s: exit %d: %s", plans[i].options, status, program_output());
        expect_steps(2, plans[i].options);
        expect_equal_memory("run/trace.json", plans[i].options);
        const bool own = file_exists(folder, "plan-1.json");
        expect_predicted_waits("plan.json", "run/trace.json");
        if (plans[i].ranks > 1) {
            expect_equal_memory("run/trace-1.json", plans[i].options);
            expect_predicted_waits(own ? "plan-1.json" : "plan.json", "run/trace-1.json");
        }
        if (own)
            assert_int_equal(remove(file_in(folder, "plan-1.json")), 0);
    }
}

/* As a user starts them, by mpirun; and one of many alone, where it need not be asked for. */
static void a_rehearsal_waits_where_kernels_lack(void **state)
{
    (void)state;
    make_plan(2, plans[0].options, NULL);
    shardplan_says(0, "collectives are real; kernels compute nothing and take the predicted time",
                   "run %s --kernels waits --steps 2 -o %s/run", folder, folder);
    assert_non_null(strstr(program_output(), " ms"));
    assert_null(strstr(program_output(), "loss"));
    expect_equal_memory("run/trace-1.json", "mpirun");
    make_plan(8, plans[0].options, NULL);
    shardplan_says(0, "note: the host backend has no kernel for: ",
                   "run %s --rehearse 5/8 --steps 2 -o %s/run", folder, folder);
    assert_non_null(strstr(program_output(), "rehearsal of rank 5 of 8"));
    expect_equal_memory("run/trace-5.json", "alone");
    expect_predicted_waits("plan.json", "run/trace-5.json");
    shardplan_says(2, "no kernel for: ", "run %s --rehearse 5/8 --kernels real", folder);
}

/* A plan that can be run computes unless waits were asked for. */
static void a_plan_that_can_be_run_waits_if_asked_to(void **state)
{
    (void)state;
    make_plan(2, TOY, NULL);
    shardplan_says(0, "\"loss\"", "run %s --rehearse 0/2 --steps 1 --json", folder);
    assert_int_equal(shardplan("run %s --rehearse 0/2 --kernels waits --steps 2 --json -o %s/run",
                               folder, folder),
                     0);
    expect_steps(2, TOY);
    expect_equal_memory("run/trace.json", TOY);
    expect_predicted_waits("plan.json", "run/trace.json");
}

static void a_rehearsal_without_times_still_has_the_memory(void **state)
{
    (void)state;
    make_plan(1, plans[1].options, NULL);
    assert_int_equal(shell("sed -i s/instruction_s/without_times/ %s/plan.json", folder), 0);
    shardplan_says(0, "take no time", "run %s --kernels waits --steps 2 -o %s/run", folder, folder);
    expect_equal_memory("run/trace.json", "no times");
}

/* Another trace's times, such as those of a machine that has the kernels. */
static void times_are_those_of_a_trace_that_is_named(void **state)
{
    (void)state;
    struct trace *predicted = trace_new();
    uint32_t long_ones = 0;
    make_plan(1, plans[1].options, NULL);
    trace_set_info(predicted, "clock", "seconds");
    const uint32_t lane = trace_add_lane(predicted, trace_add_process(predicted, 0, "any"), "any");
    for (uint32_t id = 0; id < 100; id++) {
        const struct trace_event event = {.id = id,
                                          .lane = lane,
                                          .kind = TRACE_SPAN,
                                          .name = "any",
                                          .begin_s = id,
                                          .end_s = id + 0.01};
        trace_add_event(predicted, &event);
    }
    assert_int_equal(trace_write(predicted, file_in(folder, "times.json"), NULL), ERR_OK);
    trace_free(predicted);
    shardplan_says(0, "take the predicted time",
                   "run %s --kernels waits --steps 2 --predicted %s/times.json -o %s/run", folder,
                   folder, folder);
    struct trace *trace = read_trace("run/trace.json");
    for (uint32_t i = 0; i < trace->event_count; i++)
        if (trace->events[i].id < 100 && !is_moved(trace->events[i].op)) {
            assert_true(trace->events[i].end_s - trace->events[i].begin_s >= 0.01 - 2e-9);
            long_ones++;
        }
    assert_true(long_ones > 10);
    trace_free(trace);
}

static void what_needs_values_is_refused(void **state)
{
    (void)state;
    static const char *const options[] = {"--load x",      "--save x", "--load-full x",
                                          "--save-full x", "--data x", "--param-norms"};
    make_plan(1, plans[1].options, NULL);
    for (size_t i = 0; i < COUNT(options); i++) {
        shardplan_says(2, "compute nothing: no values are read or written",
                       "run %s --kernels waits %s", folder, options[i]);
        shardplan_says(2, "compute nothing: no values are read or written",
                       "run %s --rehearse 0/1 %s", folder, options[i]);
    }
    shardplan_says(2, "--kernels waits rehearses", "run %s", folder);
    shardplan_says(2, "allowed are auto, real, waits", "run %s --kernels none", folder);
}

/* The cuda backend's sources over tests/emulate: its waits are on streams of its own, and cuBLAS's
 * workspaces are memory of the plan's as ever. (Of blocks of one size the allocator takes the
 * lowest: plans in which that decides where later ones lie depend on where segments lie, here
 * anywhere.) */
static void the_emulated_backend_waits_as_the_host_does(void **state)
{
    (void)state;
    static const size_t rows[] = {0, 5, 7};
    const char *file = getenv("SHARDRUN_EMULATED"), *named = getenv("SHARDRUN_CUDA");
    char before[1024];
    if (!file || access(file, R_OK) != 0) {
        printf("note: the emulated backend is not built\n");
        skip();
        return;
    }
    snprintf(before, sizeof before, "%s", named ? named : "");
    setenv("SHARDRUN_CUDA", file, 1);
    for (size_t i = 0; i < COUNT(rows); i++) {
        make_plan(plans[rows[i]].ranks, plans[rows[i]].options, plans[rows[i]].zero);
        shardplan_says(0, "note: the cuda backend has no kernel for: ",
                       "run %s --device cuda --rehearse 1/2 --steps 2 -o %s/run", folder, folder);
        expect_equal_memory("run/trace-1.json", plans[rows[i]].options);
        expect_predicted_waits(file_exists(folder, "plan-1.json") ? "plan-1.json" : "plan.json",
                               "run/trace-1.json");
        remove(file_in(folder, "plan-1.json"));
    }
    if (named)
        setenv("SHARDRUN_CUDA", before, 1);
    else
        unsetenv("SHARDRUN_CUDA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_plan_is_rehearsed_by_all_its_ranks),
        cmocka_unit_test(a_rehearsal_waits_where_kernels_lack),
        cmocka_unit_test(a_plan_that_can_be_run_waits_if_asked_to),
        cmocka_unit_test(a_rehearsal_without_times_still_has_the_memory),
        cmocka_unit_test(times_are_those_of_a_trace_that_is_named),
        cmocka_unit_test(what_needs_values_is_refused),
        cmocka_unit_test(the_emulated_backend_waits_as_the_host_does),
    };
    return cmocka_run_group_tests_name("run_waits", tests, make_folder, folder_tear_down);
}
