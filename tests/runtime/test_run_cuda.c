/* test_run_cuda.c - `shardplan run` without what a run usually has: its peers (a rehearsal), a
 * driver, the backend itself, a GPU (the emulated backend). */
#include "tests/support/folder.h"
#include "tests/support/program.h"
#include "traces/trace.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

static char folder[] = "/tmp/shardplan_run_cuda.XXXXXX";

/* The cuda backend's sources over tests/emulate. */
static bool emulated_is_built(void)
{
    const char *file = getenv("SHARDRUN_EMULATED");
    if (file && access(file, R_OK) == 0)
        return true;
    printf("note: the emulated backend is not built\n");
    return false;
}

/* As expect, with --device cuda. */
static void expect_emulated(int status, const char *says, const char *fmt, ...)
{
    char arguments[2048], kept[4096];
    const char *file = getenv("SHARDRUN_EMULATED"), *before = getenv("SHARDRUN_CUDA");
    va_list args;
    va_start(args, fmt);
    vsnprintf(arguments, sizeof arguments, fmt, args);
    va_end(args);
    snprintf(kept, sizeof kept, "%s", before ? before : "");
    setenv("SHARDRUN_CUDA", file ? file : "", 1);
    shardplan_says(status, says, "%s --device cuda", arguments);
    if (before)
        setenv("SHARDRUN_CUDA", kept, 1);
    else
        unsetenv("SHARDRUN_CUDA");
}

static void make_plan(int gpus, const char *options)
{
    shardplan_says(0, "",
                   "plan tests/data/configs/tiny-llama --gpus %d --seq 32 --micro-batch 1 %s "
                   "--files plan -q -o %s",
                   gpus, options, folder);
}

