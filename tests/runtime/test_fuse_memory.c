/* test_fuse_memory.c - plans made by hand, run on the host backend, that take a chain's memory away
 * before its last kernel is issued.
 *
 *     host     fill x | silu x -> s | free x | alloc b, or y | s u -> y, kept
 *
 * The silu is put off. Where b finds no memory, x's segment goes back to the device; and y may come
 * to lie where x was. */
#include "memory/replay.h"
#include "runtime/execution/execute.h"
#include "runtime/host/host_device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((uint64_t)1048576)

enum { STEPS = 3, ELEMENTS = 5 << 19 /* 10 MiB of fp32: a segment of its own */ };

static uint32_t buffer_of(struct plan *plan, enum dtype dtype, struct shape shape, bool resident)
{
    return plan_add_buffer(plan, &(struct buffer){.bytes = shape_bytes(&shape, dtype),
                                                  .dtype = (uint8_t)dtype,
                                                  .category = CATEGORY_ACTIVATION,
                                                  .resident = resident,
                                                  .shape = shape});
}

static void add(struct plan *plan, enum plan_op op, uint32_t arg)
{
    plan_add_instruction(
        plan, &(struct plan_instruction){.op = (uint8_t)op,
                                         .lane = op == PLAN_MARK ? LANE_HOST : LANE_COMPUTE,
                                         .group = PLAN_NO_GROUP,
                                         .arg = arg});
}

static void fill(struct plan *plan, uint32_t buffer, float value)
{
    const struct operand whole = plan_whole_buffer(plan, buffer);
    const uint32_t kernel = plan_add_kernel(plan, WORK_FILL, 0, 0, NULL, 1, &whole);
    plan_own_kernel(plan, kernel)->attr.p = value;
    add(plan, PLAN_COMPUTE, kernel);
}

static void compute(struct plan *plan, enum work_kind work, uint32_t ins, const uint32_t *in,
                    uint32_t out)
{
    struct operand from[2], to = plan_whole_buffer(plan, out);
    for (uint32_t i = 0; i < ins; i++)
        from[i] = plan_whole_buffer(plan, in[i]);
    add(plan, PLAN_COMPUTE, plan_add_kernel(plan, work, 0, ins, from, 1, &to));
}

/* Resident memory that the test may read, stored as the only parameter. */
static uint32_t add_model(struct plan *plan)
{
    static const char *const labels[] = {"empty"}, *const kinds[] = {""};
    static const uint32_t params[] = {0};
    plan->labels = labels;
    plan->kinds = kinds;
    plan->label_count = plan->kind_count = plan->world = 1;
    plan->param_count = plan->unit_count = 1;
    plan->params = arena_alloc(&plan->arena, sizeof *plan->params);
    plan->units = arena_alloc(&plan->arena, sizeof *plan->units);
    plan->units[0] = (struct plan_unit){.name = "", .params = 1};
    plan->unit_params = arena_alloc(&plan->arena, sizeof params);
    memcpy(plan->unit_params, params, sizeof params);
    plan->inputs = arena_alloc(&plan->arena, 2 * sizeof *plan->inputs);
    for (uint32_t i = 0; i < 2; i++)
        plan->inputs[i] = (struct plan_input){
            .buffer = buffer_of(plan, DTYPE_INT64, SHAPE(1, 4), true),
            .values = {.kind = i == 0 ? INPUT_TOKENS : INPUT_TARGETS, .vocab = 4},
        };
    plan->input_count = 2;
    const uint32_t kept = buffer_of(plan, DTYPE_FP32, SHAPE(ELEMENTS), true);
    plan->params[0] =
        (struct plan_param){.name = "kept", .shape = SHAPE(ELEMENTS), .step_buffer = PLACE_NONE};
    memset(plan->params[0].piece, 0xff, sizeof plan->params[0].piece);
    plan_add_piece(plan, &(struct plan_piece){.param = 0,
                                              .buffer = kept,
                                              .placement = {.kind = PLACEMENT_WHOLE},
                                              .role = PIECE_STORE,
                                              .group = PLAN_NO_GROUP});
    return kept;
}

