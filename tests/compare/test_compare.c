/* test_compare.c - a plan beside recordings made up from it: true ones, and ones with one thing
 * wrong.
 *
 * Memory of the recordings is the replay's own curve; times are made up so that every statistic is
 * known by hand. */
#include "compare/compare.h"
#include "tests/support/lanes.h"
#include "tests/support/recording.h"
#include "tests/support/small_jobs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void compare_well(const struct plan *plan, const json_t *time, const struct trace *trace,
                         struct comparison *out)
{
    struct err err = {0};
    if (compare_run(plan, time, trace, out, &err) != ERR_OK)
        fail_msg("%s", err.text);
}

static void free_all(struct plan *plan, struct trace *trace, struct comparison *c)
{
    compare_free(c);
    trace_free(trace);
    plan_free(plan);
}

/* ---- memory ---- */

static void a_true_recording_of_any_plan_is_equal(void **state)
{
    (void)state;
    for (int kind = 0; kind < SMALL_JOBS; kind++) {
        const struct job job = small_job_of_kind(kind);
        struct plan *plan = small_plan_of(&job);
        struct trace *trace = record(plan, &no_fault);
        struct comparison c;
        compare_well(plan, NULL, trace, &c);
        assert_true(compare_memory_equal(&c));
        assert_int_equal(c.time.missing, 0);
        assert_int_equal(c.memory.of[COMPARE_ALLOCATED].first, COMPARE_NONE);
        assert_true(c.memory.of[COMPARE_RESERVED].recorded_peak >=
                    c.memory.of[COMPARE_ALLOCATED].recorded_peak);
        assert_true(fabs(c.time.step_s - 1e-6 * c.time.span_count) < 1e-12);
        compare_free(&c);
        trace_free(trace);
        plan_free(plan);
    }
}

static void the_step_that_was_recorded_is_the_one_predicted(void **state)
{
    (void)state;
    int changed = 0;
    for (int kind = 0; kind < SMALL_JOBS; kind++) {
        struct job job = small_job_of_kind(kind);
        job.model.seq = 64; /* large enough for segments of several sizes */
        job.config.hidden = 192;
        job.config.head_dim = 48;
        job.config.vocab = 2000;
        struct plan *plan = small_plan_of(&job);
        uint64_t start = 0;
        for (int step = 1; step < 7; step++) {
            struct trace *trace = record_step(plan, step);
            struct comparison c;
            compare_well(plan, NULL, trace, &c);
            assert_true(compare_memory_equal(&c));
            changed += step > 1 && c.memory.points[0].recorded[COMPARE_RESERVED] != start;
            start = c.memory.points[0].recorded[COMPARE_RESERVED];
            compare_free(&c);
            trace_free(trace);
        }
        plan_free(plan);
    }
    assert_true(changed > 0); /* else this test would show nothing */
}

static void one_wrong_sample_is_found_where_it_is(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    struct fault fault = no_fault;
    fault.corrupt = 17;
    struct trace *trace = record(plan, &fault);
    struct comparison c;
    compare_well(plan, NULL, trace, &c);
    const struct compare_difference *d = &c.memory.of[COMPARE_ALLOCATED];
    assert_false(compare_memory_equal(&c));
    assert_int_equal(c.memory.differing, 1);
    assert_int_equal(d->points, 1);
    assert_int_equal(d->first, c.memory.points[17].instruction);
    assert_int_equal(d->largest, c.memory.points[17].instruction);
    assert_int_equal(d->largest_bytes, -512); /* less was predicted */
    assert_int_equal(c.memory.of[COMPARE_RESERVED].points, 0);
    free_all(plan, trace, &c);
}

static void a_missing_sample_is_not_equal_and_a_missing_span_is_counted(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    struct fault fault = no_fault;
    struct comparison c;
    fault.skip_sample = 5;
    fault.skip_span = 3;
    struct trace *trace = record(plan, &fault);
    compare_well(plan, NULL, trace, &c);
    assert_false(compare_memory_equal(&c));
    assert_int_equal(c.memory.missing, 1);
    assert_int_equal(c.memory.differing, 0);
    assert_false(c.memory.points[5].sampled);
    assert_int_equal(c.time.missing, 1);
    free_all(plan, trace, &c);
}