static struct trace *read_trace(const char *name)
{
    char path[256];
    struct trace *trace = NULL;
    struct err err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (trace_read(path, &trace, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return trace;
}

/* Allocated and reserved are the plan's after every instruction: compare replays it. */
static void expect_equal_memory(const char *trace)
{
    shardplan_says(0, "memory is equal to the byte at all", "compare %s/plan.json %s/run/%s",
                   folder, folder, trace);
}

/* ---- rehearsals ---- */

static void a_rehearsal_holds_the_memory_of_one_rank_of_many(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--reshard always --forward-prefetch 1",
                                          "--replicate 2 --clip 1",
                                          "--checkpointing full --accumulate 2", "--offload cpu"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        make_plan(8, options[i]);
        shardplan_says(0, "rehearsal of rank 0 of 8",
                       "run %s/plan.json -n 1 --rehearse 0/8 -o %s/run", folder, folder);
        expect_equal_memory("trace.json");
        shardplan_says(0, "rehearsal of rank 5 of 8", "run %s/plan.json --rehearse 5/8 -o %s/run",
                       folder, folder);
        expect_equal_memory("trace-5.json");
    }
}

static void the_trace_of_a_rehearsal_says_so(void **state)
{
    (void)state;
    make_plan(8, "");
    shardplan_says(0, "take the predicted time", "run %s/plan.json --rehearse 2/8 -o %s/run",
                   folder, folder);
    assert_int_equal(shell("sed -i s/instruction_s/without_times/ %s/plan.json", folder), 0);
    shardplan_says(0, "take no time", "run %s/plan.json --rehearse 2/8 -o %s/run", folder, folder);
    struct trace *trace = read_trace("run/trace-2.json");
    assert_string_equal(trace_get_info(trace, "rehearsal"), "rank 2 of 8");
    assert_string_equal(trace->processes[0].name, "rank 2, rehearsal (recorded)");
    uint32_t issued = 0;
    for (uint32_t i = 0; i < trace->event_count; i++)
        issued += strcmp(trace->lanes[trace->events[i].lane].name, "host issue") == 0;
    assert_true(issued > 100); /* every kernel of the step */
    trace_free(trace);
}

/* That every collective of the trace takes 20 ms at least. */
static void expect_predicted_time(const char *name)
{
    struct trace *trace = read_trace(name);
    uint32_t collectives = 0;
    for (uint32_t i = 0; i < trace->event_count; i++) {
        const struct trace_event *event = &trace->events[i];
        if (!event->op ||
            (strcmp(event->op, "all_gather") != 0 && strcmp(event->op, "reduce_scatter") != 0))
            continue;
        assert_true(event->end_s - event->begin_s >= 0.02 - 1e-6); /* a sleep is never shorter */
        collectives++;
    }
    assert_true(collectives >= 8);
    trace_free(trace);
}

/* A predicted trace in which every collective takes 20 ms. */
static void write_predicted(const char *clock)
{
    char path[256];
    json_error_t error;
    snprintf(path, sizeof path, "%s/plan.json", folder);
    json_t *plan = json_load_file(path, 0, &error), *step;
    struct trace *trace = trace_new();
    size_t i;
    assert_non_null(plan);
    trace_set_info(trace, "clock", clock);
    const uint32_t process = trace_add_process(trace, 0, "rank 0 (predicted)");
    const uint32_t lane = trace_add_lane(trace, process, "all_gather");
    json_array_foreach(json_object_get(plan, "instructions"), i, step)
    {
        const char *op = json_string_value(json_object_get(step, "op"));
        if (strcmp(op, "all_gather") == 0 || strcmp(op, "reduce_scatter") == 0)
            trace_add_event(trace, &(struct trace_event){.id = (uint32_t)i,
                                                         .lane = lane,
                                                         .name = op,
                                                         .op = op,
                                                         .begin_s = (double)i,
                                                         .end_s = (double)i + 0.02});
    }
    snprintf(path, sizeof path, "%s/predicted.json", folder);
    assert_int_equal(trace_write(trace, path, NULL), ERR_OK);
    trace_free(trace);
    json_decref(plan);
}

static void collectives_of_a_rehearsal_take_the_predicted_time(void **state)
{
    (void)state;
    make_plan(8, "");
    write_predicted("seconds");
    shardplan_says(
        0, "take the predicted time",
        "run %s/plan.json --rehearse 0/8 --steps 2 --predicted %s/predicted.json -o %s/run", folder,
        folder, folder);
    expect_predicted_time("run/trace.json");
    if (emulated_is_built()) {
        expect_emulated(
            0, "take the predicted time",
            "run %s/plan.json --rehearse 0/8 --steps 2 --predicted %s/predicted.json -o %s/run",
            folder, folder, folder);
        expect_predicted_time("run/trace.json");
    }
    write_predicted("instruction order");
    shardplan_says(2, "has no times in seconds",
                   "run %s/plan.json --rehearse 0/8 --predicted %s/predicted.json", folder, folder);
}

/* A learning rate that no training survives: the values are nobody's, so they may be anything. */
static void a_rehearsal_goes_on_whatever_its_loss_is(void **state)
{
    (void)state;
    make_plan(8, "");
    shardplan_says(0, "nan", "run %s/plan.json --rehearse 0/8 --steps 8 --lr 1e30", folder);
}

/* A step's work lies within the step: what filled the parameters is no part of its trace. */
static void expect_trace_within_step(const char *name)
{
    struct trace *trace = read_trace(name);
    const char *at = strstr(program_output(), "\"seconds\": ");
    double end_s = 0;
    assert_non_null(at);
    for (uint32_t i = 0; i < trace->event_count; i++)
        if (trace->events[i].id != TRACE_NO_ID && trace->events[i].end_s > end_s)
            end_s = trace->events[i].end_s;
    const double seconds = strtod(at + strlen("\"seconds\": "), NULL);
    if (end_s <= 0 || end_s > seconds + 2e-6) /* as printed; events count float milliseconds */
        fail_msg("%s: ends %.6f s after its first work, in a step of %.6f s", name, end_s, seconds);
    trace_free(trace);
}

static void the_trace_of_the_first_step_begins_with_it(void **state)
{
    (void)state;
    make_plan(3, "");
    shardplan_says(0, "loss", "run %s/plan.json --rehearse 2/3 --steps 1 --json -o %s/run", folder,
                   folder);
    expect_trace_within_step("run/trace-2.json");
    if (emulated_is_built()) {
        expect_emulated(0, "loss", "run %s/plan.json --rehearse 2/3 --steps 1 --json -o %s/run",
                        folder, folder);
        expect_trace_within_step("run/trace-2.json");
    }
}

/* Timing each kernel slows a GPU down, so the step of the trace says that it was. */
static void only_the_step_of_the_trace_is_recorded(void **state)
{
    (void)state;
    make_plan(2, "");
    shardplan_says(0, "loss", "run %s/plan.json --rehearse 0/2 --steps 3 --json", folder);
    assert_null(strstr(program_output(), "recorded\": true"));
    shardplan_says(0, "loss", "run %s/plan.json --rehearse 0/2 --steps 3 --json -o %s/run", folder,
                   folder);
    const char *last = strstr(program_output(), "\"step\": 2");
    const char *recorded = strstr(program_output(), "\"recorded\": true");
    if (!last || !recorded || recorded < last || strstr(recorded + 1, "\"recorded\": true"))
        fail_msg("%s", program_output());
}

static void a_rehearsal_of_another_world_is_refused(void **state)
{
    (void)state;
    make_plan(8, "");
    shardplan_says(2, "the plan is for 8 ranks", "run %s/plan.json --rehearse 0/4", folder);
    shardplan_says(2, "allowed are RANK/WORLD", "run %s/plan.json --rehearse 8/8", folder);
    shardplan_says(2, "allowed are RANK/WORLD", "run %s/plan.json --rehearse many", folder);
    shardplan_says(2, "of which a rehearsal has one", "run %s/plan.json -n 8 --rehearse 0/8",
                   folder);
}

/* ---- cuda ---- */

static void without_a_driver_cuda_fails_with_one_sentence(void **state)
{
    (void)state;
    make_plan(1, "");
    const int status = shardplan("run %s/plan.json --device cuda --steps 1 -q", folder);
    if (status == 0) {
        printf("note: this machine has a GPU\n");
        skip();
    }
    if (strstr(program_output(), "cannot load it") ||
        strstr(program_output(), "is not beside the program")) {
        printf("note: the cuda backend is not built\n");
        skip();
    }
    assert_int_equal(status, 3);
    if (!strstr(program_output(), "--device cuda: no NVIDIA driver on this machine") &&
        !strstr(program_output(), "--device cuda: no GPU on this machine"))
        fail_msg("%s", program_output());
    assert_ptr_equal(strchr(program_output(), '\n'),
                     program_output() + strlen(program_output()) - 1); /* one line */
}

static void without_its_file_cuda_fails_with_one_sentence(void **state)
{
    (void)state;
    make_plan(1, "");
    char kept[4096];
    const char *before = getenv("SHARDRUN_CUDA");
    snprintf(kept, sizeof kept, "%s", before ? before : "");
    setenv("SHARDRUN_CUDA", "/no/such/backend.so", 1);
    shardplan_says(2, "--device cuda: cannot load it: /no/such/backend.so",
                   "run %s/plan.json --device cuda", folder);
    if (before)
        setenv("SHARDRUN_CUDA", kept, 1);
    else
        unsetenv("SHARDRUN_CUDA");
    shardplan_says(2, "allowed are host, cuda", "run %s/plan.json --device tpu", folder);
}

/* Losses of two steps, one JSON object a line. */
static void read_losses(double losses[2])
{
    const char *at = program_output();
    for (int i = 0; i < 2; i++) {
        at = strstr(at, "\"loss\": ");
        assert_non_null(at);
        at += strlen("\"loss\": ");
        losses[i] = strtod(at, NULL);
    }
}

static void the_emulated_backend_runs_whole_plans_as_the_host_does(void **state)
{
    (void)state;
    static const char *const options[] = {"--param-dtype fp32 --reduce-dtype fp32 --clip 1",
                                          "--offload cpu --optimizer-impl fused"};
    if (!emulated_is_built()) {
        skip();
        return;
    }
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        double host[2], cuda[2];
        make_plan(3, options[i]); /* the last rank's shards are padded */
        shardplan_says(0, "loss", "run %s/plan.json --rehearse 2/3 --steps 2 --json", folder);
        read_losses(host);
        expect_emulated(0, "loss", "run %s/plan.json --rehearse 2/3 --steps 2 --json -o %s/run",
                        folder, folder);
        read_losses(cuda);
        expect_equal_memory("trace-2.json"); /* with cuBLAS's workspaces */
        for (int step = 0; step < 2; step++) /* fp32: 1e-4; with bf16 between: 2e-2 */
            if (fabs(cuda[step] - host[step]) > (i == 0 ? 1e-4 : 2e-2) * host[step])
                fail_msg("%s, step %d: loss %.9g instead of %.9g", options[i], step, cuda[step],
                         host[step]);
    }
}

