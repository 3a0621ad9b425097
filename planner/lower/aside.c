/* aside.c - see aside.h.
 *
 *     compute   kernel     ...     wait, free    ...         wait, kernel, record
 *     aside       wait, to the host, record    ...  from the host   ...   wait, free
 *
 * What comes back is born in the lane's own pool, and freed there once the lane has waited for the
 * kernels that use it; what others keep is freed when the compute stream gets there. */
#include "lower/aside.h"

#include "lower/tally.h"

void aside_set_up(struct lowering *low)
{
    low->aside = LANE_COMPUTE;
    if (!low->stream->aside)
        return;
    low->aside = plan_add_lane(low->plan, "offload", false);
    low->copied = none_array(low, low->stream->kernels->kernel_count);
    low->used = none_array(low, low->stream->buffer_count);
}

void aside_place(struct lowering *low, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; low->stream->aside && i < count; i++)
        if (low->plan->buffers[first + i].pool == LANE_ASIDE)
            low->plan->buffers[first + i].pool = low->aside;
}

/* Of an outline, whose stream's kernels are spans: a kernel of the plan's own, of buffers that
 * nobody looks at. */
static void pass_copy_in_short(struct lowering *low, enum plan_op op, uint32_t index)
{
    const struct kernel *kernel = plan_kernel(low->plan, index);
    struct operand from = kernel->operands[0], to = kernel->operands[1];
    from.place = to.place = PLACE_INPUT;
    from.layout = to.layout = NULL;
    emit_work_on(low, op, low->aside, WORK_COPY, ATEN_COPY_, PLAN_NO_GROUP, 1, &from, 1, &to);
}

static void pass_copy(struct lowering *low, enum plan_op op, uint32_t kernel)
{
    if (low->tally) {
        pass_copy_in_short(low, op, kernel);
        return;
    }
    emit_kernel(low, op, low->aside, kernel, PLAN_NO_GROUP);
    low->plan->instructions[low->plan->instruction_count - 1].base = low->base;
}

static void wait_for(struct lowering *low, uint8_t lane, uint32_t *event)
{
    if (*event != NONE)
        emit_wait(low, lane, *event);
    *event = NONE;
}

void aside_pass(struct lowering *low, struct stream_step step)
{
    const bool apart = low->aside != LANE_COMPUTE;
    switch (step.kind) {
    case STEP_TO_HOST:
        if (apart)
            emit_sync(low, low->aside, LANE_COMPUTE);
        pass_copy(low, PLAN_DEVICE_TO_HOST, step.arg);
        if (apart)
            low->copied[step.arg] = emit_record(low, low->aside);
        break;
    case STEP_FROM_HOST:
        pass_copy(low, PLAN_HOST_TO_DEVICE, step.arg);
        if (apart)
            emit_sync(low, LANE_COMPUTE, low->aside);
        break;
    case STEP_AWAIT_COPY:
        wait_for(low, LANE_COMPUTE, &low->copied[step.arg]);
        break;
    case STEP_USED:
        low->used[step.arg] = emit_record(low, LANE_COMPUTE);
        break;
    case STEP_ASIDE_AWAITS:
        if (low->used[step.arg] != NONE)
            emit_wait(low, low->aside, low->used[step.arg]);
        break;
    case STEP_ASIDE_ENDS:
        emit_sync(low, LANE_HOST, LANE_COMPUTE);
        emit_sync(low, LANE_HOST, low->aside);
        break;
    default:
        break;
    }
}

void aside_free(struct lowering *low, uint32_t index)
{
    const uint32_t buffer = stream_buffer(low, index);
    if (!low->stream->aside) {
        emit_free(low, buffer);
        return;
    }
    const bool kept = low->stream->buffers[index].pool == LANE_ASIDE && low->used[index] == NONE;
    low->used[index] = NONE;
    if (kept)
        emit_free_after(low, buffer, LANE_COMPUTE);
    else
        emit_free(low, buffer);
}
