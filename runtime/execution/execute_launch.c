/* execute_launch.c - a kernel of the plan on a lane of the device; see execute_parts.h. */
#include "runtime/execution/execute_parts.h"
#include "runtime/execution/plan_work.h"

struct work_operand execution_operand(const struct execution *e,
                                      const struct plan_instruction *instruction,
                                      const struct operand *operand)
{
    const struct plan_place place = plan_operand_place(e->plan, instruction, operand);
    char *base = execution_address(e, place.buffer);
    return (struct work_operand){
        .data = base ? base + place.offset * dtype_bytes((enum dtype)operand->dtype) : NULL,
        .shape = operand->shape,
        .pitch = operand->layout ? 0 : operand->pitch,
        .dtype = operand->dtype,
        .layout = operand->layout,
    };
}

enum err_code execution_give_workspace(struct execution *e,
                                       const struct plan_instruction *instruction,
                                       struct work *work, struct err *err)
{
    const uint64_t bytes = e->device->workspace_bytes;
    struct allocator_block **own = &e->workspace[instruction->phase == PLAN_BACKWARD];
    if (e->scratch != PLACE_NONE) {
        work->workspace = execution_address(e, e->scratch);
        work->workspace_bytes = e->plan->buffers[e->scratch].bytes;
    }
    if (bytes == 0 || instruction->op != PLAN_COMPUTE ||
        !work_is_matmul((enum work_kind)plan_kernel(e->plan, instruction->arg)->work))
        return ERR_OK;
    if (!*own)
        TRY(allocator_alloc(e->allocator, bytes, LANE_COMPUTE, own, err));
    work->workspace = (void *)(uintptr_t)allocator_block_address(*own);
    work->workspace_bytes = bytes;
    return ERR_OK;
}

/* A few want more than operands. */
static void fill_settings(const struct execution *e, enum work_kind kind, struct work *work)
{
    const struct run_settings *s = &e->settings;
    work->update.lr = s->lr;
    work->update.beta1 = s->beta1;
    work->update.beta2 = s->beta2;
    work->update.eps = s->eps;
    work->update.weight_decay = s->weight_decay;
    work->update.step = e->step + 1;
    if (kind == WORK_SEED)
        work->attr.p = 1.0F / (float)e->micro_batches;
}

enum err_code execution_launch(struct execution *e, uint32_t id,
                               const struct work_operand *operands, struct err *err)
{
    const struct plan *plan = e->plan;
    const struct plan_instruction *instruction = &plan->instructions[id];
    const struct kernel *kernel = plan_kernel(plan, instruction->arg);
    struct work work = plan_work(plan, id, e->operands);
    for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++)
        e->operands[i] =
            operands ? operands[i] : execution_operand(e, instruction, &kernel->operands[i]);
    work.wait_s = e->settings.wait_s ? e->settings.wait_s[id] : 0.0;
    fill_settings(e, (enum work_kind)kernel->work, &work);
    if (e->moved)
        work_stand_in(&work, e->operands);
    TRY(execution_give_workspace(e, instruction, &work, err));
    return device_launch(e->device, instruction->lane, &work, err);
}
