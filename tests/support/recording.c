/* recording.c - see recording.h. */
#include "tests/support/recording.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

const struct fault no_fault = {NOTHING, NOTHING, NOTHING, NOTHING, NULL, NULL, NULL, NULL};

static void sample(void *context, const struct plan *plan, const struct memory_point *point)
{
    struct recorder *r = context;
    const uint32_t number = r->samples++;
    (void)plan;
    if (number == r->fault->skip_sample)
        return;
    const double values[] = {point->instruction,
                             (double)point->allocated + (number == r->fault->corrupt ? 512 : 0),
                             (double)point->reserved};
    trace_add_counter(r->trace, r->track, 0, values);
}

struct recorder start_recording(const struct plan *plan, const struct fault *fault,
                                uint32_t lanes[LANES_MOST])
{
    static const char *const series[] = {"instruction", "allocated", "reserved"};
    char name[64];
    struct recorder r = {.fault = fault, .trace = trace_new()};
    snprintf(name, sizeof name, "rank %u (recorded)", plan->rank);
    trace_set_info(r.trace, "clock", fault->clock ? fault->clock : "seconds");
    trace_set_info(r.trace, "step", fault->step ? fault->step : "1");
    trace_set_info(r.trace, "workspace_bytes", "0");
    const uint32_t process =
        trace_add_process(r.trace, plan->rank, fault->process ? fault->process : name);
    for (uint32_t s = 0; s < plan->lane_count; s++)
        lanes[s] = trace_add_lane(r.trace, process, plan->lanes[s].name);
    r.track = trace_add_track(r.trace, process, "memory recorded", 3, series);
    return r;
}

void add_span(struct recorder *r, const struct plan *plan, const uint32_t *lanes, uint32_t id,
              double begin_s, double end_s)
{
    const uint32_t known = id < plan->instruction_count ? id : 0;
    const struct plan_instruction *instruction = &plan->instructions[known];
    const struct trace_event event = {
        .id = id,
        .lane = lanes[instruction->lane],
        .kind = TRACE_SPAN,
        .name = "work",
        .op = r->fault->op ? r->fault->op : plan_op_name((enum plan_op)instruction->op),
        .begin_s = begin_s,
        .end_s = end_s,
    };
    trace_add_event(r->trace, &event);
}

struct trace *record(const struct plan *plan, const struct fault *fault)
{
    uint32_t lanes[LANES_MOST];
    int64_t span = 0;
    const struct memory_options options = {0};
    struct memory memory;
    struct err err = {0};
    struct recorder r = start_recording(plan, fault, lanes);
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *instruction = &plan->instructions[i];
        if (!plan_op_is_kernel((enum plan_op)instruction->op) ||
            (instruction->flags & PLAN_FIRST_STEP))
            continue;
        if (span != fault->skip_span)
            add_span(&r, plan, lanes, i, 1e-6 * (double)span, 1e-6 * (double)(span + 1));
        span++;
    }
    if (fault->stray != NOTHING)
        add_span(&r, plan, lanes, (uint32_t)fault->stray, 0, 1e-6);
    assert_int_equal(memory_replay(plan, &options, sample, &r, &memory, &err), ERR_OK);
    return r.trace;
}

/* ---- the allocator over the program, as many steps as it takes ---- */

static void sample_step(const struct plan *plan, struct allocator *allocator,
                        struct allocator_block **blocks, bool first, struct recorder *r)
{
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *instruction = &plan->instructions[i];
        const enum plan_op op = (enum plan_op)instruction->op;
        if ((op != PLAN_ALLOC && op != PLAN_FREE && op != PLAN_MARK) ||
            !plan_is_issued(instruction, first))
            continue;
        const struct buffer *buffer = op == PLAN_MARK ? NULL : &plan->buffers[instruction->arg];
        if (buffer && buffer->pool != LANE_HOST && buffer->bytes > 0) {
            struct allocator_block **block = &blocks[instruction->arg];
            if (op == PLAN_FREE)
                allocator_free_block(allocator, *block);
            else
                assert_int_equal(
                    allocator_alloc(allocator, buffer->bytes, buffer->pool, block, NULL), ERR_OK);
        }
        const struct allocator_stats *stats = allocator_stats(allocator);
        const double values[] = {i, (double)stats->allocated_bytes, (double)stats->reserved_bytes};
        if (r)
            trace_add_counter(r->trace, r->track, 0, values);
    }
}

static void alloc_initial(const struct plan *plan, struct allocator *allocator,
                          struct allocator_block **blocks)
{
    bool *initial = plan_initial_buffers(plan);
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        const struct buffer *buffer = &plan->buffers[b];
        if (initial[b] && buffer->pool != LANE_HOST && buffer->bytes > 0)
            assert_int_equal(
                allocator_alloc(allocator, buffer->bytes, buffer->pool, &blocks[b], NULL), ERR_OK);
    }
    free(initial);
}

struct trace *record_step(const struct plan *plan, int step)
{
    static const struct allocator_settings settings;
    uint32_t lanes[LANES_MOST];
    char text[16];
    struct fault fault = no_fault;
    snprintf(text, sizeof text, "%d", step);
    fault.step = text;
    struct recorder r = start_recording(plan, &fault, lanes);
    struct allocator *allocator = allocator_new(&settings);
    struct allocator_block **blocks = calloc(plan->buffer_count, sizeof(struct allocator_block *));
    alloc_initial(plan, allocator, blocks);
    for (int s = 0; s <= step; s++)
        sample_step(plan, allocator, blocks, s == 0, s == step ? &r : NULL);
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        if (plan->instructions[i].op == PLAN_COMPUTE)
            add_span(&r, plan, lanes, i, 0, 1);
    free(blocks);
    allocator_free(allocator);
    return r.trace;
}
