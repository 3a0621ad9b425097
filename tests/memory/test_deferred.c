/* test_deferred.c - when a block comes back that another lane still used: small plans made by hand,
 * and random ones against a second, slower way to find it out. */
#include "memory/deferred.h"
#include "memory/replay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((uint64_t)1048576)

enum { SIDE = LANE_HOST + 1, OTHER, LANES }; /* lanes beside the compute lane, the pool of all */
enum { BLOCK_MIB = 30 };                     /* more than 20: a segment of its own */
enum { B };                                  /* the buffer that a plan made by hand is about */

/* ---- plans ---- */

static struct plan *new_plan(void)
{
    static const char *const labels[] = {"empty"};
    static const char *const kinds[] = {""};
    struct plan *plan = plan_new();
    plan->labels = labels;
    plan->label_count = 1;
    plan->kinds = kinds;
    plan->kind_count = 1;
    plan_add_lane(plan, "side", false);
    plan_add_lane(plan, "other", false);
    plan->event_count = 8;
    plan->world = 1;
    return plan;
}

static uint32_t buffer_of(struct plan *plan, uint8_t pool, uint64_t bytes)
{
    return plan_add_buffer(plan, &(struct buffer){.bytes = bytes,
                                                  .pool = pool,
                                                  .category = CATEGORY_ACTIVATION,
                                                  .shape = SHAPE((uint32_t)(bytes / 4))});
}

static uint32_t add(struct plan *plan, enum plan_op op, uint8_t lane, uint32_t arg)
{
    return plan_add_instruction(
        plan, &(struct plan_instruction){
                  .op = (uint8_t)op, .lane = lane, .group = PLAN_NO_GROUP, .arg = arg});
}

/* A kernel on a lane that writes a buffer. */
static uint32_t use(struct plan *plan, uint8_t lane, uint32_t buffer)
{
    const struct operand whole = plan_whole_buffer(plan, buffer);
    return add(plan, PLAN_COMPUTE, lane, plan_add_kernel(plan, WORK_FILL, 0, 0, NULL, 1, &whole));
}

static void mark(struct plan *plan, enum plan_mark mark)
{
    add(plan, PLAN_MARK, LANE_HOST, mark);
}

static void begin(struct plan *plan)
{
    mark(plan, PLAN_MARK_START);
    mark(plan, PLAN_MARK_MICRO_BATCH);
}

static void end(struct plan *plan)
{
    struct err err = {0};
    mark(plan, PLAN_MARK_AFTER_FORWARD);
    mark(plan, PLAN_MARK_AFTER_BACKWARD);
    mark(plan, PLAN_MARK_OPTIMIZER);
    mark(plan, PLAN_MARK_AFTER_STEP);
    mark(plan, PLAN_MARK_END);
    if (plan_verify(plan, &err) != ERR_OK)
        fail_msg("%s", err.text);
}

/* ---- walking one as whoever has an allocator does ---- */

struct walk {
    const struct plan *plan;
    struct allocator *allocator;
    struct deferred *deferred;
    struct allocator_block *block[64];
    bool first_step;
};

static struct walk walk_of(const struct plan *plan)
{
    struct walk w = {.plan = plan, .first_step = true};
    w.allocator = allocator_new(&(struct allocator_settings){0});
    w.deferred = deferred_new(plan, w.allocator, NULL);
    return w;
}

static void walk_end(struct walk *w)
{
    deferred_close(w->deferred);
    allocator_free(w->allocator);
}

static void step_over(struct walk *w, uint32_t id)
{
    const struct plan_instruction *in = &w->plan->instructions[id];
    const struct buffer *buffer = &w->plan->buffers[in->arg];
    if (!w->first_step && (in->flags & PLAN_FIRST_STEP))
        return;
    if (in->op == PLAN_ALLOC)
        assert_int_equal(
            allocator_alloc(w->allocator, buffer->bytes, buffer->pool, &w->block[in->arg], NULL),
            ERR_OK);
    else if (in->op == PLAN_FREE && !plan_free_is_deferred(w->plan, in))
        allocator_free_block(w->allocator, w->block[in->arg]);
    else if (in->op == PLAN_FREE)
        deferred_free(w->deferred, id, w->first_step, w->block[in->arg]);
    else if (in->op == PLAN_RECORD || in->op == PLAN_WAIT || in->op == PLAN_USE ||
             plan_op_is_collective((enum plan_op)in->op))
        deferred_pass(w->deferred, id);
    assert_int_equal(allocator_check(w->allocator, NULL), ERR_OK);
}

