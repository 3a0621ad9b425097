/* zero3_offload.c - offload_optimizer and offload_param of ZeRO stage 3 (stage3.py,
 * partition_parameters.py; see zero3.c).
 *
 * offload_optimizer: what a rank updates is on the host, and so are its averaged gradients, twice:
 * as they are accumulated, and in fp32 for the update. A reduced piece goes to the host, comes back
 * (so that what follows runs on the device), is added to if there were micro-batches before, and is
 * normed; in the last micro-batch it goes to the host once more, in fp32. With a ratio below 1 the
 * first groups of parameters stay on the device, where torch's AdamW updates them.
 *
 * offload_param: a rank's pieces of the parameters are on the host. Each gather copies its own ones
 * to the device first, and the host waits for every copy. */
#include "lower/zero3.h"

#include <stdlib.h>

static const struct zero_offload *optimizer_of(const struct lowering *low)
{
    return &low->strategy->zero.optimizer;
}

bool zero3_is_on_host(const struct lowering *low, uint32_t group)
{
    const struct zero_offload *o = optimizer_of(low);
    const uint32_t count = zero3_of(low)->group_count;
    return o->on && group >= (uint32_t)((1 - o->ratio) * count);
}

uint32_t zero3_new_gradients(struct lowering *low, enum dtype dtype, uint64_t elements)
{
    struct zero3 *z = low->state;
    z->norms = none_array(low, low->plan->param_count);
    if (!optimizer_of(low)->on)
        return new_resident(low, CATEGORY_GRADIENT, LANE_COMPUTE, ATEN_ZEROS, dtype,
                            flat(elements));
    for (uint32_t g = 0; g < z->group_count; g++)
        z->groups[g].gradient = zero3_is_on_host(low, g)
                                    ? zero_new_host(low, CATEGORY_GRADIENT, DTYPE_FP32,
                                                    z->groups[g].elements, optimizer_of(low))
                                    : new_resident(low, CATEGORY_GRADIENT, LANE_COMPUTE, ATEN_ZEROS,
                                                   DTYPE_FP32, flat(z->groups[g].elements));
    return zero_new_host(low, CATEGORY_GRADIENT, dtype, elements, optimizer_of(low));
}

/* ---- gradients ---- */

static uint32_t new_copy(struct lowering *low, uint8_t lane, enum dtype dtype, uint64_t elements)
{
    return alloc_buffer(low, CATEGORY_GRADIENT, lane, ATEN_TO_COPY, dtype, flat(elements));
}

/* _constant_buffered_norm2: the root of the square of the norm. */
static void take_norm(struct lowering *low, uint32_t p, struct operand gradient)
{
    struct zero3 *z = low->state;
    const uint8_t lane = z->reduce_lane;
    const uint32_t norm = zero_norm_one(low, lane, gradient);
    const uint32_t square = zero_scalar(low, lane, WORK_SQUARE, norm);
    emit_free(low, norm);
    const uint32_t root = zero_scalar(low, lane, WORK_SQUARE_ROOT, square);
    emit_free(low, square);
    z->norms[p] = root;
    z->normed[z->normed_count++] = p;
}

/* _offload_grad_partition_at_boundary. */
static void hand_over(struct lowering *low, uint32_t p, struct operand own)
{
    const struct zero3 *z = zero3_of(low);
    const struct zero3_group *group = &z->groups[z->params[p].group];
    const uint64_t n = shape_elements(&own.shape);
    const struct operand to =
        zero_run(plan_whole_buffer(low->plan, group->gradient), z->params[p].at, n);
    uint32_t cast = NONE;
    take_norm(low, p, own);
    if (own.dtype != DTYPE_FP32) {
        cast = new_copy(low, z->reduce_lane, DTYPE_FP32, n);
        const struct operand whole = plan_whole_buffer(low->plan, cast);
        emit_work_on(low, PLAN_COMPUTE, z->reduce_lane, WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1,
                     &own, 1, &whole);
        own = whole;
    }
    if (zero3_is_on_host(low, z->params[p].group))
        zero_move(low, PLAN_DEVICE_TO_HOST, z->reduce_lane, own, to, optimizer_of(low)->pageable);
    else
        zero_copy(low, z->reduce_lane, own, to);
    if (cast != NONE)
        emit_free(low, cast);
}

