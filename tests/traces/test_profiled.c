/* test_profiled.c - a plan's trace has what tools for PyTorch's profiles look for: whose trace it
 * is, categories, streams, correlations, and names by which work, communication and copies are told
 * apart. What HTA computes of these is computed here by its definitions, and is what we say;
 * tests/peer/test_hta.c asks HTA itself. */
#include "base/arena.h"
#include "compare/compare.h"
#include "job/plan_trace.h"
#include "job/step_time.h"
#include "plan/profiled.h"
#include "search/step_spans.h"
#include "tests/support/small_jobs.h"
#include "tests/support/temp_folder.h"

#include <jansson.h>
#include <math.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int make_folder(void **state)
{
    (void)state;
    return temp_folder_make("test_profiled");
}

static int remove_folder(void **state)
{
    (void)state;
    return temp_folder_remove();
}

struct profiled {
    struct plan *plan;
    struct machine machine;
    struct step_time time;
    json_t *file; /* the trace as any reader of JSON sees it */
};

static struct profiled profile_small(int kind)
{
    const struct memory_options options = {.workspace_bytes = {1 << 20, 1 << 20}};
    const struct job job = small_job_of_kind(kind);
    struct profiled p = {.plan = small_plan_of(&job), .machine = {.gpus_per_node = 8}};
    struct prediction prediction = {.plan = p.plan};
    struct err err = {0};
    json_error_t error;
    assert_int_equal(profile_find("h100-sxm", &p.machine.profile, &err), ERR_OK);
    assert_int_equal(step_time(&prediction, &job, &p.machine, 0, &p.time, &err), ERR_OK);
    assert_int_equal(plan_trace_write(p.plan, &options, p.time.simulation, &p.time.timeline,
                                      path_of("trace.json"), &err),
                     ERR_OK);
    p.file = json_load_file(path_of("trace.json"), 0, &error);
    assert_non_null(p.file);
    return p;
}

static void profiled_free(struct profiled *p)
{
    json_decref(p->file);
    step_time_free(&p->time);
    profile_free(&p->machine.profile);
    plan_free(p->plan);
}

