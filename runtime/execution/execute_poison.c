/* execute_poison.c - for tests: memory that may be another buffer's by now is overwritten.
 *
 * Where a buffer lies follows from what was freed before; a test sees one way of many. The next
 * allocation from a pool may take any block that the pool has back, and the pool's lane then uses
 * it. So at each allocation all blocks of its pool that were freed since the last one, and the new
 * one itself, are filled with NaN on that lane: whoever still reads what was there, or writes what
 * is to come before the pool's lane is there, gives other results in some order. */
#include "runtime/execution/execute_parts.h"

#include <math.h>
#include <stdlib.h>

bool *execution_list_shared(const struct plan *plan)
{
    bool *shared = xcalloc(plan->buffer_count + 1U, sizeof *shared);
    for (uint32_t id = 0; id < plan->instruction_count; id++) {
        const struct plan_instruction *instruction = &plan->instructions[id];
        if (!plan_op_is_kernel((enum plan_op)instruction->op))
            continue;
        const struct kernel *kernel = plan_kernel(plan, instruction->arg);
        for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++) {
            const uint32_t buffer =
                plan_operand_place(plan, instruction, &kernel->operands[i]).buffer;
            const uint8_t pool = plan->buffers[buffer].pool;
            if (pool != instruction->lane && pool != LANE_HOST)
                shared[buffer] = true;
        }
    }
    return shared;
}

static enum err_code fill(struct execution *e, const struct poisoned *block, uint32_t instruction,
                          struct err *err)
{
    const struct work_operand all = {.data = (void *)(uintptr_t)block->address,
                                     .shape = SHAPE((uint32_t)(block->bytes / sizeof(float))),
                                     .dtype = DTYPE_FP32};
    const struct work work = {.kind = WORK_FILL,
                              .instruction = instruction,
                              .outs = 1,
                              .operand = &all,
                              .attr.p = NAN,
                              .group = -1};
    return device_launch(e->device, block->pool, &work, err);
}

static struct poisoned block_of(const struct execution *e, uint32_t buffer)
{
    return (struct poisoned){.address = (uint64_t)(uintptr_t)execution_address(e, buffer),
                             .bytes = e->plan->buffers[buffer].bytes,
                             .pool = e->plan->buffers[buffer].pool};
}

void execution_poison_later(struct execution *e, uint32_t id)
{
    const struct plan_instruction *instruction = &e->plan->instructions[id];
    const struct poisoned block = block_of(e, instruction->arg);
    if (!e->shared || !e->shared[instruction->arg] || !block.address ||
        plan_free_is_deferred(e->plan, instruction))
        return;
    ARRAY_GROW(e->freed, e->freed_count, e->freed_cap);
    e->freed[e->freed_count++] = block;
}

enum err_code execution_poison_freed(struct execution *e, uint32_t id, struct err *err)
{
    const uint8_t pool = e->plan->buffers[e->plan->instructions[id].arg].pool;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < e->freed_count; i++) {
        if (e->freed[i].pool == pool)
            TRY(fill(e, &e->freed[i], id, err));
        else
            e->freed[kept++] = e->freed[i];
    }
    e->freed_count = kept;
    return ERR_OK;
}

enum err_code execution_poison_new(struct execution *e, uint32_t id, struct err *err)
{
    const struct poisoned block = block_of(e, e->plan->instructions[id].arg);
    return e->shared && e->shared[e->plan->instructions[id].arg] && block.address
               ? fill(e, &block, id, err)
               : ERR_OK;
}

void execution_poison_forget(struct execution *e, uint64_t address, uint64_t bytes)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < e->freed_count; i++)
        if (e->freed[i].address < address || e->freed[i].address >= address + bytes)
            e->freed[kept++] = e->freed[i];
    e->freed_count = kept;
}