static void the_workspaces_of_the_run_are_predicted_too(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    struct trace *trace = record(plan, &no_fault);
    struct comparison c;
    trace_set_info(trace, "workspace_bytes", "1048576");
    compare_well(plan, NULL, trace, &c);
    const struct compare_difference *d = &c.memory.of[COMPARE_ALLOCATED];
    assert_int_equal(d->points, c.memory.point_count);
    assert_int_equal(d->largest_bytes, 2 << 20); /* of forward and of backward */
    assert_int_equal(d->first, c.memory.points[0].instruction);
    free_all(plan, trace, &c);
}

/* ---- time ----
 *
 *     ms           0         10  12  16  20 21  24    29 30  32
 *     compute                |mm |mm |   |a|    |==mm===|
 *     all_gather   |=========|=========|
 *     reduce_scatter                                  |======|
 *
 * The first mm waits for the first gather and the add for the second; nothing holds the last mm up
 * but the host. */

static void add_instruction(struct plan *plan, enum plan_op op, uint8_t lane, uint32_t arg)
{
    const struct plan_instruction instruction = {
        .op = (uint8_t)op,
        .lane = lane,
        .group = PLAN_NO_GROUP,
        .arg = arg,
    };
    plan_add_instruction(plan, &instruction);
}

static struct plan *hand_made_plan(void)
{
    static const char *const labels[] = {"mm", "add"};
    struct plan *plan = plan_new();
    for (uint32_t lane = COPY_IN_LANE; lane < TEST_LANES; lane++)
        plan_add_lane(plan, test_lane_infos[lane].name, false);
    plan->labels = labels;
    plan->label_count = 2;
    plan->world = 2;
    plan->event_count = 2;
    const uint32_t mm = plan_add_kernel(plan, WORK_MATMUL_NT, 0, 0, NULL, 0, NULL);
    const uint32_t add = plan_add_kernel(plan, WORK_ADD, 1, 0, NULL, 0, NULL);
    add_instruction(plan, PLAN_MARK, LANE_COMPUTE, PLAN_MARK_START);
    add_instruction(plan, PLAN_ALL_GATHER, ALL_GATHER_LANE, mm); /* 1 */
    add_instruction(plan, PLAN_RECORD, ALL_GATHER_LANE, 0);
    add_instruction(plan, PLAN_WAIT, LANE_COMPUTE, 0);
    add_instruction(plan, PLAN_ALL_GATHER, ALL_GATHER_LANE, mm); /* 4 */
    add_instruction(plan, PLAN_RECORD, ALL_GATHER_LANE, 1);
    add_instruction(plan, PLAN_COMPUTE, LANE_COMPUTE, mm); /* 6 */
    add_instruction(plan, PLAN_COMPUTE, LANE_COMPUTE, mm); /* 7 */
    add_instruction(plan, PLAN_WAIT, LANE_COMPUTE, 1);
    add_instruction(plan, PLAN_COMPUTE, LANE_COMPUTE, add);              /* 9 */
    add_instruction(plan, PLAN_COMPUTE, LANE_COMPUTE, mm);               /* 10 */
    add_instruction(plan, PLAN_REDUCE_SCATTER, REDUCE_SCATTER_LANE, mm); /* 11 */
    add_instruction(plan, PLAN_MARK, LANE_COMPUTE, PLAN_MARK_END);
    return plan;
}

static struct trace *hand_made_recording(const struct plan *plan, double start_s)
{
    static const struct {
        uint32_t id;
        double begin_ms, end_ms;
    } spans[] = {{1, 0, 10},  {4, 10, 20},  {6, 10, 12}, {7, 12, 16},
                 {9, 20, 21}, {10, 24, 30}, {11, 29, 32}};
    uint32_t lanes[LANES_MOST];
    struct recorder r = start_recording(plan, &no_fault, lanes);
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++)
        add_span(&r, plan, lanes, spans[i].id, start_s + 1e-3 * spans[i].begin_ms,
                 start_s + 1e-3 * spans[i].end_ms);
    for (uint32_t i = 0; i < 13; i += 12) {
        const double values[] = {i, 0, 0};
        trace_add_counter(r.trace, r.track, 0, values);
    }
    return r.trace;
}

