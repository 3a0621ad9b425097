/* test_deferred_run.c - a plan made by hand, run on the host backend, whose compute stream lets go
 * of memory that a slower stream still uses.
 *
 *     side      fill b with 1, again and again ........... keep 1 = b
 *     host      free b, side | alloc c | fill c with 2, keep 2 = c | wait for side
 *
 * Had c the memory of b, side would write ones into it. */
#include "memory/replay.h"
#include "runtime/execution/execute.h"
#include "runtime/host/host_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((uint64_t)1048576)

enum { SIDE = LANE_HOST + 1, FILLS = 8, STEPS = 3 };
enum { ELEMENTS = 5 << 19 }; /* 10 MiB: a segment of its own */

/* ---- the plan ---- */

static uint32_t buffer_of(struct plan *plan, enum dtype dtype, struct shape shape, bool resident)
{
    return plan_add_buffer(plan, &(struct buffer){.bytes = shape_bytes(&shape, dtype),
                                                  .dtype = (uint8_t)dtype,
                                                  .category = CATEGORY_ACTIVATION,
                                                  .resident = resident,
                                                  .shape = shape});
}

static uint32_t add(struct plan *plan, enum plan_op op, uint8_t lane, uint32_t arg)
{
    return plan_add_instruction(
        plan, &(struct plan_instruction){
                  .op = (uint8_t)op, .lane = lane, .group = PLAN_NO_GROUP, .arg = arg});
}

static void fill(struct plan *plan, uint8_t lane, uint32_t buffer, float value)
{
    const struct operand whole = plan_whole_buffer(plan, buffer);
    const uint32_t kernel = plan_add_kernel(plan, WORK_FILL, 0, 0, NULL, 1, &whole);
    plan_own_kernel(plan, kernel)->attr.p = value;
    add(plan, PLAN_COMPUTE, lane, kernel);
}

static void copy(struct plan *plan, uint8_t lane, uint32_t from, uint32_t to)
{
    const struct operand x = plan_whole_buffer(plan, from), y = plan_whole_buffer(plan, to);
    add(plan, PLAN_COMPUTE, lane, plan_add_kernel(plan, WORK_COPY, 0, 1, &x, 1, &y));
}

/* Resident memory that the test may read: stored as a parameter. */
static uint32_t add_kept(struct plan *plan, uint32_t p, const char *name)
{
    const uint32_t buffer = buffer_of(plan, DTYPE_FP32, SHAPE(ELEMENTS), true);
    struct plan_param *param = &plan->params[p];
    *param = (struct plan_param){.name = name, .shape = SHAPE(ELEMENTS), .step_buffer = PLACE_NONE};
    memset(param->piece, 0xff, sizeof param->piece);
    plan_add_piece(plan, &(struct plan_piece){.param = p,
                                              .buffer = buffer,
                                              .placement = {.kind = PLACEMENT_WHOLE},
                                              .role = PIECE_STORE,
                                              .group = PLAN_NO_GROUP});
    return buffer;
}

/* What every plan has that can be run. */
static void add_model(struct plan *plan)
{
    static const char *const labels[] = {"empty"}, *const kinds[] = {""};
    static const uint32_t params[] = {0, 1};
    plan->labels = labels;
    plan->kinds = kinds;
    plan->label_count = plan->kind_count = plan->world = 1;
    plan->param_count = 2;
    plan->params = arena_alloc(&plan->arena, 2 * sizeof *plan->params);
    plan->units = arena_alloc(&plan->arena, sizeof *plan->units);
    plan->units[0] = (struct plan_unit){.name = "", .params = 2};
    plan->unit_params = arena_alloc(&plan->arena, sizeof params);
    memcpy(plan->unit_params, params, sizeof params);
    plan->unit_count = 1;
    plan->inputs = arena_alloc(&plan->arena, 2 * sizeof *plan->inputs);
    for (uint32_t i = 0; i < 2; i++)
        plan->inputs[i] = (struct plan_input){
            .buffer = buffer_of(plan, DTYPE_INT64, SHAPE(1, 4), true),
            .values = {.kind = i == 0 ? INPUT_TOKENS : INPUT_TARGETS, .vocab = 4},
        };
    plan->input_count = 2;
}