struct look_up {
    uint64_t address;
    bool pending;
};

static void note_pending(void *context, const struct allocator_span *span)
{
    struct look_up *look_up = context;
    if (span->address == look_up->address)
        look_up->pending = span->pending;
}

/* Whether the block at an address has been freed and is not back. */
static bool is_pending(const struct walk *w, uint64_t address)
{
    struct look_up look_up = {.address = address};
    allocator_visit(w->allocator, note_pending, &look_up);
    return look_up.pending;
}

/* Walks the plan, whose buffer B is freed once, and returns the instruction at which its block came
 * back: PLACE_NONE: not before the step's end. */
static uint32_t when_back(const struct plan *plan)
{
    struct walk w = walk_of(plan);
    uint64_t address = 0;
    uint32_t back = PLACE_NONE;
    bool freed = false;
    for (uint32_t id = 0; id < plan->instruction_count; id++) {
        const struct plan_instruction *in = &plan->instructions[id];
        step_over(&w, id);
        if (in->op == PLAN_ALLOC && in->arg == B)
            address = allocator_block_address(w.block[B]);
        freed |= in->op == PLAN_FREE && in->arg == B;
        if (freed && back == PLACE_NONE && !is_pending(&w, address))
            back = id;
    }
    deferred_end_step(w.deferred);
    assert_false(is_pending(&w, address));
    walk_end(&w);
    return back;
}

/* ---- by hand ---- */

/* A plan in which B is born in a lane's pool and a kernel of a lane has used it. */
static struct plan *plan_with_use(uint8_t pool, uint8_t lane)
{
    struct plan *plan = new_plan();
    buffer_of(plan, pool, BLOCK_MIB * MIB);
    add(plan, PLAN_ALLOC, pool, B);
    use(plan, lane, B);
    return plan;
}

/* Frees the plan. */
static void expect_back(struct plan *plan, uint32_t id)
{
    assert_int_equal(when_back(plan), id);
    plan_free(plan);
}

static void a_block_is_gone_at_once_and_comes_back_with_a_wait(void **state)
{
    (void)state;
    struct plan *plan = plan_with_use(LANE_COMPUTE, SIDE);
    const uint32_t freed = add(plan, PLAN_FREE, SIDE, B);
    add(plan, PLAN_RECORD, SIDE, 0);
    const uint32_t waited = add(plan, PLAN_WAIT, LANE_COMPUTE, 0);

    struct walk w = walk_of(plan);
    for (uint32_t id = 0; id <= freed; id++)
        step_over(&w, id);
    const uint64_t address = allocator_block_address(w.block[B]);
    const struct allocator_stats *stats = allocator_stats(w.allocator);
    struct allocator_block *meanwhile = NULL, *after = NULL;
    assert_int_equal(stats->allocated_bytes, 0);
    assert_int_equal(stats->requested_bytes, BLOCK_MIB * MIB); /* as torch.cuda counts them */
    allocator_alloc(w.allocator, BLOCK_MIB * MIB, LANE_COMPUTE, &meanwhile, NULL);
    assert_true(allocator_block_address(meanwhile) != address);
    assert_int_equal(stats->reserved_bytes, 2 * BLOCK_MIB * MIB);
    for (uint32_t id = freed + 1; id <= waited; id++)
        step_over(&w, id);
    allocator_alloc(w.allocator, BLOCK_MIB * MIB, LANE_COMPUTE, &after, NULL);
    assert_true(allocator_block_address(after) == address);
    assert_int_equal(stats->reserved_bytes, 2 * BLOCK_MIB * MIB);
    walk_end(&w);
    plan_free(plan);
}

