/* test_order.c - lanes that share memory are kept apart: in every plan we make, and not where a
 * record or a wait is missing.
 *
 * Each record and each wait of real plans is taken away. What plan_verify does not miss is said to
 * be redundant, which is held to a second opinion: there, what is over before a kernel is a set of
 * kernels, nothing is forgotten, and of every two accesses each is looked at. */
#include "plan/order.h"
#include "tests/support/small_jobs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the second opinion: sets of kernels ---- */

enum { SET_STEPS = 2, SET_WORDS = 192, SET_KERNELS = 64 * SET_WORDS };

struct set {
    uint64_t word[SET_WORDS];
};

struct touch { /* of some bytes of a buffer, by a kernel */
    uint64_t begin, end;
    uint32_t kernel;
    bool writes;
};

struct memory_of { /* a buffer */
    struct touch *touches;
    uint32_t count, cap;
    struct set before; /* who had its memory before */
};

struct opinion {
    const struct plan *plan;
    struct set lanes[LANES_MOST], host, *events, *groups;
    struct set left[LANES_MOST]; /* by pool: who used what was freed */
    uint32_t last[LANES_MOST];   /* kernels of each lane + 1 */
    uint8_t lane_of[SET_KERNELS];
    struct memory_of *memory; /* (buffers) */
    uint32_t kernels;
    bool apart; /* so far */
};

static void include(struct set *into, const struct set *from)
{
    for (int i = 0; i < SET_WORDS; i++)
        into->word[i] |= from->word[i];
}

static void put(struct set *set, uint32_t kernel)
{
    set->word[kernel / 64] |= UINT64_C(1) << kernel % 64;
}

static bool has(const struct set *set, uint32_t kernel)
{
    return set->word[kernel / 64] >> kernel % 64 & 1;
}

static bool is_part(const struct set *part, const struct set *of)
{
    for (int i = 0; i < SET_WORDS; i++)
        if (part->word[i] & ~of->word[i])
            return false;
    return true;
}

static void touch(struct opinion *o, uint32_t kernel, uint32_t buffer, uint64_t begin, uint64_t end,
                  bool writes)
{
    struct memory_of *memory = &o->memory[buffer];
    const struct set *over = &o->lanes[o->lane_of[kernel]];
    for (uint32_t i = 0; i < memory->count; i++) {
        const struct touch *other = &memory->touches[i];
        if (other->kernel != kernel && other->begin < end && begin < other->end &&
            (writes || other->writes))
            o->apart &= has(over, other->kernel);
    }
    o->apart &= is_part(&memory->before, over);
    ARRAY_GROW(memory->touches, memory->count, memory->cap);
    memory->touches[memory->count++] = (struct touch){begin, end, kernel, writes};
}

static uint32_t new_kernel(struct opinion *o, uint8_t lane)
{
    assert_true(o->kernels < SET_KERNELS);
    o->lane_of[o->kernels] = lane;
    include(&o->lanes[lane], &o->host);
    return o->kernels++;
}

static void end_kernel(struct opinion *o, uint32_t kernel)
{
    put(&o->lanes[o->lane_of[kernel]], kernel);
    o->last[o->lane_of[kernel]] = kernel + 1;
}

static void kernel_of(struct opinion *o, const struct plan_instruction *in)
{
    const struct kernel *kernel = plan_kernel(o->plan, in->arg);
    const uint32_t id = new_kernel(o, in->lane);
    const bool collective = plan_op_is_collective((enum plan_op)in->op);
    if (collective)
        include(&o->lanes[in->lane], &o->groups[in->group]);
    for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++) {
        const struct operand *operand = &kernel->operands[i];
        const struct plan_place place = plan_operand_place(o->plan, in, operand);
        const uint64_t size = dtype_bytes((enum dtype)operand->dtype);
        const uint64_t room = o->plan->buffers[place.buffer].bytes / size,
                       count = shape_elements(&operand->shape);
        const uint64_t row = shape_row(&operand->shape, operand->pitch);
        if (count == 0)
            continue;
        uint64_t end = operand->pitch ? place.offset + (count / row - 1) * operand->pitch + row
                                      : place.offset + count;
        end = end < room ? end : room;
        touch(o, id, place.buffer, place.offset * size, end * size, i >= kernel->ins);
    }
    end_kernel(o, id);
    if (collective)
        o->groups[in->group] = o->lanes[in->lane];
}

static void free_of(struct opinion *o, const struct plan_instruction *in)
{
    struct memory_of *memory = &o->memory[in->arg];
    const uint8_t pool = o->plan->buffers[in->arg].pool;
    for (uint32_t i = 0; i < memory->count; i++) {
        const uint32_t kernel = memory->touches[i].kernel;
        if (in->lane == pool ||
            (o->lane_of[kernel] != in->lane && !has(&o->lanes[in->lane], kernel)))
            put(&o->left[pool], kernel);
    }
    memory->count = 0;
}

static void alloc_of(struct opinion *o, uint32_t buffer)
{
    const uint8_t pool = o->plan->buffers[buffer].pool;
    memset(&o->memory[buffer].before, 0, sizeof(struct set));
    if (pool == LANE_HOST || o->plan->buffers[buffer].bytes == 0)
        return;
    include(&o->memory[buffer].before, &o->left[pool]);
    if (o->last[pool])
        put(&o->memory[buffer].before, o->last[pool] - 1);
}

