/* plan_work.c - see plan_work.h. */
#include "runtime/execution/plan_work.h"

struct work plan_work(const struct plan *plan, uint32_t id, struct work_operand *operand)
{
    const struct plan_instruction *instruction = &plan->instructions[id];
    const struct kernel *kernel = plan_kernel(plan, instruction->arg);
    for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++) {
        const struct operand *of = &kernel->operands[i];
        operand[i] = (struct work_operand){.shape = of->shape,
                                           .pitch = of->layout ? 0 : of->pitch,
                                           .dtype = of->dtype,
                                           .layout = of->layout};
    }
    return (struct work){
        .kind = work_to_run((enum work_kind)kernel->work, kernel->ins),
        .instruction = id,
        .ins = kernel->ins,
        .outs = kernel->outs,
        .operand = operand,
        .attr = kernel->attr,
        .group = instruction->group == PLAN_NO_GROUP ? -1 : instruction->group,
        .ranks = plan_group_ranks(plan, instruction->group),
        .rank = plan_group_rank(plan, instruction->group, plan->rank),
        .label = plan->labels[kernel->label],
    };
}