static void a_free_on_the_pools_lane_is_done_at_once(void **state)
{
    (void)state;
    struct plan *plan = plan_with_use(SIDE, SIDE);
    const uint32_t freed = add(plan, PLAN_FREE, SIDE, B);
    add(plan, PLAN_RECORD, SIDE, 0);
    expect_back(plan, freed);
}

/* e1 is before the kernel that uses the block, e2 behind it. */
static void only_an_event_behind_the_last_use_counts(void **state)
{
    (void)state;
    for (int before_the_free = 0; before_the_free < 2; before_the_free++) {
        struct plan *plan = new_plan();
        const uint32_t b = buffer_of(plan, LANE_COMPUTE, MIB);
        add(plan, PLAN_ALLOC, LANE_COMPUTE, b);
        add(plan, PLAN_RECORD, SIDE, 1);
        use(plan, SIDE, b);
        if (before_the_free)
            add(plan, PLAN_RECORD, SIDE, 2);
        add(plan, PLAN_FREE, SIDE, b);
        add(plan, PLAN_WAIT, LANE_COMPUTE, 1);
        if (!before_the_free)
            add(plan, PLAN_RECORD, SIDE, 2);
        add(plan, PLAN_WAIT, OTHER, 2); /* another lane than the pool's */
        const uint32_t waited = add(plan, PLAN_WAIT, LANE_COMPUTE, 2);
        add(plan, PLAN_WAIT, LANE_COMPUTE, 2);
        expect_back(plan, waited);
    }
}

static void waiting_for_a_lane_that_waited_is_enough(void **state)
{
    (void)state;
    struct plan *plan = plan_with_use(LANE_COMPUTE, SIDE);
    add(plan, PLAN_FREE, SIDE, B);
    add(plan, PLAN_RECORD, OTHER, 2); /* too early: before it waited */
    add(plan, PLAN_RECORD, SIDE, 1);
    add(plan, PLAN_WAIT, OTHER, 1);
    add(plan, PLAN_WAIT, LANE_COMPUTE, 2);
    add(plan, PLAN_RECORD, OTHER, 3);
    const uint32_t waited = add(plan, PLAN_WAIT, LANE_COMPUTE, 3);
    expect_back(plan, waited);
}

/* What the host issues is then behind it, on whatever lane. */
static void a_wait_of_the_host_is_every_lanes(void **state)
{
    (void)state;
    struct plan *plan = plan_with_use(SIDE, LANE_COMPUTE);
    add(plan, PLAN_RECORD, LANE_COMPUTE, 0);
    add(plan, PLAN_FREE, LANE_COMPUTE, B);
    add(plan, PLAN_WAIT, OTHER, 0);
    const uint32_t waited = add(plan, PLAN_WAIT, LANE_HOST, 0);
    expect_back(plan, waited);
}

static uint32_t collect(struct plan *plan, uint8_t lane, uint8_t group, uint32_t buffer)
{
    const struct operand whole = plan_whole_buffer(plan, buffer);
    const uint32_t id = add(plan, PLAN_ALL_REDUCE, lane,
                            plan_add_kernel(plan, WORK_ALL_REDUCE_SUM, 0, 1, &whole, 1, &whole));
    plan->instructions[id].group = group;
    return id;
}

/* The one that follows in the group is behind it; one of another group is not. */
static void collectives_of_a_group_are_in_order(void **state)
{
    (void)state;
    for (uint8_t same = 0; same < 2; same++) {
        struct plan *plan = new_plan();
        const uint32_t b = buffer_of(plan, LANE_COMPUTE, MIB);
        const uint32_t other = buffer_of(plan, OTHER, MIB);
        plan_add_group(plan, "shard", GROUP_SHARD, 2, 1);
        plan_add_group(plan, "replicate", GROUP_REPLICATE, 2, 2);
        plan->world = 4;
        add(plan, PLAN_ALLOC, LANE_COMPUTE, b);
        add(plan, PLAN_ALLOC, OTHER, other);
        collect(plan, SIDE, 0, b);
        use(plan, SIDE, other); /* of something else */
        add(plan, PLAN_FREE, SIDE, b);
        collect(plan, OTHER, same ? 0 : 1, other);
        add(plan, PLAN_RECORD, OTHER, 0);
        const uint32_t waited = add(plan, PLAN_WAIT, LANE_COMPUTE, 0);
        expect_back(plan, same ? waited : PLACE_NONE);
    }
}

