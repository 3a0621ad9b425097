/* test_plan.c - plan_verify accepts every plan we make and finds what it promises to find.
 *
 * Each defect is put into a good plan by hand. */
#include "tests/support/small_jobs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- verify: what is right ---- */

static void plans_of_every_kind_of_job_are_right(void **state)
{
    (void)state;
    for (int kind = 0; kind < SMALL_JOBS; kind++) {
        const struct job job = small_job_of_kind(kind);
        struct err err = {0};
        struct plan *plan = small_plan_of(&job);
        if (plan_verify(plan, &err) != ERR_OK)
            fail_msg("kind %d: %s", kind, err.text);
        plan_free(plan);
    }
}

/* ---- verify: what is wrong ---- */

static void expect_error(struct plan *plan, const char *text)
{
    struct err err = {0};
    if (plan_verify(plan, &err) != ERR_INTERNAL || !strstr(err.text, text))
        fail_msg("expected \"%s\" in: %s", text, err.text);
    plan_free(plan);
}

/* The n-th instruction of an op, counted from 0. */
static uint32_t find(const struct plan *plan, enum plan_op op, uint32_t n)
{
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        if (plan->instructions[i].op == op && n-- == 0)
            return i;
    fail_msg("no such instruction");
    return 0;
}

static uint32_t find_of(const struct plan *plan, enum plan_op op, uint32_t arg)
{
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        if (plan->instructions[i].op == op && plan->instructions[i].arg == arg)
            return i;
    fail_msg("no such instruction");
    return 0;
}

static void drop(struct plan *plan, uint32_t id)
{
    plan->instruction_count--;
    memmove(plan->instructions + id, plan->instructions + id + 1,
            (plan->instruction_count - id) * sizeof *plan->instructions);
}

static void insert(struct plan *plan, uint32_t id, struct plan_instruction instruction)
{
    plan_add_instruction(plan, &instruction);
    memmove(plan->instructions + id + 1, plan->instructions + id,
            (plan->instruction_count - 1 - id) * sizeof *plan->instructions);
    plan->instructions[id] = instruction;
}

static void move(struct plan *plan, uint32_t from, uint32_t to)
{
    const struct plan_instruction moved = plan->instructions[from];
    drop(plan, from);
    insert(plan, to, moved);
}

/* An activation that a later kernel reads: written by the second mm of the forward pass. */
static uint32_t some_activation(const struct plan *plan)
{
    const struct plan_instruction *i = &plan->instructions[find(plan, PLAN_COMPUTE, 4)];
    const struct kernel *kernel = plan_kernel(plan, i->arg);
    return plan_operand_place(plan, i, &kernel->operands[kernel->ins]).buffer;
}

static void a_missing_alloc_is_found_at_the_first_use(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    char expected[128], what[96];
    const uint32_t buffer = some_activation(plan);
    drop(plan, find_of(plan, PLAN_ALLOC, buffer));
    snprintf(expected, sizeof expected, "writes buffer %u, %s, which is not alive: never allocated",
             buffer, plan_buffer_text(plan, &plan->buffers[buffer], what, sizeof what));
    expect_error(plan, expected);
}

static void a_second_alloc_is_found(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    const uint32_t id = find_of(plan, PLAN_ALLOC, some_activation(plan));
    char expected[96];
    insert(plan, id, plan->instructions[id]);
    snprintf(expected, sizeof expected, "is alive already: allocated by instruction %u", id);
    expect_error(plan, expected);
}

static void a_second_free_is_found(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    const uint32_t id = find_of(plan, PLAN_FREE, some_activation(plan));
    char expected[96];
    insert(plan, id, plan->instructions[id]);
    snprintf(expected, sizeof expected, "instruction %u, free in ", id + 1);
    expect_error(plan, expected);

    plan = small_plan();
    insert(plan, id, plan->instructions[id]);
    snprintf(expected, sizeof expected, "is not alive: freed by instruction %u", id);
    expect_error(plan, expected);
}