/* One piece: to the host and back, or what is there to the device, where it is added to. `before`:
 * the copy of the parameter before, which goes when Python's variable is bound again. Returns this
 * one's. */
static uint32_t keep_piece(struct lowering *low, uint32_t p, struct operand piece, uint32_t before)
{
    const struct zero3 *z = zero3_of(low);
    const bool waits = optimizer_of(low)->pageable;
    const uint64_t n = shape_elements(&piece.shape);
    const struct operand there = zero_run(zero3_gradient(low, p), 0, n);
    if (low->micro_batch == 0) {
        if (before != NONE)
            emit_free(low, before);
        zero_move(low, PLAN_DEVICE_TO_HOST, z->reduce_lane, piece, there, waits);
    }
    const uint32_t copy = new_copy(low, z->reduce_lane, (enum dtype)there.dtype, n);
    const struct operand here = plan_whole_buffer(low->plan, copy);
    zero_move(low, PLAN_HOST_TO_DEVICE, z->reduce_lane, there, here, waits);
    if (low->micro_batch > 0) {
        if (before != NONE)
            emit_free(low, before);
        emit_work_on(low, PLAN_COMPUTE, z->reduce_lane, WORK_ADD_IN_PLACE, ATEN_ADD_, PLAN_NO_GROUP,
                     1, &piece, 1, &here);
        zero_move(low, PLAN_DEVICE_TO_HOST, z->reduce_lane, here, there, waits);
    }
    if (low->micro_batch + 1 == low->strategy->accumulate)
        hand_over(low, p, here);
    return copy;
}

void zero3_offload_pieces(struct lowering *low, const struct operand *pieces, bool held)
{
    const struct zero3 *z = zero3_of(low);
    uint32_t before = NONE;
    for (uint32_t i = 0; i < z->in_count; i++) {
        const uint32_t p = z->in[i];
        if (zero3_own_elements(low, p) > 0)
            before = keep_piece(low, p, pieces[i], before);
        if (!held)
            zero3_forget(low, p);
    }
    if (before != NONE)
        emit_free(low, before);
}

/* ---- the step ---- */

/* complete_grad_norm_calculation_for_cpu_offload of one group. */
static uint32_t norm_of_group(struct lowering *low, const struct zero3_group *group)
{
    const struct zero3 *z = zero3_of(low);
    uint32_t sum = NONE;
    for (uint32_t i = 0; i < group->count; i++) {
        const uint32_t norm = z->norms[z->trained[group->first + i]];
        if (norm == NONE)
            continue;
        const uint32_t square = zero_scalar(low, LANE_COMPUTE, WORK_SQUARE, norm);
        sum = zero_add_scalar(low, sum, square);
        emit_free(low, square);
    }
    return zero_share_sum(low, z->shard_group, sum);
}

uint32_t zero3_offload_norm(struct lowering *low, uint32_t *norms)
{
    const struct zero3 *z = zero3_of(low);
    for (uint32_t g = 0; g < z->group_count; g++)
        norms[g] = norm_of_group(low, &z->groups[g]);
    return zero_combine_norms(low, LANE_HOST, z->group_count, norms, DTYPE_FP32);
}

void zero3_offload_forget_norms(struct lowering *low)
{
    struct zero3 *z = low->state;
    for (uint32_t i = 0; i < z->normed_count; i++) {
        emit_free(low, z->norms[z->normed[i]]);
        z->norms[z->normed[i]] = NONE;
    }
    z->normed_count = 0;
}

/* A tensor on the host that `copy_` makes for itself, where dtypes differ. */
static uint32_t new_between(struct lowering *low, enum dtype dtype, uint64_t elements)
{
    const uint32_t buffer =
        new_buffer(low, CATEGORY_OPTIMIZER, LANE_HOST, ATEN_TO_COPY, dtype, flat(elements));
    low->plan->buffers[buffer].scratch = true;
    emit_alloc(low, buffer);
    return buffer;
}