static void a_wait_before_the_free_counts_too(void **state)
{
    (void)state;
    struct plan *plan = plan_with_use(LANE_COMPUTE, SIDE);
    add(plan, PLAN_RECORD, SIDE, 0);
    add(plan, PLAN_WAIT, LANE_COMPUTE, 0);
    const uint32_t freed = add(plan, PLAN_FREE, SIDE, B);
    expect_back(plan, freed);
}

static void a_lane_that_did_nothing_keeps_nothing(void **state)
{
    (void)state;
    struct plan *plan = plan_with_use(LANE_COMPUTE, LANE_COMPUTE);
    const uint32_t freed = add(plan, PLAN_FREE, SIDE, B);
    expect_back(plan, freed);
}

static void the_end_of_a_step_brings_back_what_nobody_waited_for(void **state)
{
    (void)state;
    struct plan *plan = plan_with_use(LANE_COMPUTE, SIDE);
    add(plan, PLAN_FREE, SIDE, B);
    add(plan, PLAN_RECORD, SIDE, 0);
    expect_back(plan, PLACE_NONE); /* and then it is back */
}

/* The kernel of the first step alone is what the event has to be behind, in that step alone. */
static void a_kernel_of_the_first_step_counts_in_the_first_step(void **state)
{
    (void)state;
    struct plan *plan = plan_with_use(LANE_COMPUTE, SIDE);
    add(plan, PLAN_RECORD, SIDE, 0);
    const uint32_t once = use(plan, SIDE, B);
    plan->instructions[once].flags = PLAN_FIRST_STEP;
    const uint32_t freed = add(plan, PLAN_FREE, SIDE, B);
    const uint32_t waited = add(plan, PLAN_WAIT, LANE_COMPUTE, 0);
    struct walk w = walk_of(plan);
    for (int step = 0; step < 2; step++) {
        w.first_step = step == 0;
        for (uint32_t id = 0; id <= freed; id++)
            step_over(&w, id);
        const uint64_t address = allocator_block_address(w.block[B]);
        assert_true(is_pending(&w, address));
        step_over(&w, waited);
        assert_int_equal(is_pending(&w, address), step == 0);
        deferred_end_step(w.deferred);
        assert_false(is_pending(&w, address));
    }
    walk_end(&w);
    plan_free(plan);
}

/* The free names one lane, a `use` before it another: both have to be done, in any order. */
static void lanes_that_were_named_before_are_waited_for_too(void **state)
{
    (void)state;
    for (int other_first = 0; other_first < 2; other_first++) {
        struct plan *plan = plan_with_use(LANE_COMPUTE, SIDE);
        add(plan, PLAN_USE, OTHER, B);
        use(plan, OTHER, B);
        add(plan, PLAN_FREE, SIDE, B);
        add(plan, PLAN_RECORD, SIDE, 0);
        add(plan, PLAN_RECORD, OTHER, 1);
        add(plan, PLAN_WAIT, LANE_COMPUTE, other_first ? 1 : 0);
        const uint32_t waited = add(plan, PLAN_WAIT, LANE_COMPUTE, other_first ? 0 : 1);
        expect_back(plan, waited);
    }
}

static void a_named_lane_is_forgotten_with_the_free(void **state)
{
    (void)state;
    struct plan *plan = plan_with_use(LANE_COMPUTE, SIDE);
    add(plan, PLAN_USE, OTHER, B);
    add(plan, PLAN_FREE, SIDE, B);
    add(plan, PLAN_ALLOC, LANE_COMPUTE, B);
    use(plan, OTHER, B); /* which nobody says this time */
    const uint32_t freed = add(plan, PLAN_FREE, SIDE, B);
    struct walk w = walk_of(plan);
    for (uint32_t id = 0; id < freed; id++)
        step_over(&w, id);
    const uint64_t address = allocator_block_address(w.block[B]);
    step_over(&w, freed);
    assert_false(is_pending(&w, address));
    walk_end(&w);
    plan_free(plan);
}