static void an_early_free_is_found_at_the_next_use(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    char expected[96];
    const uint32_t buffer = some_activation(plan);
    const uint32_t alloc = find_of(plan, PLAN_ALLOC, buffer);
    move(plan, find_of(plan, PLAN_FREE, buffer), alloc + 2); /* after the kernel that fills it */
    snprintf(expected, sizeof expected, "which is not alive: freed by instruction %u", alloc + 2);
    expect_error(plan, expected);
}

static void parameters_are_read_only_while_they_are_gathered(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    const uint32_t buffer = plan_piece(plan, 1, PIECE_GATHERED)->buffer;
    move(plan, find_of(plan, PLAN_FREE, buffer), find_of(plan, PLAN_ALLOC, buffer) + 1);
    expect_error(plan, "not alive");
}

static void a_missing_free_is_found_at_the_end(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    drop(plan, find_of(plan, PLAN_FREE, some_activation(plan)));
    expect_error(plan, "is not freed by the end of the step");
}

static void a_resident_buffer_is_there_between_steps(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    struct plan_instruction last = plan->instructions[find(plan, PLAN_FREE, 0)];
    last.arg = plan_piece(plan, 0, PIECE_STORE)->buffer;
    insert(plan, plan->instruction_count - 1, last);
    expect_error(plan, "is resident and not there at the end of the step");
}

static void the_first_step_is_not_enough(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    plan->instructions[find_of(plan, PLAN_ALLOC, some_activation(plan))].flags = PLAN_FIRST_STEP;
    expect_error(plan, "(in a later step)");

    plan = small_plan();
    plan->instructions[find_of(plan, PLAN_FREE, some_activation(plan))].flags = PLAN_FIRST_STEP;
    expect_error(plan, "(in a later step)");

    plan = small_plan();
    plan->instructions[find(plan, PLAN_RECORD, 3)].flags = PLAN_FIRST_STEP;
    expect_error(plan, "has not been recorded (in a later step)");

    plan = small_plan(); /* a state that every step allocates */
    plan->instructions[find_of(plan, PLAN_ALLOC, plan_piece(plan, 0, PIECE_EXP_AVG)->buffer)]
        .flags = 0;
    expect_error(plan, "is alive already");
}

/* A buffer that each step takes over from the one before. */
static struct plan *carrying_plan(uint8_t free_flags)
{
    struct plan *plan = small_plan();
    const uint32_t buffer = some_activation(plan);
    struct plan_instruction early = plan->instructions[find_of(plan, PLAN_FREE, buffer)];
    drop(plan, find_of(plan, PLAN_FREE, buffer));
    early.flags = free_flags;
    early.phase = PLAN_FORWARD;
    insert(plan, 1, early);
    plan->buffers[buffer].carried = true;
    return plan;
}

static void a_carried_buffer_goes_from_step_to_step(void **state)
{
    struct err err = {0};
    (void)state;
    struct plan *plan = carrying_plan(PLAN_LATER_STEPS);
    assert_int_equal(plan_verify(plan, &err), ERR_OK);
    plan_free(plan);
    expect_error(carrying_plan(0), "is not alive");
    expect_error(carrying_plan(PLAN_FIRST_STEP), "is not alive");
    expect_error(carrying_plan(PLAN_LATER_STEPS | PLAN_FIRST_STEP), "flags 5");
    plan = carrying_plan(PLAN_LATER_STEPS);
    plan->buffers[some_activation(plan)].carried = false;
    expect_error(plan, "is not freed by the end of the step");
}

static void a_wait_needs_its_record_before_it(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    const uint32_t wait = find(plan, PLAN_WAIT, 4), event = plan->instructions[wait].arg;
    char expected[96];
    drop(plan, find_of(plan, PLAN_RECORD, event));
    snprintf(expected, sizeof expected, "waits for event %u, which has not been recorded", event);
    expect_error(plan, expected);

    plan = small_plan();
    move(plan, wait, find_of(plan, PLAN_RECORD, event));
    expect_error(plan, expected);
}