static void assert_ms(double seconds, double ms)
{
    if (!(fabs(1e3 * seconds - ms) < 1e-6))
        fail_msg("%.9g ms, not %g ms", 1e3 * seconds, ms);
}

static void kinds_have_the_statistics_of_their_spans(void **state)
{
    (void)state;
    struct plan *plan = hand_made_plan();
    struct trace *trace = hand_made_recording(plan, 100);
    struct comparison c;
    compare_well(plan, NULL, trace, &c);
    assert_int_equal(c.time.kind_count, 4);
    assert_string_equal(c.time.kinds[0].name, "all_gather");
    assert_ms(c.time.kinds[0].recorded_s, 20);
    const struct compare_kind *mm = &c.time.kinds[1];
    assert_string_equal(mm->name, "mm");
    assert_int_equal(mm->count, 3);
    assert_ms(mm->recorded_s, 12);
    assert_ms(mm->median_s, 4);
    assert_ms(mm->p90_s, 5.6); /* 0.8 of the way from 4 to 6 */
    assert_true(isnan(mm->predicted_s));
    assert_string_equal(c.time.kinds[2].name, "reduce_scatter");
    assert_string_equal(c.time.kinds[3].name, "add");
    free_all(plan, trace, &c);
}

static void communication_is_exposed_where_compute_stands_still(void **state)
{
    (void)state;
    struct plan *plan = hand_made_plan();
    struct trace *trace = hand_made_recording(plan, 7.25);
    struct comparison c;
    compare_well(plan, NULL, trace, &c);
    assert_ms(c.time.step_s, 32);
    assert_ms(c.time.compute_s, 13);
    assert_ms(c.time.communication_s, 23);
    assert_ms(c.time.exposed_s, 16); /* 0-10, 16-20, 30-32 */
    assert_int_equal(c.time.exposed_count, 3);
    assert_ms(c.time.exposed[1].begin_s, 16);
    assert_ms(c.time.exposed[1].end_s, 20);
    free_all(plan, trace, &c);
}

static void a_collective_on_the_compute_lane_is_communication(void **state)
{
    (void)state;
    struct plan *plan = hand_made_plan();
    plan->instructions[10].op = PLAN_ALL_REDUCE; /* 24-30 */
    struct trace *trace = hand_made_recording(plan, 0);
    struct comparison c;
    compare_well(plan, NULL, trace, &c);
    assert_ms(c.time.compute_s, 7);
    assert_ms(c.time.communication_s, 28);
    assert_ms(c.time.exposed_s, 22);
    free_all(plan, trace, &c);
}

static void gaps_name_what_was_waited_for(void **state)
{
    (void)state;
    static const struct {
        double ms;
        uint32_t next, waited_for;
    } expected[] = {{10, 6, 1}, {4, 9, 4}, {3, 10, COMPARE_NONE}};
    struct plan *plan = hand_made_plan();
    struct trace *trace = hand_made_recording(plan, 0);
    struct comparison c;
    compare_well(plan, NULL, trace, &c);
    assert_int_equal(c.time.gap_count, 3);
    for (int i = 0; i < 3; i++) {
        const struct compare_gap *gap = &c.time.gaps[i];
        assert_ms(gap->when.end_s - gap->when.begin_s, expected[i].ms);
        assert_int_equal(gap->next, expected[i].next);
        assert_int_equal(gap->waited_for, expected[i].waited_for);
    }
    free_all(plan, trace, &c);
}

static void predicted_times_are_summed_by_kind(void **state)
{
    (void)state;
    struct plan *plan = hand_made_plan();
    struct trace *trace = hand_made_recording(plan, 0);
    json_t *time = json_pack("{s:f, s:[n,f,n,n,f,n,f,f,n,n,f]}", "step_s", 0.040, "instruction_s",
                             0.012, 0.012, 0.003, 0.003, 0.003);
    struct comparison c;
    compare_well(plan, time, trace, &c);
    assert_ms(c.time.predicted_step_s, 40);
    assert_true(isnan(c.time.predicted_exposed_s));
    assert_ms(c.time.kinds[0].predicted_s, 24);
    assert_ms(c.time.kinds[1].predicted_s, 9);
    assert_true(isnan(c.time.kinds[3].predicted_s)); /* add: null */
    compare_free(&c);
    json_decref(time);
    trace_free(trace);
    plan_free(plan);
}

