/* zero12_offload.c - offload_optimizer of ZeRO stages 1 and 2 (stage_1_and_2.py; see zero12.c).
 *
 * The fp32 partition, its gradient and its states are in the host's memory, which DeepSpeedCPUAdam
 * updates. (With grad_accum_dtype fp32 averaged gradients are added up on the device, in the
 * partition's fp32 vector, and go to the host from there, behind the last micro-batch.)
 *
 *     backward   an averaged gradient of this rank's goes to the host at once, in fp32; the host
 *                learns its norm and whether it is finite. Before the last micro-batch it goes
 * there as it is, and comes back to be added to the next one step       norms are read one by one,
 * the norm of all ranks is the host's; it clips, updates, casts into a buffer of 16 bits, and that
 * is copied into the vector on the device
 *
 * Whatever is pinned is there from the start: the partition, its gradient, the buffer of 16 bits
 * and room for the largest gradient, on either side. */
#include "lower/zero12.h"

static uint32_t new_host(struct lowering *low, enum category category, enum dtype dtype,
                         uint64_t elements)
{
    return zero_new_host(low, category, dtype, elements, &low->strategy->zero.optimizer);
}

/* Copies to and from pageable memory are the host's own. */
static bool is_pageable(const struct lowering *low)
{
    return low->strategy->zero.optimizer.pageable;
}

void zero12_offload_set_up(struct lowering *low)
{
    struct zero12 *z = low->state;
    const enum dtype dtype = low->strategy->compute;
    uint64_t largest = 0;
    for (uint32_t i = 0; i < z->count; i++) {
        const uint64_t n = shape_elements(&low->plan->params[z->listed[i]].shape);
        largest = n > largest ? n : largest;
    }
    z->staging = new_host(low, CATEGORY_PARAM, dtype, z->partition);
    z->host_gradients = new_host(low, CATEGORY_GRADIENT, DTYPE_FP32, z->partition);
    new_host(low, CATEGORY_PERSISTENT, dtype, largest);
    z->temporary =
        new_resident(low, CATEGORY_PERSISTENT, LANE_COMPUTE, ATEN_ZEROS, dtype, flat(largest));
    z->norms = none_array(low, z->count);
    z->accumulated = none_array(low, low->plan->param_count);
    for (uint32_t i = 0;
         i < z->own_count && z->each && low->strategy->accumulate > 1 && !z->fp32_partition; i++)
        z->accumulated[z->own[i]] = new_host(low, CATEGORY_GRADIENT, dtype,
                                             shape_elements(&low->plan->params[z->own[i]].shape));
}

/* _wait_for_offload_copies: the host does. */
static void wait_for_copies(struct lowering *low)
{
    struct zero12 *z = low->state;
    if (z->copied != NONE)
        emit_wait(low, LANE_HOST, z->copied);
    z->copied = NONE;
}

/* async_accumulate_grad_in_cpu_via_gpu. */
static void accumulate(struct lowering *low, uint32_t p)
{
    struct zero12 *z = low->state;
    const uint64_t n = shape_elements(&low->plan->params[p].shape);
    const struct operand there = plan_whole_buffer(low->plan, z->accumulated[p]);
    const struct operand here = zero_run(z->grads[p], 0, n);
    wait_for_copies(low);
    if (low->micro_batch > 0) {
        const struct operand room = zero_run(plan_whole_buffer(low->plan, z->temporary), 0, n);
        zero_move(low, PLAN_HOST_TO_DEVICE, z->lane, there, room, is_pageable(low));
        emit_work_on(low, PLAN_COMPUTE, z->lane, WORK_ADD_IN_PLACE, ATEN_ADD_, PLAN_NO_GROUP, 1,
                     &room, 1, &here);
    }
    zero_move(low, PLAN_DEVICE_TO_HOST, z->lane, here, there, is_pageable(low));
    z->copied = emit_record(low, z->lane);
}

/* set_norm_for_param_grad_in_gpu, update_offload_overflow_tracker_for_param_grad and
 * async_inplace_copy_grad_to_fp32_buffer_from_gpu. */
static void hand_over(struct lowering *low, uint32_t p)
{
    struct zero12 *z = low->state;
    const struct part part = zero12_part(low, p);
    const uint64_t n = part_elements(&part);
    struct operand own = z->fp32_partition
                             ? zero_run(plan_whole_buffer(low->plan, z->gradients), part.offset, n)
                             : zero_run(z->grads[p], part.first, n);
    z->norms[z->norm_count++] = zero_norm_one(low, z->lane, own);
    zero_look_at(low, z->lane, (enum dtype)own.dtype);
    uint32_t cast = NONE;
    if (own.dtype != DTYPE_FP32) {
        cast = alloc_buffer(low, CATEGORY_GRADIENT, z->lane, ATEN_TO_COPY, DTYPE_FP32, flat(n));
        const struct operand whole = plan_whole_buffer(low->plan, cast);
        emit_work_on(low, PLAN_COMPUTE, z->lane, WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1, &own, 1,
                     &whole);
        own = whole;
    }
    zero_move(low, PLAN_DEVICE_TO_HOST, z->lane, own,
              zero_run(plan_whole_buffer(low->plan, z->host_gradients), part.offset, n),
              is_pageable(low));
    z->copied = emit_record(low, z->lane);
    if (cast != NONE)
        emit_free(low, cast);
}