static struct plan *new_plan(void)
{
    struct plan *plan = plan_new();
    struct err err = {0};
    plan_add_lane(plan, "side", false);
    plan->event_count = 2;
    add_model(plan);
    const uint32_t ones = add_kept(plan, 0, "ones"), twos = add_kept(plan, 1, "twos");
    const struct shape shape = SHAPE(ELEMENTS);
    const uint32_t b = buffer_of(plan, DTYPE_FP32, shape, false);
    const uint32_t c = buffer_of(plan, DTYPE_FP32, shape, false);
    const uint32_t d = buffer_of(plan, DTYPE_FP32, shape, false);
    add(plan, PLAN_MARK, LANE_HOST, PLAN_MARK_START);
    add(plan, PLAN_MARK, LANE_HOST, PLAN_MARK_MICRO_BATCH);
    add(plan, PLAN_ALLOC, LANE_COMPUTE, b);
    add(plan, PLAN_RECORD, LANE_COMPUTE, 1);
    add(plan, PLAN_WAIT, SIDE, 1);
    for (int i = 0; i < FILLS; i++)
        fill(plan, SIDE, b, 1);
    copy(plan, SIDE, b, ones);
    add(plan, PLAN_FREE, SIDE, b);
    add(plan, PLAN_ALLOC, LANE_COMPUTE, c);
    fill(plan, LANE_COMPUTE, c, 2);
    copy(plan, LANE_COMPUTE, c, twos);
    add(plan, PLAN_RECORD, SIDE, 0);
    add(plan, PLAN_WAIT, LANE_COMPUTE, 0);
    add(plan, PLAN_FREE, LANE_COMPUTE, c);
    add(plan, PLAN_ALLOC, LANE_COMPUTE, d);
    fill(plan, LANE_COMPUTE, d, 3);
    add(plan, PLAN_FREE, LANE_COMPUTE, d);
    static const enum plan_mark marks[] = {PLAN_MARK_AFTER_FORWARD, PLAN_MARK_AFTER_BACKWARD,
                                           PLAN_MARK_OPTIMIZER, PLAN_MARK_AFTER_STEP,
                                           PLAN_MARK_END};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        add(plan, PLAN_MARK, LANE_HOST, marks[i]);
        if (marks[i] == PLAN_MARK_OPTIMIZER) /* of no parameters */
            add(plan, PLAN_OPTIMIZER, LANE_COMPUTE,
                plan_add_kernel(plan, WORK_SGD, 0, 0, NULL, 0, NULL));
    }
    if (plan_verify(plan, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return plan;
}

/* ---- running it ---- */

struct run {
    struct plan *plan;
    struct device *device;
    struct data *data;
    struct execution *execution;
};

static struct run run_of(uint64_t memory_bytes)
{
    struct run run = {.plan = new_plan()};
    const struct run_settings settings = {0};
    const struct lane_list lanes = {run.plan->lanes, run.plan->lane_count};
    struct err err = {0};
    assert_int_equal(data_open(NULL, DATA_REFERENCE, 100, &run.data, &err), ERR_OK);
    assert_int_equal(
        device_open_host(memory_bytes, run.plan->event_count, lanes, NULL, &run.device, &err),
        ERR_OK);
    if (execution_open(run.plan, run.device, NULL, run.data, &settings, &run.execution, &err) !=
        ERR_OK)
        fail_msg("%s", err.text);
    return run;
}

static void run_close(struct run *run)
{
    execution_close(run->execution);
    device_close(run->device);
    data_close(run->data);
    plan_free(run->plan);
}

static void expect_all(struct run *run, uint32_t p, float value)
{
    float *values = malloc(ELEMENTS * sizeof *values);
    assert_non_null(values);
    assert_int_equal(execution_read(run->execution, p, -1, values, NULL), ERR_OK);
    for (uint32_t i = 0; i < ELEMENTS; i++)
        if ((int)values[i] != (int)value)
            fail_msg("%s: element %u is %g", run->plan->params[p].name, i, (double)values[i]);
    free(values);
}

static void run_steps(struct run *run)
{
    struct step_result result;
    struct err err = {0};
    for (uint32_t step = 0; step < STEPS; step++) {
        if (execution_step(run->execution, step, &result, &err) != ERR_OK)
            fail_msg("%s", err.text);
        expect_all(run, 0, 1);
        expect_all(run, 1, 2);
    }
}

static void expect_recorded(void *context, const struct plan *plan,
                            const struct memory_point *point)
{
    const struct step_record *record = &execution_records(context)[point->instruction];
    (void)plan;
    assert_int_equal(record->allocated, point->allocated);
    assert_int_equal(record->reserved, point->reserved);
}

/* Runs it where the allocator may have so many bytes, and compares with what is planned for that.
 */
static struct memory run_and_compare(uint64_t bytes)
{
    struct run run = run_of(bytes + 2 * MIB); /* what losses and norms are read from */
    struct memory memory;
    const struct memory_options options = {.allocator.capacity_bytes = bytes};
    run_steps(&run);
    assert_int_equal(
        memory_replay(run.plan, &options, expect_recorded, run.execution, &memory, NULL), ERR_OK);
    assert_false(memory.out_of_memory);
    run_close(&run);
    return memory;
}

enum { KEPT_MIB = 2 * 10 + 2 }; /* both parameters, and the inputs' segment */

static void memory_that_a_stream_still_uses_goes_to_nobody(void **state)
{
    (void)state;
    const struct memory memory = run_and_compare(100 * MIB);
    assert_int_equal(memory.allocated.bytes, 3 * 10 * MIB + 2 * 512);   /* b is gone when c comes */
    assert_int_equal(memory.reserved_bytes, (KEPT_MIB + 2 * 10) * MIB); /* and its memory is not */
}

static void a_full_device_waits_for_the_stream(void **state)
{
    (void)state;
    const struct memory memory = run_and_compare((KEPT_MIB + 10) * MIB);
    assert_int_equal(memory.reserved_bytes, (KEPT_MIB + 10) * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_a_stream_still_uses_goes_to_nobody),
        cmocka_unit_test(a_full_device_waits_for_the_stream),
    };
    return cmocka_run_group_tests_name("deferred_run", tests, NULL, NULL);
}