/* A free that no lane keeps would leave them out. */
static void a_free_of_what_was_named_has_to_wait(void **state)
{
    static const struct {
        uint8_t pool, freed_on;
        const char *text;
    } cases[] = {{LANE_COMPUTE, LANE_COMPUTE, "is freed as if no other stream used it"},
                 {LANE_HOST, LANE_HOST, "is host memory, which no stream keeps"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan *plan = new_plan();
        struct err err = {0};
        plan->event_count = 0;
        begin(plan);
        buffer_of(plan, cases[i].pool, MIB);
        add(plan, PLAN_ALLOC, cases[i].pool, B);
        add(plan, PLAN_USE, SIDE, B);
        add(plan, PLAN_FREE, cases[i].freed_on, B);
        assert_int_not_equal(plan_verify(plan, &err), ERR_OK);
        if (!strstr(err.text, cases[i].text))
            fail_msg("%s", err.text);
        plan_free(plan);
    }
}

/* ---- random plans ---- */

enum { LENGTH = 80, BUFFERS = 6, EVENTS = 5 };

static uint32_t draw(uint32_t *random, uint32_t bound)
{
    *random = *random * 1664525 + 1013904223;
    return (*random >> 8) % bound;
}

/* The lanes that are known to be behind instruction `from` once instruction `to` is issued: set by
 * set, forward from it. */
static unsigned lanes_behind(const struct plan *plan, uint32_t from, uint32_t to)
{
    unsigned lanes = 1U << plan->instructions[from].lane, event[EVENTS] = {0};
    for (uint32_t id = from + 1; id <= to; id++) {
        const struct plan_instruction *in = &plan->instructions[id];
        if (in->op == PLAN_RECORD)
            event[in->arg] = lanes >> in->lane & 1 ? UINT32_MAX : 0;
        else if (in->op == PLAN_WAIT && event[in->arg])
            lanes |= in->lane == LANE_HOST ? UINT32_MAX : 1U << in->lane;
    }
    return lanes;
}

static bool should_wait(const struct plan *plan, uint32_t freed, uint32_t now)
{
    const struct plan_instruction *free = &plan->instructions[freed];
    const uint8_t pool = plan->buffers[free->arg].pool;
    unsigned lanes = 1U << free->lane;
    uint32_t born = freed;
    bool waits = false;
    while (plan->instructions[--born].op != PLAN_ALLOC || plan->instructions[born].arg != free->arg)
        if (plan->instructions[born].op == PLAN_USE && plan->instructions[born].arg == free->arg)
            lanes |= 1U << plan->instructions[born].lane;
    for (uint32_t id = born; id < freed && free->lane != pool; id++)
        if (plan->instructions[id].op == PLAN_COMPUTE && lanes >> plan->instructions[id].lane & 1 &&
            plan_kernel(plan, plan->instructions[id].arg)->operands[0].place == free->arg)
            waits |= !(lanes_behind(plan, id, now) >> pool & 1);
    return waits;
}

static uint8_t some_lane(uint32_t *random)
{
    static const uint8_t lanes[] = {LANE_COMPUTE, SIDE, OTHER};
    return lanes[draw(random, 3)];
}

static struct plan *random_plan(uint32_t seed)
{
    struct plan *plan = new_plan();
    uint32_t random = seed, recorded = 0;
    bool alive[BUFFERS] = {0}, named[BUFFERS] = {0};
    for (uint32_t b = 0; b < BUFFERS; b++)
        buffer_of(plan, some_lane(&random), (b + 1) * MIB);
    while (plan->instruction_count < LENGTH) {
        const uint32_t b = draw(&random, BUFFERS), e = draw(&random, EVENTS);
        const uint8_t lane = some_lane(&random);
        const uint32_t what = draw(&random, 5);
        if (what == 0 && !alive[b])
            add(plan, PLAN_ALLOC, plan->buffers[b].pool, b);
        else if (what == 0 && named[b])
            add(plan, PLAN_FREE, plan->buffers[b].pool == SIDE ? OTHER : SIDE, b);
        else if (what == 0)
            add(plan, PLAN_FREE, lane, b);
        else if (what == 1)
            use(plan, lane, b);
        else if (what < 4 && !(recorded >> e & 1))
            add(plan, PLAN_RECORD, lane, e);
        else if (what < 4)
            add(plan, PLAN_WAIT, draw(&random, 8) == 0 ? LANE_HOST : lane, e);
        else if (alive[b])
            add(plan, PLAN_USE, lane, b);
        named[b] = what == 4 ? alive[b] : named[b] && what != 0;
        alive[b] ^= what == 0;
        recorded ^= what > 1 && what < 4 ? 1U << e : 0; /* to be recorded anew after a wait */
    }
    return plan;
}

static void random_plans_give_back_exactly_what_is_over(void **state)
{
    (void)state;
    uint32_t waited = 0, back = 0;
    for (uint32_t seed = 0; seed < 2000; seed++) {
        struct plan *plan = random_plan(seed);
        struct walk w = walk_of(plan);
        uint32_t frees = 0, freed[LENGTH];
        uint64_t address[LENGTH];
        bool over[LENGTH] = {0};
        for (uint32_t id = 0; id < LENGTH; id++) {
            const struct plan_instruction *in = &plan->instructions[id];
            if (in->op == PLAN_FREE) {
                freed[frees] = id;
                address[frees++] = allocator_block_address(w.block[in->arg]);
            }
            step_over(&w, id);
            for (uint32_t f = 0; f < frees; f++) {
                const bool waits = !over[f] && should_wait(plan, freed[f], id);
                back += !waits && !over[f] && id > freed[f];
                over[f] = !waits;
                waited += waits;
                if (waits && !is_pending(&w, address[f]))
                    fail_msg("seed %u: %u gives back what %u freed", seed, id, freed[f]);
                if (!waits && id >= freed[f] && is_pending(&w, address[f])) {
                    bool other = false; /* a later free of the same memory */
                    for (uint32_t g = f + 1; g < frees; g++)
                        other |= address[g] == address[f];
                    if (!other)
                        fail_msg("seed %u: %u keeps what %u freed", seed, id, freed[f]);
                }
            }
        }
        walk_end(&w);
        plan_free(plan);
    }
    assert_true(waited > 5000 && back > 300); /* there was something to see */
}

/* ---- in a replay ---- */

struct seen {
    uint32_t instruction, requested_at, completed_at;
    bool first_step;
};

static void note_instruction(void *context, const struct plan *plan, uint32_t instruction,
                             bool first_step)
{
    struct seen *seen = context;
    (void)plan;
    seen->instruction = instruction;
    seen->first_step = first_step;
}

static void note_action(void *context, enum allocator_action action, uint64_t address,
                        uint64_t bytes, int stream)
{
    struct seen *seen = context;
    (void)address;
    (void)stream;
    if (bytes != BLOCK_MIB * MIB || seen->first_step)
        return;
    if (action == ALLOCATOR_FREE_REQUESTED)
        seen->requested_at = seen->instruction;
    if (action == ALLOCATOR_FREE_COMPLETED)
        seen->completed_at = seen->instruction;
}

/* One block of 30 MiB used by the side lane, freed; then another of 32 MiB; the wait; then one of
 * 28 MiB, which may take the first one's place. */
static struct plan *three_buffers(uint8_t freed_on, uint32_t *freed, uint32_t *waited)
{
    struct plan *plan = new_plan();
    const uint32_t b = buffer_of(plan, LANE_COMPUTE, BLOCK_MIB * MIB);
    const uint32_t c = buffer_of(plan, LANE_COMPUTE, (BLOCK_MIB + 2) * MIB);
    const uint32_t d = buffer_of(plan, LANE_COMPUTE, (BLOCK_MIB - 2) * MIB);
    begin(plan);
    add(plan, PLAN_ALLOC, LANE_COMPUTE, b);
    use(plan, SIDE, b);
    *freed = add(plan, PLAN_FREE, freed_on, b);
    add(plan, PLAN_ALLOC, LANE_COMPUTE, d);
    add(plan, PLAN_FREE, LANE_COMPUTE, d);
    add(plan, PLAN_ALLOC, LANE_COMPUTE, c);
    add(plan, PLAN_RECORD, SIDE, 0);
    *waited = add(plan, PLAN_WAIT, LANE_COMPUTE, 0);
    add(plan, PLAN_ALLOC, LANE_COMPUTE, d);
    add(plan, PLAN_FREE, LANE_COMPUTE, c);
    add(plan, PLAN_FREE, LANE_COMPUTE, d);
    end(plan);
    return plan;
}

/* A replay that notes when the block of 30 MiB is freed and when it comes back. */
static struct memory_options noting(struct seen *seen, uint64_t capacity_bytes)
{
    return (struct memory_options){
        .allocator = {.on_action = note_action,
                      .action_context = seen,
                      .capacity_bytes = capacity_bytes},
        .before = note_instruction,
        .hook_context = seen,
    };
}

static void a_replay_reserves_for_what_is_in_flight(void **state)
{
    (void)state;
    for (int deferred = 0; deferred < 2; deferred++) {
        uint32_t freed, waited;
        struct plan *plan = three_buffers(deferred ? SIDE : LANE_COMPUTE, &freed, &waited);
        struct seen seen = {0};
        struct memory memory;
        const struct memory_options options = noting(&seen, 0);
        assert_int_equal(memory_replay(plan, &options, NULL, NULL, &memory, NULL), ERR_OK);
        assert_int_equal(seen.requested_at, freed);
        assert_int_equal(seen.completed_at, deferred ? waited : freed);
        /* Live together are c and d, in both; a deferred b leaves no room for the first d. */
        assert_int_equal(memory.requested.bytes, 2 * BLOCK_MIB * MIB);
        assert_int_equal(memory.allocated.bytes, 2 * BLOCK_MIB * MIB);
        assert_int_equal(memory.reserved_bytes, (deferred ? 90 : 62) * MIB);
        plan_free(plan);
    }
}

/* With room for two of the three: PyTorch waits for the events, then releases what is cached. */
static void a_full_device_waits_for_what_is_in_flight(void **state)
{
    (void)state;
    uint32_t freed, waited;
    struct plan *plan = three_buffers(SIDE, &freed, &waited);
    struct seen seen = {0};
    struct memory memory;
    const struct memory_options options = noting(&seen, (2 * BLOCK_MIB + 2) * MIB);
    assert_int_equal(memory_replay(plan, &options, NULL, NULL, &memory, NULL), ERR_OK);
    assert_false(memory.out_of_memory);
    assert_true(seen.completed_at > freed && seen.completed_at < waited);
    assert_true(memory.reserved_bytes <= options.allocator.capacity_bytes);
    plan_free(plan);
}

/* ---- what a plan may say ---- */

static void a_buffer_in_flight_may_be_allocated_again_as_another_block(void **state)
{
    (void)state;
    struct plan *plan = new_plan();
    const uint32_t b = buffer_of(plan, LANE_COMPUTE, BLOCK_MIB * MIB);
    begin(plan);
    for (int i = 0; i < 2; i++) {
        add(plan, PLAN_ALLOC, LANE_COMPUTE, b);
        use(plan, SIDE, b);
        add(plan, PLAN_FREE, SIDE, b);
    }
    end(plan);
    struct memory memory;
    const struct memory_options options = {0};
    assert_int_equal(memory_replay(plan, &options, NULL, NULL, &memory, NULL), ERR_OK);
    assert_int_equal(memory.requested.bytes, BLOCK_MIB * MIB);
    assert_int_equal(memory.reserved_bytes, 2 * BLOCK_MIB * MIB);
    plan_free(plan);
}

static void host_memory_is_freed_on_its_own_lane(void **state)
{
    (void)state;
    struct plan *plan = new_plan();
    struct err err = {0};
    const uint32_t b = buffer_of(plan, LANE_HOST, MIB);
    plan->event_count = 0;
    begin(plan);
    add(plan, PLAN_ALLOC, LANE_HOST, b);
    add(plan, PLAN_FREE, SIDE, b);
    assert_int_equal(plan_verify(plan, &err), ERR_INTERNAL);
    assert_non_null(strstr(err.text, "host memory"));
    assert_non_null(strstr(err.text, "side"));
    plan_free(plan);
}

/* With a clock waits show nothing: B is freed at 2 s, its lane is done with it at `done_s`, and the
 * next alloc is at 4 s. Returns the segments that two blocks of its size took. */
static uint64_t segments_by_clock(double done_s)
{
    struct plan *plan = new_plan();
    buffer_of(plan, LANE_COMPUTE, BLOCK_MIB * MIB);
    buffer_of(plan, LANE_COMPUTE, BLOCK_MIB * MIB);
    begin(plan);
    add(plan, PLAN_ALLOC, LANE_COMPUTE, B);
    use(plan, SIDE, B);
    const uint32_t record = add(plan, PLAN_RECORD, SIDE, 0);
    const uint32_t freed = add(plan, PLAN_FREE, SIDE, B);
    add(plan, PLAN_WAIT, LANE_COMPUTE, 0);
    const uint32_t again = add(plan, PLAN_ALLOC, LANE_COMPUTE, B + 1);
    add(plan, PLAN_FREE, LANE_COMPUTE, B + 1);
    end(plan);
    double host_s[32] = {0}, done[32] = {0};
    assert_true(plan->instruction_count <= 32 && record < freed);
    host_s[freed] = 2;
    host_s[again] = 4;
    done[freed] = done_s;
    const struct deferred_clock clock = {host_s, done};
    const struct memory_options options = {.clock = &clock};
    struct memory memory;
    assert_int_equal(memory_replay(plan, &options, NULL, NULL, &memory, NULL), ERR_OK);
    plan_free(plan);
    return memory.reserved_bytes / (BLOCK_MIB * MIB);
}

static void with_a_clock_a_block_is_back_when_its_event_has_passed(void **state)
{
    (void)state;
    assert_int_equal(segments_by_clock(1), 1);
    assert_int_equal(segments_by_clock(4), 1);
    assert_int_equal(segments_by_clock(4.5), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_a_clock_a_block_is_back_when_its_event_has_passed),
        cmocka_unit_test(a_block_is_gone_at_once_and_comes_back_with_a_wait),
        cmocka_unit_test(a_free_on_the_pools_lane_is_done_at_once),
        cmocka_unit_test(only_an_event_behind_the_last_use_counts),
        cmocka_unit_test(waiting_for_a_lane_that_waited_is_enough),
        cmocka_unit_test(a_wait_of_the_host_is_every_lanes),
        cmocka_unit_test(collectives_of_a_group_are_in_order),
        cmocka_unit_test(a_wait_before_the_free_counts_too),
        cmocka_unit_test(a_lane_that_did_nothing_keeps_nothing),
        cmocka_unit_test(the_end_of_a_step_brings_back_what_nobody_waited_for),
        cmocka_unit_test(a_kernel_of_the_first_step_counts_in_the_first_step),
        cmocka_unit_test(lanes_that_were_named_before_are_waited_for_too),
        cmocka_unit_test(a_named_lane_is_forgotten_with_the_free),
        cmocka_unit_test(a_free_of_what_was_named_has_to_wait),
        cmocka_unit_test(random_plans_give_back_exactly_what_is_over),
        cmocka_unit_test(a_replay_reserves_for_what_is_in_flight),
        cmocka_unit_test(a_full_device_waits_for_what_is_in_flight),
        cmocka_unit_test(a_buffer_in_flight_may_be_allocated_again_as_another_block),
        cmocka_unit_test(host_memory_is_freed_on_its_own_lane),
    };
    return cmocka_run_group_tests_name("deferred", tests, NULL, NULL);
}
