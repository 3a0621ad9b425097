/* execute_rehearsal.c - a plan whose kernels are waits: what a machine without them can tell of it.
 *
 *     alloc, free            the allocator over real segments, as ever
 *     copies, collectives    done: as many bytes, from where they are to where they go
 *     any other kernel       a piece of work without operands that takes its predicted time
 *     record, wait           as ever
 *
 * It is all kernels or none: one that read what another had not computed would take it for places
 * in memory. Copies and collectives move bytes, or add numbers, whatever these are. */
#include "runtime/execution/execute_parts.h"

enum err_code execution_rehearse(struct execution *e, uint32_t id, struct err *err)
{
    const struct plan_instruction *instruction = &e->plan->instructions[id];
    const struct kernel *kernel = plan_kernel(e->plan, instruction->arg);
    if (e->moved[id])
        return execution_launch(e, id, NULL, err);
    struct work work = {
        .kind = WORK_NONE,
        .instruction = id,
        .group = -1,
        .label = e->plan->labels[kernel->label],
        .wait_s = e->settings.wait_s ? e->settings.wait_s[id] : 0.0,
    };
    TRY(execution_give_workspace(e, instruction, &work, err)); /* memory is as in any run */
    return device_launch(e->device, instruction->lane, &work, err);
}

void execution_touch(struct execution *e, uint64_t address, uint64_t bytes)
{
    /* (segments are whole ones of SEGMENT_BYTES, and more elements than a dim counts) */
    const struct work_operand all = {
        .data = (void *)(uintptr_t)address,
        .shape = SHAPE((uint32_t)(bytes / SEGMENT_BYTES), SEGMENT_BYTES / sizeof(float)),
        .dtype = DTYPE_FP32,
    };
    const struct work work = {.kind = WORK_FILL,
                              .instruction = e->status->instruction,
                              .outs = 1,
                              .operand = &all,
                              .group = -1};
    if (device_launch(e->device, LANE_COMPUTE, &work, NULL) == ERR_OK)
        device_sync(e->device, NULL);
}
