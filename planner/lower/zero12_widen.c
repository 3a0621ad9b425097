/* zero12_widen.c - ZeRO-1 whose gradients are added up in fp32 (data_types.grad_accum_dtype, of
 * fp16 parameters or with offload_optimizer; stage_1_and_2.py's use_grad_accum_attribute).
 *
 *     backward   each micro-batch's .grad is cast, added to what there is of it, and goes. Buckets
 *                are of fp32; what ranks sum is cast to the parameters' dtype for that, and back
 *     step       what is in this rank's partition was added to its fp32 vector; the others' go
 *                with the update */
#include "lower/zero12.h"

enum dtype zero12_reduced_dtype(const struct lowering *low)
{
    return zero12_of(low)->widened ? DTYPE_FP32 : low->strategy->compute;
}

void zero12_widen(struct lowering *low, uint32_t p)
{
    struct zero12 *z = low->state;
    const struct operand wide = plan_whole_buffer(
        low->plan, alloc_buffer(low, CATEGORY_BACKWARD, LANE_COMPUTE, ATEN_TO_COPY, DTYPE_FP32,
                                low->plan->params[p].shape));
    struct operand narrow = low->grad[p];
    narrow.shape = wide.shape;
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1,
                 &narrow, 1, &wide);
    if (z->grads[p].place == NONE) {
        z->grads[p] = wide;
    } else {
        emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_ADD_IN_PLACE, ATEN_ADD_, PLAN_NO_GROUP,
                     1, &wide, 1, &z->grads[p]);
        emit_free(low, wide.place);
    }
    exchange_gradient(low, p, no_operand(), LANE_COMPUTE);
}

void zero12_exchange(struct lowering *low, uint32_t p, struct operand to)
{
    const struct zero12 *z = zero12_of(low);
    if (!z->widened) {
        exchange_gradient(low, p, to, z->lane);
        return;
    }
    if (z->lane == low->plan->buffers[z->grads[p].place].pool)
        emit_free(low, z->grads[p].place);
    else
        emit_free_after(low, z->grads[p].place, z->lane);
    z->grads[p] = to;
}

uint32_t zero12_narrow(struct lowering *low, struct operand of)
{
    const uint8_t lane = zero12_of(low)->lane;
    of.shape = flat(shape_elements(&of.shape));
    const uint32_t narrow =
        alloc_buffer(low, CATEGORY_BUCKET, lane, ATEN_TO_COPY, low->strategy->compute, of.shape);
    const struct operand whole = plan_whole_buffer(low->plan, narrow);
    emit_work_on(low, PLAN_COMPUTE, lane, WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1, &of, 1,
                 &whole);
    return narrow;
}

void zero12_put_back(struct lowering *low, struct operand summed, struct operand to)
{
    const uint8_t lane = zero12_of(low)->lane;
    summed.shape = to.shape;
    emit_work_on(low, PLAN_COMPUTE, lane, summed.dtype == to.dtype ? WORK_COPY : WORK_CAST,
                 ATEN_COPY_, PLAN_NO_GROUP, 1, &summed, 1, &to);
}

bool zero12_has_storage(const struct zero12 *z, struct operand grad)
{
    return grad.place != NONE && grad.place != z->bucket[0] && grad.place != z->bucket[1] &&
           grad.place != z->gradients;
}

static bool is_viewed(const struct zero12 *z, uint32_t bucket)
{
    for (uint32_t i = 0; i < z->count; i++)
        if (z->grads[z->listed[i]].place == bucket)
            return true;
    return false;
}

void zero12_release_buckets(struct lowering *low)
{
    struct zero12 *z = low->state;
    for (int i = 0; i < 2; i++)
        if (z->bucket[i] != NONE && !is_viewed(z, z->bucket[i])) {
            emit_free(low, z->bucket[i]);
            z->bucket[i] = NONE;
        }
}

static void drop(struct lowering *low, uint32_t p)
{
    struct zero12 *z = low->state;
    if (z->grads[p].place == NONE)
        return;
    if (zero12_has_storage(z, z->grads[p]))
        zero12_exchange(low, p, no_operand());
    z->grads[p] = no_operand();
    zero12_release_buckets(low);
}

/* Those of other partitions first; where the host updates, zero_grad() does it, as registered. */
void zero12_drop_widened(struct lowering *low)
{
    const struct zero12 *z = zero12_of(low);
    if (!z->widened)
        return;
    for (uint32_t i = 0; i < z->count && z->offload; i++)
        drop(low, z->listed[i]);
    for (uint32_t i = 0; i < z->count; i++)
        if (!z->is_own[z->order[i]])
            drop(low, z->order[i]);
    for (uint32_t i = 0; i < z->own_count; i++)
        drop(low, z->own[i]);
}