static void instruction_of(struct opinion *o, const struct plan_instruction *in)
{
    struct set *lane =
        in->op == PLAN_WAIT && in->lane == LANE_HOST ? &o->host : &o->lanes[in->lane];
    include(lane, &o->host);
    if (in->op == PLAN_RECORD)
        o->events[in->arg] = *lane;
    else if (in->op == PLAN_WAIT)
        include(lane, &o->events[in->arg]);
    else if (in->op == PLAN_ALLOC)
        alloc_of(o, in->arg);
    else if (in->op == PLAN_FREE)
        free_of(o, in);
    else if (in->op != PLAN_MARK)
        kernel_of(o, in);
    else if (in->arg == PLAN_MARK_MICRO_BATCH && o->plan->input_count) {
        const uint32_t id = new_kernel(o, LANE_COMPUTE);
        for (uint32_t i = 0; i < o->plan->input_count; i++)
            touch(o, id, o->plan->inputs[i].buffer, 0,
                  o->plan->buffers[o->plan->inputs[i].buffer].bytes, true);
        end_kernel(o, id);
    }
}

/* Whether all that share memory are in order. */
static bool are_apart(const struct plan *plan)
{
    struct opinion *o = xcalloc(1, sizeof *o);
    o->plan = plan;
    o->apart = true;
    o->events = xcalloc(plan->event_count + 1, sizeof *o->events);
    o->groups = xcalloc(plan->group_count + 1, sizeof *o->groups);
    o->memory = xcalloc(plan->buffer_count + 1, sizeof *o->memory);
    for (int step = 0; step < SET_STEPS; step++)
        for (uint32_t i = 0; i < plan->instruction_count; i++)
            if (plan_is_issued(&plan->instructions[i], step == 0))
                instruction_of(o, &plan->instructions[i]);
    const bool apart = o->apart;
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        free(o->memory[b].touches);
    free(o->events);
    free(o->groups);
    free(o->memory);
    free(o);
    return apart;
}

/* ---- the plans ---- */

enum { KINDS = SMALL_JOBS + 9 };

static struct job job_of(int kind)
{
    static const enum system_kind systems[] = {SYSTEM_FSDP1, SYSTEM_DDP,   SYSTEM_ZERO1,
                                               SYSTEM_ZERO2, SYSTEM_ZERO3, SYSTEM_ZERO3};
    struct job job = small_job_of_kind(kind < SMALL_JOBS ? kind : kind & 1);
    const int other = kind - SMALL_JOBS;
    job.config.layers = 2;
    if (other < 0)
        return job;
    job = small_job(ARCH_GPT2);
    job.config.layers = 2;
    job.config.dropout = 0;
    job.strategy.offload = other >= 6; /* of HSDP, in one dtype and in two */
    job.strategy.replicate = other >= 6 ? 2 : 1;
    job.strategy.accumulate = other >= 6 ? 2 : 1;
    if (other == 6)
        job.strategy.reduce = job.strategy.store;
    if (other == 8) { /* units whose turn comes behind the root's end of backward */
        job.strategy.offload = false;
        job.strategy.accumulate_sync = true;
        job.model.frozen = "*wte*,*wpe*,*h.0.*";
    }
    if (other >= 6)
        return job;
    job.strategy.system = systems[other];
    if (other == 1)
        job.model.compute = job.strategy.compute = job.strategy.reduce = DTYPE_FP32;
    if (other >= 2) {
        job.strategy.zero = zero_defaults(other < 4 ? (uint32_t)other - 1 : 3);
        job.strategy.zero.reduce_bucket_size = 5000;
        job.strategy.zero.prefetch_bucket_size = 5000;
        job.strategy.zero.overlap_comm = true;
        job.strategy.zero.hpz_partition_size = other == 5 ? 2 : 1;
    }
    return job;
}

static const char *name_of(int kind)
{
    static char text[64];
    const struct job job = job_of(kind);
    snprintf(text, sizeof text, "kind %d, %s", kind, system_name(job.strategy.system));
    return text;
}

/* ---- tests ---- */

static void plans_keep_lanes_apart(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        const struct job job = job_of(kind);
        struct plan *plan = small_plan_of(&job);
        struct err err = {0};
        if (plan_verify(plan, &err) != ERR_OK)
            fail_msg("%s: %s", name_of(kind), err.text);
        assert_true(are_apart(plan));
        plan_free(plan);
    }
}

static void drop(struct plan *plan, uint32_t id)
{
    plan->instruction_count--;
    memmove(plan->instructions + id, plan->instructions + id + 1,
            (plan->instruction_count - id) * sizeof *plan->instructions);
}

static void put_back(struct plan *plan, uint32_t id, struct plan_instruction instruction)
{
    memmove(plan->instructions + id + 1, plan->instructions + id,
            (plan->instruction_count - id) * sizeof *plan->instructions);
    plan->instructions[id] = instruction;
    plan->instruction_count++;
}

static void a_wait_or_record_taken_away_is_missed(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        const struct job job = job_of(kind);
        struct plan *plan = small_plan_of(&job);
        uint32_t taken = 0, missed = 0;
        for (uint32_t id = 0; id < plan->instruction_count; id++) {
            const struct plan_instruction instruction = plan->instructions[id];
            struct err err = {0};
            if (instruction.op != PLAN_RECORD && instruction.op != PLAN_WAIT)
                continue;
            drop(plan, id);
            taken++;
            const bool found = plan_verify(plan, &err) != ERR_OK;
            const bool by_order = found && strstr(err.text, "nothing keeps them in order");
            missed += found;
            if (!found || by_order)
                assert_int_equal(are_apart(plan), !found);
            put_back(plan, id, instruction);
        }
        printf("note: %s: %u records and waits, %u missed when they are gone, %u redundant\n",
               name_of(kind), taken, missed, taken - missed);
        assert_true(job.strategy.world == 1 || missed > taken / 3);
        plan_free(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_keep_lanes_apart),
        cmocka_unit_test(a_wait_or_record_taken_away_is_missed),
    };
    return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