/* A kernel that reads where nothing is, is found by a call that comes later. */
static void a_kernel_fault_names_the_last_instruction_that_it_may_be_of(void **state)
{
    (void)state;
    if (!emulated_is_built()) {
        skip();
        return;
    }
    make_plan(2, "--param-dtype fp32");
    setenv("SHARDRUN_EMULATED_FAULT", "400", 1);
    expect_emulated(3, "shardrun: rank 0: at or before instruction ",
                    "run %s/plan.json --rehearse 0/2 --steps 2", folder);
    unsetenv("SHARDRUN_EMULATED_FAULT");
}

/* Without a GPU, cuDNN does not start: that is said once, and in the trace, unless it was not
 * wanted.
 */
static void attention_that_is_not_cudnns_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *plan, *run;
        bool told;
    } cases[] = {{"", "", true},
                 {"", "--deterministic", true},
                 {"", "--attention own", false},
                 {"--param-dtype fp32 --reduce-dtype fp32", "", false}};
    if (!emulated_is_built()) {
        skip();
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make_plan(2, cases[i].plan);
        expect_emulated(0, "step", "run %s/plan.json --rehearse 0/2 --steps 2 %s -o %s/run", folder,
                        cases[i].run, folder);
        const char *note = strstr(program_output(), "note: attention of 1 x 32 x ");
        if (!note != !cases[i].told || (note && strstr(note + 1, "note: attention")))
            fail_msg("case %zu: %s", i, program_output());
        struct trace *trace = read_trace("run/trace.json");
        const char *about = trace_get_info(trace, "attention");
        assert_non_null(about);
        if (cases[i].told)
            assert_non_null(strstr(about, "own kernels: attention of 1 x 32 x "));
        else
            assert_string_equal(about, "own kernels");
        trace_free(trace);
    }
}

