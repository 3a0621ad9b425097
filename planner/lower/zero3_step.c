/* zero3_step.c - the step of ZeRO stage 3 (step() of stage3.py; see zero3.c).
 *
 * Small parameters are partitioned, too; then the norm of every gradient piece, then group by
 * group: pieces together in fp32, clipping, the update, the cast back; then small parameters are
 * gathered again. */
#include "lower/zero3.h"

#include <stdlib.h>

static void list_gradients(const struct lowering *low, const struct zero3_group *group,
                           struct operand *out)
{
    const struct zero3 *z = zero3_of(low);
    for (uint32_t i = 0; i < group->count; i++)
        out[i] = zero3_gradient(low, z->trained[group->first + i]);
}

/* The norms of the groups; `norms` has room for one more, where they are combined. */
static uint32_t take_norms(struct lowering *low, uint32_t *norms)
{
    const struct zero3 *z = zero3_of(low);
    struct operand *gradients = xmalloc((z->trained_count + 1) * sizeof *gradients);
    for (uint32_t g = 0; g < z->group_count; g++) {
        list_gradients(low, &z->groups[g], gradients);
        norms[g] = zero_norm_fp64(low, z->shard_group, z->groups[g].count, gradients);
    }
    free(gradients);
    return zero_combine_norms(low, LANE_COMPUTE, z->group_count, norms, DTYPE_FP64);
}

/* The fp32 gradient of a group. */
static struct operand flatten(struct lowering *low, const struct zero3_group *group)
{
    const struct zero3 *z = zero3_of(low);
    struct operand *parts = xmalloc((group->count + 1) * sizeof *parts);
    list_gradients(low, group, parts);
    const struct operand one =
        zero_run(plan_whole_buffer(low->plan, z->gradients), group->at, group->elements);
    const struct operand joined = zero_join(low, group->count, parts, one, group->elements);
    free(parts);
    return joined;
}

static void declare_gradients(struct lowering *low, const struct zero3_group *group,
                              struct operand gradient)
{
    const struct zero3 *z = zero3_of(low);
    for (uint32_t i = 0; i < group->count; i++) {
        const uint32_t p = z->trained[group->first + i];
        new_piece(low, p, PIECE_GRADIENT, gradient.place, gradient.offset + z->params[p].at,
                  plan_piece(low->plan, p, PIECE_MASTER)->placement, z->shard_group);
    }
}

static void update_group(struct lowering *low, uint32_t g, uint32_t norm)
{
    const struct zero3 *z = zero3_of(low);
    const struct zero3_group *group = &z->groups[g];
    struct optimized *o = &low->optimized[g];
    const bool offload = low->strategy->zero.optimizer.on;
    o->gradient = offload ? plan_whole_buffer(low->plan, group->gradient) : flatten(low, group);
    declare_gradients(low, group, o->gradient);
    if (low->strategy->max_norm > 0)
        zero_clip(low, offload ? LANE_HOST : LANE_COMPUTE, norm, o->gradient,
                  offload ? DTYPE_FP32 : DTYPE_FP64, false);
    const uint32_t before = enter_scope(low, "ds_inner_step", PLAN_NO_UNIT, false);
    emit_update_of(low, g, 1);
    leave_scope(low, before);
    zero3_write_back(low, group);
    if (o->gradient.place != z->gradients && !offload)
        emit_free(low, o->gradient.place);
}

void zero3_update(struct lowering *low)
{
    const struct zero3 *z = zero3_of(low);
    uint32_t *norms = xmalloc((z->group_count + 1) * sizeof *norms);
    zero3_partition_all(low);
    const bool offload = low->strategy->zero.optimizer.on;
    const uint8_t lane = offload ? LANE_HOST : LANE_COMPUTE;
    const enum dtype dtype = offload ? DTYPE_FP32 : DTYPE_FP64;
    if (offload) /* what the host reads is there */
        emit_sync(low, LANE_HOST, LANE_COMPUTE);
    if (low->strategy->compute == DTYPE_FP16)
        zero_scan_for_overflow(low, lane, z->shard_group,
                               plan_whole_buffer(low->plan, z->gradients));
    const uint32_t norm = offload ? zero3_offload_norm(low, norms) : take_norms(low, norms);
    zero_check_norm(low, lane, dtype);
    const uint32_t unscaled =
        alloc_buffer(low, CATEGORY_OPTIMIZER, lane, ATEN_DIV, dtype, (struct shape){.rank = 0});
    for (uint32_t g = 0; g < z->group_count; g++)
        update_group(low, g, norm);
    const uint32_t before = enter_scope(low, "ds_post_step", PLAN_NO_UNIT, false);
    zero3_offload_forget_norms(low);
    if (low->strategy->zero.param.on)
        emit_sync(low, LANE_COMPUTE, LANE_HOST);
    zero3_gather_persistent(low);
    zero3_drop_secondary(low);
    leave_scope(low, before);
    if (offload)
        emit_free(low, norm);
    for (uint32_t g = 0; g < z->group_count; g++)
        emit_free(low, norms[g]);
    if (!offload)
        emit_free(low, norm);
    emit_free(low, unscaled);
    free(norms);
}