static void marks_come_in_order(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    move(plan, find_of(plan, PLAN_MARK, PLAN_MARK_AFTER_LOGITS),
         find_of(plan, PLAN_MARK, PLAN_MARK_AFTER_FORWARD));
    expect_error(plan, "mark \"after_logits\" may not come after mark \"after_forward\"");

    plan = small_plan();
    drop(plan, find_of(plan, PLAN_MARK, PLAN_MARK_AFTER_BACKWARD));
    expect_error(plan, "mark \"optimizer\" may not come after mark \"backward_blocks\"");

    plan = small_plan();
    drop(plan, 0);
    expect_error(plan, "mark \"micro_batch\" may not come first");

    plan = small_plan();
    insert(plan, plan->instruction_count, plan->instructions[find(plan, PLAN_RECORD, 0)]);
    expect_error(plan, "it stands after mark \"end\"");

    plan = small_plan();
    drop(plan, plan->instruction_count - 1);
    expect_error(plan, "ends without mark \"end\"");
}

static void a_collective_needs_a_group_and_others_have_none(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    plan->instructions[find(plan, PLAN_ALL_GATHER, 1)].group = PLAN_NO_GROUP;
    expect_error(plan, "all_gather in fwd/unshard[layers.0]: group 255 of 1");

    plan = small_plan();
    plan->instructions[find(plan, PLAN_COMPUTE, 1)].group = 0;
    expect_error(plan, "group 0: it takes none");

    plan = small_plan();
    plan->groups[0].ranks = 5;
    expect_error(plan, "5 ranks with stride 1 do not divide a world of 4");
}

static struct operand *first_output(const struct plan *plan, const struct plan_instruction *i)
{
    const struct kernel *kernel = plan_kernel(plan, i->arg);
    return &kernel->operands[kernel->ins];
}

static void an_operand_lies_within_its_buffer(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    const struct plan_instruction *i = &plan->instructions[find(plan, PLAN_COMPUTE, 4)];
    struct operand *out = first_output(plan, i);
    out->offset = 1;
    expect_error(plan, "out[0] reaches beyond the");

    plan = small_plan();
    i = &plan->instructions[find(plan, PLAN_COMPUTE, 4)];
    out = first_output(plan, i);
    out->pitch = out->shape.dim[out->shape.rank - 1] + 1;
    expect_error(plan, "out[0] reaches beyond the");

    plan = small_plan(); /* rows, as kernels step over them, and not one long one */
    i = &plan->instructions[find(plan, PLAN_COMPUTE, 4)];
    first_output(plan, i)->pitch = UINT32_MAX;
    expect_error(plan, "out[0] reaches beyond the");
}

/* What is written before the first step and at each micro-batch. */
static void what_a_run_fills_is_there(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    plan->inputs[0].buffer = some_activation(plan);
    plan->buffers[plan->inputs[0].buffer].dtype = DTYPE_INT64;
    plan->buffers[plan->inputs[0].buffer].bytes *= 4;
    expect_error(plan, "input 0 is buffer");

    plan = small_plan();
    const uint32_t tokens = plan->inputs[0].buffer;
    plan->buffers[tokens].shape.dim[0]++;
    expect_error(plan, "it has only");

    plan = small_plan();
    plan->buffers[plan->module_buffers[0].buffer].resident = false;
    expect_error(plan, "is not there before the first step");

    plan = small_plan();
    plan->instructions[find(plan, PLAN_MARK, 1)].flags = PLAN_FIRST_STEP;
    expect_error(plan, "marks are in every step");

    plan = small_plan();
    struct plan_piece *state_of = &plan->pieces[plan->params[1].piece[PIECE_EXP_AVG]];
    state_of->group = PLAN_NO_GROUP;
    plan->buffers[state_of->buffer].bytes *= 4;
    expect_error(plan, "exp_avg is of other elements than what is updated");
}