/* `over`: y is another buffer, of bf16, that is copied to what is kept; else b is between. */
static struct plan *new_plan(bool over)
{
    struct plan *plan = plan_new();
    struct err err = {0};
    const struct shape shape = SHAPE(ELEMENTS);
    const uint32_t kept = add_model(plan);
    const uint32_t x = buffer_of(plan, DTYPE_FP32, shape, false);
    const uint32_t s = buffer_of(plan, DTYPE_FP32, shape, false);
    const uint32_t u = buffer_of(plan, DTYPE_FP32, shape, true);
    const uint32_t more = over ? buffer_of(plan, DTYPE_BF16, shape, false)
                               : buffer_of(plan, DTYPE_FP32, SHAPE(ELEMENTS + ELEMENTS / 4), false);
    add(plan, PLAN_MARK, PLAN_MARK_START);
    add(plan, PLAN_MARK, PLAN_MARK_MICRO_BATCH);
    add(plan, PLAN_ALLOC, s); /* below x, so that what x leaves goes on to the end */
    add(plan, PLAN_ALLOC, x);
    fill(plan, x, 2);
    fill(plan, u, 3);
    compute(plan, WORK_SILU, 1, &x, s);
    add(plan, PLAN_FREE, x);
    add(plan, PLAN_ALLOC, more);
    compute(plan, WORK_MUL, 2, (const uint32_t[]){s, u}, over ? more : kept);
    if (over)
        compute(plan, WORK_CAST, 1, &more, kept);
    add(plan, PLAN_FREE, more);
    add(plan, PLAN_FREE, s);
    static const enum plan_mark marks[] = {PLAN_MARK_AFTER_FORWARD, PLAN_MARK_AFTER_BACKWARD,
                                           PLAN_MARK_OPTIMIZER, PLAN_MARK_AFTER_STEP,
                                           PLAN_MARK_END};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        add(plan, PLAN_MARK, marks[i]);
        if (marks[i] == PLAN_MARK_OPTIMIZER) /* of no parameters */
            add(plan, PLAN_OPTIMIZER, plan_add_kernel(plan, WORK_SGD, 0, 0, NULL, 0, NULL));
    }
    if (plan_verify(plan, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return plan;
}

static void expect_recorded(void *context, const struct plan *plan,
                            const struct memory_point *point)
{
    const struct step_record *record = &execution_records(context)[point->instruction];
    (void)plan;
    assert_int_equal(record->allocated, point->allocated);
    assert_int_equal(record->reserved, point->reserved);
}

/* Runs it where the allocator may have so many bytes. Returns in how many of the steps the silu ran
 * as a part of another kernel. */
static uint32_t run(bool over, uint64_t bytes)
{
    struct plan *plan = new_plan(over);
    const struct run_settings settings = {.fuse = true};
    const struct lane_list lanes = {plan->lanes, plan->lane_count};
    const struct memory_options options = {.allocator.capacity_bytes = bytes};
    struct device *device;
    struct data *data;
    struct execution *e;
    struct memory memory;
    struct err err = {0};
    float *values = malloc(ELEMENTS * sizeof *values);
    const double wanted = 3 * 2 / (1 + exp(-2.0));
    uint32_t parts = 0;
    assert_non_null(values);
    assert_int_equal(data_open(NULL, DATA_REFERENCE, 100, &data, &err), ERR_OK);
    assert_int_equal(device_open_host(bytes + 2 * MIB, 1, lanes, NULL, &device, &err), ERR_OK);
    if (execution_open(plan, device, NULL, data, &settings, &e, &err) != ERR_OK)
        fail_msg("%s", err.text);
    for (uint32_t step = 0; step < STEPS; step++) {
        struct step_result result;
        if (execution_step(e, step, &result, &err) != ERR_OK)
            fail_msg("%s", err.text);
        assert_int_equal(execution_read(e, 0, EXECUTION_STORE, values, &err), ERR_OK);
        for (uint32_t i = 0; i < ELEMENTS; i++)
            if (!(fabs((double)values[i] - wanted) <= (over ? 0x1p-8 : 0x1p-21) * wanted))
                fail_msg("element %u is %g", i, (double)values[i]);
        for (uint32_t id = 0; id < plan->instruction_count; id++)
            parts += execution_records(e)[id].fused_into != 0;
    }
    assert_int_equal(memory_replay(plan, &options, expect_recorded, e, &memory, NULL), ERR_OK);
    assert_false(memory.out_of_memory);
    execution_close(e);
    device_close(device);
    data_close(data);
    plan_free(plan);
    free(values);
    return parts;
}

/* The inputs' segment, u, what is kept, x and s: what comes between finds no room. */
enum { FULL = 2 + 4 * 10 };

static void what_was_put_off_is_launched_before_its_segment_goes(void **state)
{
    (void)state;
    assert_int_equal(run(false, 100 * MIB), STEPS);
    /* b's 14 MiB are x's and 4 more; from then on they are both one's after the other. */
    assert_int_equal(run(false, (FULL + 4) * MIB), STEPS - 1);
}

static void an_output_over_an_input_of_another_dtype_is_made_step_by_step(void **state)
{
    (void)state;
    assert_int_equal(run(true, 100 * MIB), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_off_is_launched_before_its_segment_goes),
        cmocka_unit_test(an_output_over_an_input_of_another_dtype_is_made_step_by_step),
    };
    return cmocka_run_group_tests_name("fuse_memory", tests, NULL, NULL);
}