static int64_t arg_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(json_object_get(event, "args"), key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static const char *text_of_event(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

static bool is_span(const json_t *event)
{
    return strcmp(text_of_event(event, "ph"), "X") == 0;
}

/* ---- fields ---- */

static void the_job_is_told(void **state)
{
    (void)state;
    regex_t pattern; /* what HTA finds the rank by, in the text of the file */
    regmatch_t match[2];
    struct profiled p = profile_small(0);
    const json_t *job = json_object_get(p.file, "distributedInfo");
    size_t length;
    assert_string_equal(json_string_value(json_object_get(job, "backend")), "nccl");
    assert_int_equal(json_integer_value(json_object_get(job, "rank")), p.plan->rank);
    assert_int_equal(json_integer_value(json_object_get(job, "world_size")), p.plan->world);
    assert_int_equal(regcomp(&pattern, "\"rank\":[[:space:]]+([0-9]+)", REG_EXTENDED), 0);
    char *text = text_of("trace.json", &length);
    assert_int_equal(regexec(&pattern, text, 2, match, 0), 0);
    assert_int_equal(strtoul(text + match[1].rm_so, NULL, 10), p.plan->rank);
    free(text);
    regfree(&pattern);
    profiled_free(&p);
}

/* Every kernel on a stream has one event of the host with its correlation. */
static void kernels_are_tied_to_what_issued_them(void **state)
{
    (void)state;
    for (int kind = 0; kind < SMALL_JOBS; kind++) {
        struct profiled p = profile_small(kind);
        const size_t room = (size_t)p.plan->instruction_count + 2;
        int *launched = xcalloc(room, sizeof *launched), *ran = xcalloc(room, sizeof *ran);
        size_t i;
        json_t *event;
        json_array_foreach(json_object_get(p.file, "traceEvents"), i, event)
        {
            const char *category = text_of_event(event, "cat");
            const int64_t id = arg_of(event, "id"), tie = arg_of(event, "correlation");
            if (!is_span(event))
                continue;
            assert_true(tie < (int64_t)room);
            if (arg_of(event, "stream") < 0) {
                assert_string_equal(category, "cpu_op");
                launched[tie > 0 ? tie : 0]++;
                continue;
            }
            const uint8_t lane = p.plan->instructions[id].lane;
            assert_true(strcmp(category, "kernel") == 0 || strcmp(category, "gpu_memcpy") == 0);
            assert_int_equal(tie, id + 1);
            assert_int_equal(arg_of(event, "stream"), plan_profiled_stream(lane));
            assert_true(lane != LANE_COMPUTE || arg_of(event, "stream") == 7);
            ran[tie]++;
        }
        for (size_t k = 1; k < room; k++)
            assert_true(ran[k] == launched[k] && ran[k] <= 1);
        free(launched);
        free(ran);
        profiled_free(&p);
    }
}

static void expect_name(const struct plan *plan, uint32_t id, const char *want)
{
    char name[96];
    assert_string_equal(plan_profiled_name(plan, &plan->instructions[id], "mm", name, sizeof name),
                        want);
}

/* Names that NCCL 2.19 and later have in PyTorch's profiles. */
static void collectives_have_the_names_of_nccls_kernels(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    uint32_t gathers = 0, reductions = 0;
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (in->op == PLAN_ALL_GATHER) {
            expect_name(plan, i, "ncclDevKernel_AllGather_RING_LL");
            gathers++;
        } else if (in->op == PLAN_REDUCE_SCATTER) {
            const enum dtype dtype = (enum dtype)plan_kernel(plan, in->arg)->operands[0].dtype;
            expect_name(plan, i,
                        dtype == DTYPE_BF16 ? "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"
                                            : "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL");
            reductions++;
        } else if (in->op == PLAN_COMPUTE && in->lane == LANE_COMPUTE) {
            expect_name(plan, i, "mm");
        }
    }
    assert_true(gathers > 0 && reductions > 0);
    plan_free(plan);
}

/* ---- what HTA makes of them ---- */

enum class { NONE, COMMUNICATION, MEMORY, COMPUTATION, CLASSES };

/* hta/utils/utils.py: ^nccl.*Kernel, then ^Memcpy|^Memset|^dma, then all but what syncs. */
static enum class class_of(const char *name) {
    if (strncmp(name, "nccl", 4) == 0 && strstr(name, "Kernel")) return COMMUNICATION;
    if (strncmp(name, "Memcpy", 6) == 0 || strncmp(name, "Memset", 6) == 0 ||
        strncmp(name, "dma", 3) == 0) return MEMORY;
    return strstr(name, "Sync") || strstr(name, "Memcpy") ? NONE : COMPUTATION;
}

struct intervals {
    struct compare_interval *of;
    uint32_t count;
    double total_s;
};

static struct intervals intervals_of(const json_t *file, enum class wanted, enum class also)
{
    const json_t *events = json_object_get(file, "traceEvents");
    struct intervals out = {.of = calloc(json_array_size(events) + 1, sizeof *out.of)};
    size_t i;
    json_t *event;
    assert_non_null(out.of);
    json_array_foreach(events, i, event)
    {
        const enum class is = class_of(text_of_event(event, "name"));
        if (!is_span(event) || arg_of(event, "stream") < 0 || (is != wanted && is != also))
            continue;
        const double begin_s = 1e-6 * json_number_value(json_object_get(event, "ts"));
        out.of[out.count++] = (struct compare_interval){
            begin_s, begin_s + 1e-6 * json_number_value(json_object_get(event, "dur"))};
    }
    out.count = intervals_merge(out.of, out.count);
    for (uint32_t k = 0; k < out.count; k++)
        out.total_s += out.of[k].end_s - out.of[k].begin_s;
    return out;
}

static void work_and_communication_are_told_apart_as_we_do(void **state)
{
    (void)state;
    double seen_s = 0;
    for (int kind = 0; kind < SMALL_JOBS; kind++) {
        struct profiled p = profile_small(kind);
        struct arena arena = {0};
        struct compare_interval *spans =
            arena_alloc(&arena, p.plan->instruction_count * sizeof *spans);
        struct compare_time ours = {.step_s = p.time.timeline.step_s};
        step_spans(p.plan, &p.time, spans);
        compare_overlap(p.plan, spans, &arena, &ours);
        struct intervals work = intervals_of(p.file, COMPUTATION, COMPUTATION);
        struct intervals talk = intervals_of(p.file, COMMUNICATION, COMMUNICATION);
        struct intervals both = intervals_of(p.file, COMPUTATION, COMMUNICATION);
        const double rounding_s = 1e-9 * p.plan->instruction_count; /* the file's nanoseconds */
        const double exposed_s = both.total_s - work.total_s;
        assert_true(ours.compute_s > 0);
        seen_s += ours.communication_s - ours.exposed_s; /* one of the jobs has one rank */
        assert_true(fabs(work.total_s - ours.compute_s) <= rounding_s);
        assert_true(fabs(talk.total_s - ours.communication_s) <= rounding_s);
        assert_true(fabs(exposed_s - ours.exposed_s) <= rounding_s);
        free(work.of);
        free(talk.of);
        free(both.of);
        arena_free(&arena);
        profiled_free(&p);
    }
    assert_true(seen_s > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_job_is_told),
        cmocka_unit_test(kernels_are_tied_to_what_issued_them),
        cmocka_unit_test(collectives_have_the_names_of_nccls_kernels),
        cmocka_unit_test(work_and_communication_are_told_apart_as_we_do),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
