/* zero12_step.c - the step of ZeRO stages 1 and 2 (step() of stage_1_and_2.py; see zero12.c).
 *
 *     overflow, norm   of each averaged gradient that touches the partition
 *     flatten          their parts together, cast to fp32; the 16-bit ones die
 *     update           clipped; of one flat tensor
 *     gather           the partition is cast back into the vector, which is gathered in place */
#include "lower/zero12.h"

#include <stdlib.h>

/* This rank's averaged gradients, and zeros behind them. Returns how many; *with_padding: with the
 * zeros. */
static uint32_t list_gradients(const struct lowering *low, struct operand *out,
                               uint32_t *with_padding)
{
    const struct zero12 *z = zero12_of(low);
    uint32_t n = 0;
    uint64_t filled = 0;
    for (uint32_t i = 0; i < z->own_count; i++) {
        const uint32_t p = z->own[i];
        const struct part part = zero12_part(low, p);
        const uint64_t count = part_elements(&part);
        const struct shape *shape = &low->plan->params[p].shape;
        struct operand *x = &out[n++];
        if (z->fp32_partition)
            *x = zero_run(plan_whole_buffer(low->plan, z->gradients), part.offset, count);
        else
            *x = zero_run(z->kept[p], part.first, count);
        if (count == shape_elements(shape))
            x->shape = *shape;
        filled += count;
    }
    *with_padding = n;
    if (z->padding != NONE)
        out[(*with_padding)++] = plan_whole_buffer(low->plan, z->padding);
    else if (z->fp32_partition && filled < z->partition)
        out[(*with_padding)++] =
            zero_run(plan_whole_buffer(low->plan, z->gradients), filled, z->partition - filled);
    return n;
}

/* averaged_gradients = None: the list dies from its end. */
static void drop_gradients(struct lowering *low)
{
    struct zero12 *z = low->state;
    if (z->padding != NONE)
        emit_free(low, z->padding);
    for (uint32_t i = z->own_count; i-- > 0;) {
        struct operand *kept = &z->kept[z->own[i]];
        if (kept->place != NONE && kept->place != z->older)
            emit_free(low, kept->place);
        *kept = no_operand();
    }
    if (z->older != NONE)
        emit_free(low, z->older);
    z->older = z->padding = NONE;
}

/* The flat fp32 gradient. */
static struct operand flatten(struct lowering *low, uint32_t count, const struct operand *parts)
{
    struct zero12 *z = low->state;
    if (z->fp32_partition) {
        const struct operand whole = plan_whole_buffer(low->plan, z->gradients);
        z->gradients = NONE;
        return whole;
    }
    return zero_join(low, count, parts, zero_run(parts[0], 0, z->partition), z->partition);
}

void zero12_update(struct lowering *low)
{
    const struct zero12 *z = zero12_of(low);
    if (z->offload || zero_bf16_has(low->strategy)) {
        (z->offload ? zero12_offload_update : zero_bf16_update)(low);
        return;
    }
    struct operand *parts = xmalloc((z->own_count + 2) * sizeof *parts);
    uint32_t all = 0;
    const uint32_t count = list_gradients(low, parts, &all);
    if (low->strategy->compute != DTYPE_FP32)
        zero_look_for_overflow(low, z->group, all, parts);
    const uint32_t norm = zero_norm(low, z->group, count, parts);
    const uint32_t unscaled = alloc_buffer(low, CATEGORY_OPTIMIZER, LANE_COMPUTE, ATEN_DIV,
                                           DTYPE_FP32, (struct shape){.rank = 0});
    zero12_drop_widened(low);
    struct operand *gradient = &low->optimized[0].gradient;
    *gradient = flatten(low, all, parts);
    const bool alias = !z->fp32_partition && all == 1 && low->strategy->compute == DTYPE_FP32;
    zero12_declare_gradients(low, gradient->place);
    if (!alias)
        drop_gradients(low);
    if (low->strategy->max_norm > 0)
        zero_clip(low, LANE_COMPUTE, norm, *gradient, DTYPE_FP32, true);
    const uint32_t before = enter_scope(low, "ds_inner_step", PLAN_NO_UNIT, false);
    emit_optimizer(low);
    leave_scope(low, before);
    if (alias)
        drop_gradients(low);
    else
        emit_free(low, gradient->place);
    zero12_cast_back(low);
    zero12_gather(low);
    emit_free(low, norm);
    emit_free(low, unscaled);
    free(parts);
}