bool zero12_offload_gradient(struct lowering *low, uint32_t p)
{
    const bool last = low->micro_batch + 1 == low->strategy->accumulate;
    const struct zero12 *z = zero12_of(low);
    if (z->each && !z->fp32_partition && (low->micro_batch > 0 || !last))
        accumulate(low, p);
    if (last)
        hand_over(low, p);
    return last;
}

/* ---- the step ---- */

/* complete_grad_norm_calculation_for_cpu_offload: each norm is read by the host, which adds up
 * their squares; one number goes to the device to be summed over all ranks, and comes back. */
static uint32_t take_norm(struct lowering *low)
{
    const struct zero12 *z = zero12_of(low);
    const uint32_t sum = zero_read_norms(low, z->norm_count, z->norms);
    const uint32_t total =
        alloc_buffer(low, CATEGORY_OPTIMIZER, LANE_COMPUTE, ATEN_LIFT_FRESH, DTYPE_FP32, SHAPE(1));
    struct operand on_host = plan_whole_buffer(low->plan, sum);
    const struct operand on_device = plan_whole_buffer(low->plan, total);
    emit_sync(low, LANE_COMPUTE, LANE_HOST);
    zero_move(low, PLAN_HOST_TO_DEVICE, LANE_COMPUTE, on_host, on_device, true);
    if (z->group != PLAN_NO_GROUP)
        emit_work(low, PLAN_ALL_REDUCE, LANE_COMPUTE, WORK_ALL_REDUCE_SUM, ATEN_ALL_REDUCE,
                  z->group, 1, &total, 1, &total);
    zero_move(low, PLAN_DEVICE_TO_HOST, LANE_COMPUTE, on_device, on_host, true);
    const uint32_t norm = alloc_buffer(low, CATEGORY_OPTIMIZER, LANE_HOST, ATEN_LIFT_FRESH,
                                       DTYPE_FP32, (struct shape){.rank = 0});
    emit_unary(low, LANE_HOST, WORK_SQUARE_ROOT, ATEN_POW, sum, norm);
    emit_free(low, sum);
    emit_free(low, total);
    const uint32_t combined = zero_combine_norms(low, LANE_HOST, 1, &norm, DTYPE_FP32);
    emit_free(low, norm);
    zero_check_norm(low, LANE_HOST, DTYPE_FP32);
    return combined;
}

/* The updated partition, cast by the host, copied to its place in the vector. */
static void bring_back(struct lowering *low)
{
    const struct zero12 *z = zero12_of(low);
    const struct operand own = zero12_own(low);
    emit_unary(low, LANE_HOST, low->strategy->compute == DTYPE_FP32 ? WORK_COPY : WORK_CAST,
               ATEN_COPY_, z->master, z->staging);
    emit_sync(low, LANE_COMPUTE, LANE_HOST);
    zero_move(low, PLAN_HOST_TO_DEVICE, LANE_COMPUTE, plan_whole_buffer(low->plan, z->staging), own,
              is_pageable(low));
}

void zero12_offload_update(struct lowering *low)
{
    struct zero12 *z = low->state;
    wait_for_copies(low);
    if (low->strategy->compute != DTYPE_FP32)
        zero_share_overflow(low, z->group);
    const uint32_t norm = take_norm(low);
    const uint32_t unscaled = alloc_buffer(low, CATEGORY_OPTIMIZER, LANE_HOST, ATEN_DIV, DTYPE_FP32,
                                           (struct shape){.rank = 0});
    low->optimized[0].gradient = plan_whole_buffer(low->plan, z->host_gradients);
    zero12_declare_gradients(low, z->host_gradients);
    if (low->strategy->max_norm > 0)
        zero_clip(low, LANE_HOST, norm, low->optimized[0].gradient, DTYPE_FP32, true);
    const uint32_t before = enter_scope(low, "ds_inner_step", PLAN_NO_UNIT, false);
    emit_optimizer(low);
    leave_scope(low, before);
    bring_back(low);
    if (z->gradients != NONE)
        emit_free(low, z->gradients); /* what the host has of it is all that is read */
    z->gradients = NONE;
    for (uint32_t i = 0; i < z->norm_count; i++)
        emit_free(low, z->norms[i]);
    z->norm_count = 0;
    zero12_gather(low);
    emit_free(low, norm);
    emit_free(low, unscaled);
    zero12_drop_widened(low);
}