/* ---- wrong input ---- */

static void expect_refusal(const struct plan *plan, const struct fault *fault, const char *says)
{
    struct trace *trace = record(plan, fault);
    struct comparison c;
    struct err err = {0};
    assert_int_equal(compare_run(plan, NULL, trace, &c, &err), ERR_INVALID);
    if (!strstr(err.text, says))
        fail_msg("\"%s\" does not say \"%s\"", err.text, says);
    trace_free(trace);
}

static void traces_that_cannot_be_compared_are_refused_with_a_reason(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    int64_t alloc = 0, kernel = 0, early = 0;
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const enum plan_op op = (enum plan_op)plan->instructions[i].op;
        if (plan->instructions[i].flags & PLAN_FIRST_STEP)
            early = i;
        else if (op == PLAN_ALLOC)
            alloc = i;
        else if (plan_op_is_kernel(op))
            kernel = i;
    }
    const struct fault faults[] = {
        {NOTHING, NOTHING, NOTHING, plan->instruction_count, NULL, NULL, NULL, NULL},
        {NOTHING, NOTHING, NOTHING, alloc, "work", NULL, NULL, NULL},
        {NOTHING, NOTHING, NOTHING, kernel, NULL, NULL, NULL, NULL},
        {NOTHING, NOTHING, NOTHING, early, NULL, NULL, NULL, NULL},
        {NOTHING, NOTHING, NOTHING, NOTHING, "all_gather", NULL, NULL, NULL},
        {NOTHING, NOTHING, NOTHING, NOTHING, NULL, "0", NULL, NULL},
        {NOTHING, NOTHING, NOTHING, NOTHING, NULL, NULL, "cycles", NULL},
        {NOTHING, NOTHING, NOTHING, NOTHING, NULL, NULL, NULL, "rank 0 (predicted)"},
        {NOTHING, NOTHING, NOTHING, NOTHING, NULL, NULL, NULL, "python"},
    };
    static const char *const says[] = {
        "not in the plan",
        "is alloc in the plan",
        "twice",
        "first step",
        "was recorded as all_gather",
        "first step",
        "allowed is \"seconds\"",
        "predicted trace",
        "(recorded)",
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        expect_refusal(plan, &faults[i], says[i]);
    plan_free(plan);
}

static void the_trace_of_another_plan_is_refused(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    const struct job other_job = small_job_of_kind(3);
    struct plan *other = small_plan_of(&other_job);
    struct trace *trace = record(other, &no_fault);
    struct comparison c;
    struct err err = {0};
    assert_int_equal(compare_run(plan, NULL, trace, &c, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "of another plan"));
    trace_free(trace);
    plan_free(other);
    plan_free(plan);
}

static void memory_that_was_not_recorded_is_said_to_be_missing(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    struct trace *trace = record(plan, &no_fault);
    struct comparison c;
    struct err err = {0};
    trace->sample_count = 0;
    assert_int_equal(compare_run(plan, NULL, trace, &c, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "memory was not recorded"));
    trace_free(trace);
    plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_true_recording_of_any_plan_is_equal),
        cmocka_unit_test(the_step_that_was_recorded_is_the_one_predicted),
        cmocka_unit_test(one_wrong_sample_is_found_where_it_is),
        cmocka_unit_test(a_missing_sample_is_not_equal_and_a_missing_span_is_counted),
        cmocka_unit_test(the_workspaces_of_the_run_are_predicted_too),
        cmocka_unit_test(kinds_have_the_statistics_of_their_spans),
        cmocka_unit_test(communication_is_exposed_where_compute_stands_still),
        cmocka_unit_test(a_collective_on_the_compute_lane_is_communication),
        cmocka_unit_test(gaps_name_what_was_waited_for),
        cmocka_unit_test(predicted_times_are_summed_by_kind),
        cmocka_unit_test(traces_that_cannot_be_compared_are_refused_with_a_reason),
        cmocka_unit_test(the_trace_of_another_plan_is_refused),
        cmocka_unit_test(memory_that_was_not_recorded_is_said_to_be_missing),
    };
    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