void zero3_write_back(struct lowering *low, const struct zero3_group *group)
{
    const enum dtype dtype = low->strategy->compute;
    const bool from_host = low->plan->buffers[group->master].pool == LANE_HOST;
    const bool to_host = low->strategy->zero.param.on;
    const enum work_kind work = dtype == DTYPE_FP32 ? WORK_COPY : WORK_CAST;
    struct operand master = plan_whole_buffer(low->plan, group->master);
    struct operand shard = plan_whole_buffer(low->plan, group->shard);
    if (from_host == to_host) {
        emit_unary(low, from_host ? LANE_HOST : LANE_COMPUTE, work, ATEN_COPY_, group->master,
                   group->shard);
        return;
    }
    /* A copy that the host waits for is converted there. */
    uint32_t between = NONE;
    if (from_host) {
        if (dtype != DTYPE_FP32) {
            between = new_between(low, dtype, group->elements);
            emit_unary(low, LANE_HOST, work, ATEN_COPY_, group->master, between);
            master = plan_whole_buffer(low->plan, between);
        }
        emit_sync(low, LANE_COMPUTE, LANE_HOST);
        zero_move(low, PLAN_HOST_TO_DEVICE, LANE_COMPUTE, master, shard, true);
    } else {
        if (dtype != DTYPE_FP32) {
            between = new_between(low, DTYPE_FP32, group->elements);
            shard = plan_whole_buffer(low->plan, between);
        }
        zero_move(low, PLAN_DEVICE_TO_HOST, LANE_COMPUTE, master, shard, true);
        if (between != NONE)
            emit_unary(low, LANE_HOST, work, ATEN_COPY_, between, group->shard);
    }
    if (between != NONE)
        emit_free(low, between);
}

/* ---- parameters ---- */

uint32_t zero3_new_shard(struct lowering *low, enum dtype dtype, uint64_t elements)
{
    const struct zero_offload param = {.on = true}; /* always pinned (param_groups_fp16_flat_cpu) */
    if (low->strategy->zero.param.on)
        return zero_new_host(low, CATEGORY_SHARDED_PARAM, dtype, elements, &param);
    return new_resident(low, CATEGORY_SHARDED_PARAM, LANE_COMPUTE, ATEN_EMPTY, dtype,
                        flat(elements));
}

uint32_t zero3_keep_secondary(struct lowering *low, enum dtype dtype, uint64_t elements)
{
    const struct zero_offload *o = &low->strategy->zero.param;
    if (o->on)
        return zero_new_host(low, CATEGORY_SHARDED_PARAM, dtype, elements, o);
    return new_resident(low, CATEGORY_SHARDED_PARAM, LANE_COMPUTE, ATEN_EMPTY, dtype,
                        flat(elements));
}

/* Python makes it, then pins a copy. */
uint32_t zero3_new_secondary(struct lowering *low, enum dtype dtype, uint64_t elements)
{
    const struct zero_offload *o = &low->strategy->zero.param;
    const uint8_t pool = o->on ? LANE_HOST : LANE_COMPUTE;
    const uint32_t made =
        alloc_buffer(low, CATEGORY_SHARDED_PARAM, pool, ATEN_EMPTY, dtype, flat(elements));
    if (!o->on || o->pageable)
        return made;
    const uint32_t pinned =
        new_buffer(low, CATEGORY_SHARDED_PARAM, LANE_HOST, ATEN_EMPTY_LIKE, dtype, flat(elements));
    low->plan->buffers[pinned].pinned = true;
    emit_alloc(low, pinned);
    emit_free(low, made);
    return pinned;
}

void zero3_bring_shards(struct lowering *low, uint8_t lane, struct operand *shards, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (low->plan->buffers[shards[i].place].pool != LANE_HOST)
            continue;
        const uint32_t copy = alloc_buffer(low, CATEGORY_ALL_GATHER, lane, ATEN_TO_COPY,
                                           low->plan->buffers[shards[i].place].dtype,
                                           flat(shape_elements(&shards[i].shape)));
        const struct operand here = plan_whole_buffer(low->plan, copy);
        zero_move(low, PLAN_HOST_TO_DEVICE, lane, shards[i], here, true);
        shards[i] = here;
    }
}

void zero3_drop_copies(struct lowering *low, uint8_t lane, const struct operand *shards,
                       uint32_t count)
{
    for (uint32_t i = count; low->strategy->zero.param.on && i-- > 0;)
        if (low->plan->buffers[shards[i].place].category == CATEGORY_ALL_GATHER)
            zero3_let_go(low, shards[i].place, lane);
}
