/* execute_products.c - tells the device of a plan's matrix products before the first step, so that
 * what it chooses for them is chosen then. */
#include "runtime/execution/execute_parts.h"
#include "runtime/execution/plan_work.h"

#include <stdlib.h>

/* The allocator's blocks begin at multiples of this: an offset says how an operand is aligned. */
enum { BLOCK = 512 };

static bool is_product(const struct plan *plan, uint32_t id)
{
    const struct plan_instruction *instruction = &plan->instructions[id];
    return instruction->op == PLAN_COMPUTE && instruction->lane != LANE_HOST &&
           work_is_matmul((enum work_kind)plan_kernel(plan, instruction->arg)->work);
}

static struct work product_of(const struct execution *e, uint32_t id, struct work_operand *operand)
{
    const struct plan_instruction *instruction = &e->plan->instructions[id];
    const struct kernel *kernel = plan_kernel(e->plan, instruction->arg);
    struct work work = plan_work(e->plan, id, operand);
    for (uint32_t i = 0; i < work.ins + work.outs; i++) {
        const struct operand *of = &kernel->operands[i];
        const uint64_t offset = plan_operand_place(e->plan, instruction, of).offset *
                                dtype_bytes((enum dtype)of->dtype);
        operand[i].data = (void *)(uintptr_t)(BLOCK + offset % BLOCK);
    }
    work.workspace_bytes = e->device->workspace_bytes;
    work.workspace = work.workspace_bytes ? (void *)(uintptr_t)BLOCK : NULL;
    return work;
}

enum err_code execution_prepare_products(struct execution *e, struct err *err)
{
    const struct plan *plan = e->plan;
    uint32_t count = 0, operands = 0, n = 0;
    for (uint32_t id = 0; id < plan->instruction_count; id++)
        if (is_product(plan, id)) {
            const struct kernel *kernel = plan_kernel(plan, plan->instructions[id].arg);
            operands += (uint32_t)kernel->ins + kernel->outs;
            count++;
        }
    struct work *works = xmalloc((count + 1U) * sizeof *works);
    struct work_operand *operand = xmalloc((operands + 1U) * sizeof *operand);
    operands = 0;
    for (uint32_t id = 0; id < plan->instruction_count; id++)
        if (is_product(plan, id)) {
            works[n] = product_of(e, id, operand + operands);
            operands += works[n].ins + works[n].outs;
            n++;
        }
    const enum err_code rc = device_prepare(e->device, works, count, err);
    free(operand);
    free(works);
    return rc;
}