/* Each line puts one number out of range. */
static void every_index_is_checked(void **state)
{
    (void)state;
#define OUT_OF_RANGE(change, text)                                                                 \
    do {                                                                                           \
        struct plan *plan = small_plan();                                                          \
        struct plan_instruction *alloc = &plan->instructions[find(plan, PLAN_ALLOC, 9)];           \
        struct plan_instruction *work = &plan->instructions[find(plan, PLAN_COMPUTE, 4)];          \
        struct kernel *kernel = &plan->shared->kernels[work->arg];                                 \
        struct operand *operand = kernel->operands;                                                \
        (void)alloc, (void)kernel, (void)operand;                                                  \
        change;                                                                                    \
        expect_error(plan, text);                                                                  \
    } while (0)

    OUT_OF_RANGE(alloc->op = PLAN_OP_COUNT, "op 17: allowed are 0 ... 16");
    OUT_OF_RANGE(alloc->lane = LANES_MOST, "lane 16: allowed are 0 ... 5");
    OUT_OF_RANGE(alloc->phase = 3, "phase 3: allowed are 0 ... 2");
    OUT_OF_RANGE(alloc->scope = plan->scope_count, "scope");
    OUT_OF_RANGE(plan->scopes[1].unit = 4, "scope 1: unit 4: allowed are 0 ... 3");
    OUT_OF_RANGE(alloc->flags = 2, "flags 2");
    OUT_OF_RANGE(alloc->arg = plan->buffer_count, "buffer");
    OUT_OF_RANGE((alloc->op = PLAN_RECORD, alloc->arg = plan->event_count), "event");
    OUT_OF_RANGE((alloc->op = PLAN_MARK, alloc->arg = 9), "mark 9: allowed are 0 ... 8");
    OUT_OF_RANGE(work->arg = plan->kernel_count, "kernel");
    OUT_OF_RANGE(work->base = plan->buffer_count, "allowed are 0 ...");
    OUT_OF_RANGE(work->base = UINT32_MAX, "allowed are 0 ...");
    OUT_OF_RANGE(kernel->label = (uint16_t)plan->label_count, "label");
    OUT_OF_RANGE(kernel->op = (uint16_t)plan->kind_count, "kind");
    OUT_OF_RANGE(kernel->flops = (double)NAN, "operations");
    OUT_OF_RANGE(kernel->bytes = -1.0, "operations");
    OUT_OF_RANGE(kernel->attr.p = INFINITY, "p = inf");
    OUT_OF_RANGE(operand->place = PLACE_NONE, "module buffer");
    OUT_OF_RANGE(operand->place = PLACE_PARAM | plan->param_count, "parameter");
    OUT_OF_RANGE(operand->place = PLACE_INPUT | plan->input_count, "input");
    OUT_OF_RANGE(operand->dtype = DTYPE_COUNT, "kernel 2: dtype 14");
    OUT_OF_RANGE(operand->local = 9999, "local part of parameter 9998");
    OUT_OF_RANGE(operand->chunk = 9, "chunk of group 8");
    OUT_OF_RANGE(operand->shape.rank = 7, "shape of 7 dims");
    OUT_OF_RANGE(plan->buffers[3].label = (uint16_t)plan->label_count, "buffer 3: label");
    OUT_OF_RANGE(plan->buffers[3].dtype = DTYPE_COUNT, "buffer 3: dtype");
    OUT_OF_RANGE(plan->buffers[3].category = CATEGORY_COUNT, "buffer 3: category");
    OUT_OF_RANGE(plan->buffers[3].pool = LANES_MOST, "buffer 3: pool");
    OUT_OF_RANGE(plan->buffers[3].bytes = UINT64_MAX, "buffer 3:");
    OUT_OF_RANGE(plan->buffers[3].shape = SHAPE(1U << 31, 1U << 31, 1U << 31), "too many elements");
    OUT_OF_RANGE(plan->params[2].unit = 4, "parameter 2: unit 4");
    OUT_OF_RANGE(plan->params[2].shape.rank = 9, "parameter 2: shape of 9 dims");
    OUT_OF_RANGE(plan->params[2].piece[PIECE_STORE] = PLACE_NONE,
                 "parameter 2: it is stored nowhere");
    OUT_OF_RANGE(plan->params[2].piece[PIECE_GATHERED] = 9999, "parameter 2: piece 9999");
    OUT_OF_RANGE(plan->params[2].piece[PIECE_EXP_AVG] = PLACE_NONE,
                 "a second state without a first");
    OUT_OF_RANGE(plan->params[2].step_buffer = plan->buffer_count, "parameter 2: step buffer");
    OUT_OF_RANGE(plan->pieces[3].buffer = plan->buffer_count, "piece 3: buffer");
    OUT_OF_RANGE(plan->pieces[3].param = plan->param_count, "piece 3: parameter");
    OUT_OF_RANGE(plan->pieces[3].role = PIECE_ROLES, "piece 3: role");
    OUT_OF_RANGE(plan->pieces[3].placement.kind = PLACEMENT_KINDS, "piece 3: placement");
    OUT_OF_RANGE(plan->pieces[2].group = 7, "piece 2: group 7");
    OUT_OF_RANGE(plan->pieces[2].offset = UINT64_MAX, "it reaches beyond");
    OUT_OF_RANGE(plan->units[1].params = 99, "unit 1: 99 parameters");
    OUT_OF_RANGE(plan->unit_params[0] = 99, "unit 0: parameter 99");
    OUT_OF_RANGE(plan->inputs[0].buffer = PLACE_NONE, "input 0");
    OUT_OF_RANGE(plan->module_buffers[0].buffer = PLACE_NONE, "module buffer 0");
    OUT_OF_RANGE(plan->inputs[1].values.kind = INPUT_COUNT, "input 1: kind 9");
    OUT_OF_RANGE(plan->module_buffers[0].values.kind = VALUES_COUNT, "module buffer 0: kind 6");
    OUT_OF_RANGE(plan->module_buffers[0].values.kind = VALUES_RANGE, "a range is int64");
    OUT_OF_RANGE(plan->module_buffers[0].values.kind = VALUES_NUMBER,
                 "a number is fp32, bf16, fp16 or int64");
    OUT_OF_RANGE(plan->module_buffers[0].values.layout = ROPE_LAYOUT_COUNT,
                 "RoPE of layout 4, scaling 0");
    OUT_OF_RANGE(plan->module_buffers[0].values.rope.scaling = ROPE_SCALING_COUNT,
                 "RoPE of layout 0, scaling 7");
    OUT_OF_RANGE(plan->params[2].init.kind = INIT_COUNT, "parameter 2: init 5");
    OUT_OF_RANGE(plan->params[0].init.number = (double)NAN, "parameter 0: init spreads over nan");
    OUT_OF_RANGE((plan->params[2].init = (struct param_init){INIT_NORMAL, 1, 0.05}),
                 "parameter 2: init of std 1 is cut at 0.05");
    OUT_OF_RANGE(plan->rank = plan->world, "rank 4 of 4 ranks");
    OUT_OF_RANGE(plan->event_count = UINT32_MAX, "events");
#undef OUT_OF_RANGE
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_every_kind_of_job_are_right),
        cmocka_unit_test(a_missing_alloc_is_found_at_the_first_use),
        cmocka_unit_test(a_second_alloc_is_found),
        cmocka_unit_test(a_second_free_is_found),
        cmocka_unit_test(an_early_free_is_found_at_the_next_use),
        cmocka_unit_test(parameters_are_read_only_while_they_are_gathered),
        cmocka_unit_test(a_missing_free_is_found_at_the_end),
        cmocka_unit_test(a_resident_buffer_is_there_between_steps),
        cmocka_unit_test(the_first_step_is_not_enough),
        cmocka_unit_test(a_carried_buffer_goes_from_step_to_step),
        cmocka_unit_test(a_wait_needs_its_record_before_it),
        cmocka_unit_test(marks_come_in_order),
        cmocka_unit_test(a_collective_needs_a_group_and_others_have_none),
        cmocka_unit_test(an_operand_lies_within_its_buffer),
        cmocka_unit_test(what_a_run_fills_is_there),
        cmocka_unit_test(every_index_is_checked),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
