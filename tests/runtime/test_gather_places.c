/* test_gather_places.c - why gathers do not go straight into parameters: where a parameter's memory
 * will be, and whether something else has that place when its gather begins. By the allocator's own
 * addresses, of a step of Llama-3.1-8B on 8 GPUs. */
#include "memory/replay.h"
#include "plan/plan_json.h"
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[] = "/tmp/shardplan_gather_places.XXXXXX";

enum { NEVER = INT32_MAX };

struct block { /* from one instruction to another, both of the step that is looked at */
    uint64_t begin, end;
    int64_t from, to; /* from -1: there before; to NEVER: there behind */
};

struct blocks {
    struct block *of;
    uint32_t count, cap;
    int64_t now; /* -1 until the second step begins */
};

static void step_on(void *context, const struct plan *plan, uint32_t instruction, bool first)
{
    struct blocks *all = context;
    (void)plan;
    all->now = first ? -1 : (int64_t)instruction;
}

static void note_block(void *context, enum allocator_action action, uint64_t address,
                       uint64_t bytes, int stream)
{
    struct blocks *all = context;
    (void)stream;
    if (action == ALLOCATOR_ALLOC) {
        ARRAY_GROW(all->of, all->count, all->cap);
        all->of[all->count++] = (struct block){address, address + bytes, all->now, NEVER};
        return;
    }
    for (uint32_t i = all->count; action == ALLOCATOR_FREE_COMPLETED && i-- > 0;)
        if (all->of[i].begin == address) {
            all->of[i].to = all->now;
            return;
        }
}

static bool is_in_use(const struct blocks *all, const struct block *place, int64_t since)
{
    for (const struct block *other = all->of; other < place; other++)
        if (other->begin < place->end && place->begin < other->end && other->to >= since)
            return true;
    return false;
}

static uint32_t buffer_of(const struct plan *plan, const struct plan_instruction *instruction,
                          uint32_t operand)
{
    const struct kernel *kernel = plan_kernel(plan, instruction->arg);
    return plan_operand_place(plan, instruction, &kernel->operands[operand]).buffer;
}

/* The gather that writes what instruction `id` copies out. */
static uint32_t find_gather(const struct plan *plan, uint32_t id)
{
    const uint32_t gathered = buffer_of(plan, &plan->instructions[id], 0);
    while (id-- > 0) {
        const struct plan_instruction *before = &plan->instructions[id];
        if (before->op == PLAN_ALL_GATHER &&
            buffer_of(plan, before, plan_kernel(plan, before->arg)->ins) == gathered)
            return id;
    }
    fail_msg("nothing is gathered into buffer %u", gathered);
    return 0;
}

/* The block that a buffer has at instruction `id`; NULL: of a former step. */
static const struct block *find_place(const struct plan *plan, const struct blocks *all,
                                      uint32_t buffer, uint32_t id)
{
    while (id-- > 0) {
        const struct plan_instruction *before = &plan->instructions[id];
        if (before->op != PLAN_ALLOC || before->arg != buffer)
            continue;
        for (uint32_t i = 0; i < all->count; i++)
            if (all->of[i].from == (int64_t)id)
                return &all->of[i];
    }
    return NULL;
}

static void many_places_are_in_use_when_a_gather_begins(void **state)
{
    (void)state;
    struct plan *plan = NULL;
    struct err err = {0};
    char path[128];
    assert_int_equal(shardplan("plan llama-3.1-8b --gpus 8 --seq 8192 --checkpointing selective "
                               "--files plan -q -o %s",
                               folder),
                     0);
    snprintf(path, sizeof path, "%s/plan.json", folder);
    assert_int_equal(plan_read_json(path, &plan, &err), ERR_OK);
    struct blocks all = {.now = -1};
    const struct memory_options options = {
        .allocator = {.on_action = note_block, .action_context = &all},
        .workspace_bytes = {32 << 20, 32 << 20},
        .before = step_on,
        .hook_context = &all,
    };
    struct memory memory;
    assert_int_equal(memory_replay(plan, &options, NULL, NULL, &memory, &err), ERR_OK);
    uint64_t bytes = 0, in_use = 0;
    for (uint32_t id = 0; id < plan->instruction_count; id++) {
        if (plan->instructions[id].op != PLAN_COPY_OUT)
            continue;
        const struct kernel *kernel = plan_kernel(plan, plan->instructions[id].arg);
        const int64_t begun = find_gather(plan, id);
        for (uint32_t i = 0; i < kernel->outs; i++) {
            const uint32_t buffer = buffer_of(plan, &plan->instructions[id], kernel->ins + i);
            const struct block *place = find_place(plan, &all, buffer, id);
            if (!place)
                continue;
            bytes += place->end - place->begin;
            in_use += is_in_use(&all, place, begun) ? place->end - place->begin : 0;
        }
    }
    printf("note: of %.1f GB that are gathered, %.1f GB go where something else is\n",
           1e-9 * (double)bytes, 1e-9 * (double)in_use);
    assert_true(bytes > 25000000000 && bytes < 35000000000); /* forward's, and backward's again */
    assert_true(3 * in_use > bytes);
    free(all.of);
    plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_places_are_in_use_when_a_gather_begins),
    };
    return cmocka_run_group_tests_name("gather_places", tests, folder_set_up(folder),
                                       folder_tear_down);
}