/* With tests/emulate's cuDNN: the step's attention is its graphs', and nearly what our own is. */
static void attention_is_what_was_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *run, *about;
    } cases[] = {{"--attention own", "own kernels"},
                 {"", "cuDNN 92000"},
                 {"--attention cudnn --deterministic", "cuDNN 92000, deterministic"}};
    double loss[3] = {0};
    if (!emulated_is_built()) {
        skip();
        return;
    }
    make_plan(2, "");
    const char *file = getenv("SHARDRUN_EMULATED");
    setenv("SHARDRUN_CUDNN", file ? file : "", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_emulated(
            0, "\"loss\": ", "run %s/plan.json --rehearse 0/2 --steps 2 --json %s -o %s/run",
            folder, cases[i].run, folder);
        loss[i] = strtod(strstr(program_output(), "\"loss\": ") + 8, NULL);
        struct trace *trace = read_trace("run/trace.json");
        assert_string_equal(trace_get_info(trace, "attention"), cases[i].about);
        trace_free(trace);
        if (!(fabs(loss[i] - loss[0]) <= 1e-3 * loss[0]))
            fail_msg("%s: loss %.9g instead of %.9g", cases[i].run, loss[i], loss[0]);
    }
    unsetenv("SHARDRUN_CUDNN");
}

static void attention_that_the_device_lacks_is_refused(void **state)
{
    (void)state;
    static const char *const lacking[] = {"flash", "efficient", "math", "flash-3", "triton"};
    make_plan(2, "");
    for (size_t i = 0; i < sizeof lacking / sizeof lacking[0]; i++)
        shardplan_says(2, "it has cudnn and own",
                       "run %s/plan.json --device cuda --rehearse 0/2 --attention %s", folder,
                       lacking[i]);
    shardplan_says(2,
                   "the cuda backend has no FlashAttention-2, as in PyTorch; it has cudnn and own",
                   "run %s/plan.json --device cuda --rehearse 0/2 --attention flash", folder);
    shardplan_says(2, "the host backend has no cuDNN's fused attention; it has own",
                   "run %s/plan.json --rehearse 0/2 --attention cudnn", folder);
    shardplan_says(2, "did you mean cudnn?", "run %s/plan.json --attention cudn", folder);
    make_plan(2, "--param-dtype fp32 --reduce-dtype fp32");
    shardplan_says(2, "is of fp32, cuDNN's is of bf16 and fp16",
                   "run %s/plan.json --device cuda --rehearse 0/2 --attention cudnn", folder);
    shardplan_says(0, "loss", "run %s/plan.json --rehearse 0/2 --steps 1 --attention own --json",
                   folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rehearsal_holds_the_memory_of_one_rank_of_many),
        cmocka_unit_test(the_trace_of_a_rehearsal_says_so),
        cmocka_unit_test(collectives_of_a_rehearsal_take_the_predicted_time),
        cmocka_unit_test(a_rehearsal_goes_on_whatever_its_loss_is),
        cmocka_unit_test(the_trace_of_the_first_step_begins_with_it),
        cmocka_unit_test(only_the_step_of_the_trace_is_recorded),
        cmocka_unit_test(a_rehearsal_of_another_world_is_refused),
        cmocka_unit_test(without_a_driver_cuda_fails_with_one_sentence),
        cmocka_unit_test(without_its_file_cuda_fails_with_one_sentence),
        cmocka_unit_test(the_emulated_backend_runs_whole_plans_as_the_host_does),
        cmocka_unit_test(a_kernel_fault_names_the_last_instruction_that_it_may_be_of),
        cmocka_unit_test(attention_that_is_not_cudnns_is_told),
        cmocka_unit_test(attention_is_what_was_asked_for),
        cmocka_unit_test(attention_that_the_device_lacks_is_refused),
    };
    return cmocka_run_group_tests_name("run_cuda", tests, folder_set_up_undrawn(folder),
                                       folder_tear_down);
}
