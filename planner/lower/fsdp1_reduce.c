/* fsdp1_reduce.c - from the gradients of a unit's parameters to its gradient shard (see fsdp1.c).
 *
 *     autograd       zeros for the padding; cat: the flat gradient; zeros and single gradients die
 *     post-backward  reshard; cast to the reduction dtype; pad to N shards; divide; reduce-scatter;
 *                    [all-reduce over replicas]; divide; cast to the stored dtype; add to what
 *                    earlier micro-batches left; cast and pad die
 *     autograd       the flat gradient dies
 *
 * Without sharding the flat gradient itself is all-reduced. Under no_sync it stays, and the next
 * one is added to it.
 *
 * One of the tensors made here is what the optimizer reads. Its buffer is the handle's own
 * (`kept`): under use_orig_params it lives into the next step, which must know it. */
#include "lower/fsdp1.h"

#include <stdlib.h>

static enum dtype dtype_of(const struct lowering *low, uint32_t buffer)
{
    return (enum dtype)low->plan->buffers[buffer].dtype;
}

/* ---- autograd ---- */

static uint32_t zeros(struct lowering *low, uint64_t elements)
{
    const uint32_t buffer = alloc_buffer(low, CATEGORY_BACKWARD, LANE_COMPUTE, ATEN_ZEROS,
                                         low->strategy->compute, flat(elements));
    emit_work(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_FILL, ATEN_ZEROS, PLAN_NO_GROUP, 0, NULL, 1,
              &buffer);
    return buffer;
}

/* Whether the part's gradient is zeros: padding, or a parameter that nothing used. */
static bool is_zero(const struct lowering *low, const struct flat_part *part)
{
    return part->param == NONE || low->grad[part->param].place == NONE;
}

static void free_parts(struct lowering *low, const struct handle *handle, const uint32_t *parts,
                       bool padding)
{
    for (uint32_t i = 0; i < handle->part_count; i++)
        if (is_zero(low, &handle->parts[i]) == padding)
            emit_free(low, parts[i]);
}

/* The backward of each view, last first: its reshape copies what lies otherwise than the view. */
static void lay_out(struct lowering *low, const struct handle *handle)
{
    for (uint32_t i = handle->part_count; i-- > 0;) {
        const uint32_t p = handle->parts[i].param;
        if (p == NONE || low->grad[p].place == NONE || !low->strided[p])
            continue;
        const struct operand strided = low->grad[p];
        low->grad[p] = plan_whole_buffer(
            low->plan, alloc_buffer(low, CATEGORY_BACKWARD, LANE_COMPUTE, ATEN_CLONE,
                                    (enum dtype)strided.dtype, low->plan->params[p].shape));
        emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_COPY, ATEN_CLONE, PLAN_NO_GROUP, 1,
                     &strided, 1, &low->grad[p]);
        emit_free(low, strided.place);
    }
}

/* The backward of the views. */
static uint32_t concatenate(struct lowering *low, struct handle *handle)
{
    const struct fsdp1 *f = fsdp1_of(low);
    uint32_t *parts = xmalloc((handle->part_count + 1) * sizeof *parts);
    lay_out(low, handle);
    for (uint32_t i = 0; i < handle->part_count; i++)
        parts[i] = is_zero(low, &handle->parts[i]) ? zeros(low, handle->parts[i].elements)
                                                   : low->grad[handle->parts[i].param].place;
    uint32_t cat = handle->kept;
    if (f->kept == KEPT_CAT && handle->flat == NONE)
        emit_alloc(low, cat);
    else
        cat = alloc_buffer(low, CATEGORY_BACKWARD, LANE_COMPUTE, ATEN_CAT, low->strategy->compute,
                           flat(handle->elements));
    emit_work(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_PACK, ATEN_CAT, PLAN_NO_GROUP,
              handle->part_count, parts, 1, &cat);
    free_parts(low, handle, parts, true);
    free_parts(low, handle, parts, false);
    for (uint32_t i = 0; i < handle->part_count; i++)
        if (handle->parts[i].param != NONE)
            low->grad[handle->parts[i].param] = no_operand();
    free(parts);
    return cat;
}

/* ---- .grad of the original parameters ---- */

/* `param.grad = empty_like(param)` for its dtype, shape and device; what it is to be is put in its
 * place at once. */
static void expose(struct lowering *low, uint32_t param)
{
    const struct plan_piece *store = plan_piece(low->plan, param, PIECE_STORE);
    struct operand local = plan_piece_operand(low->plan, store);
    if (shape_elements(&local.shape) == 0)
        return;
    const uint8_t pool = low->strategy->offload ? LANE_HOST : LANE_COMPUTE;
    const uint32_t buffer = new_buffer(low, CATEGORY_REDUCE_SCATTER, pool, ATEN_EMPTY_LIKE,
                                       low->strategy->store, local.shape);
    low->plan->buffers[buffer].local = local.local;
    emit_alloc(low, buffer);
    emit_free(low, buffer);
}

/* _use_unsharded_grad_views: of frozen ones, too. */
static void expose_unsharded(struct lowering *low, struct handle *handle)
{
    const struct strategy *s = low->strategy;
    if (!s->use_orig_params)
        return;
    for (uint32_t i = 0; i < handle->part_count && !handle->exposed; i++) {
        const uint32_t p = handle->parts[i].param;
        if (p == NONE || (handle->hosted && low->plan->params[p].trainable))
            continue;
        const struct operand local =
            plan_piece_operand(low->plan, plan_piece(low->plan, p, PIECE_STORE));
        const struct shape *whole = &low->plan->params[p].shape;
        if (s->compute != s->store || local.shape.rank != whole->rank ||
            shape_elements(&local.shape) != shape_elements(whole))
            expose(low, p);
    }
    handle->exposed = true;
}

/* _use_sharded_grad_views, `gradient` being what they are views of. */
static void expose_sharded(struct lowering *low, struct handle *handle, uint32_t gradient)
{
    const struct strategy *s = low->strategy;
    if (!s->use_orig_params)
        return;
    const bool other = s->keep_low_precision_grads || dtype_of(low, gradient) != s->store;
    for (uint32_t i = 0; i < handle->part_count && !handle->exposed && other; i++) {
        const uint32_t p = handle->parts[i].param;
        if (p != NONE && low->plan->params[p].trainable)
            expose(low, p);
    }
    handle->exposed = true;
    if (handle->shown != NONE)
        emit_free(low, handle->shown);
    handle->shown = NONE;
}

void fsdp1_expose_host(struct lowering *low, struct handle *handle)
{
    const struct strategy *s = low->strategy;
    const bool resharded = fsdp1_of(low)->reshards && handle->flat == NONE;
    if (!s->offload || !s->use_orig_params || !resharded)
        return;
    for (uint32_t i = 0; i < handle->part_count; i++) {
        const uint32_t p = handle->parts[i].param;
        if (p == NONE || !low->plan->params[p].trainable)
            continue;
        const struct operand local =
            plan_piece_operand(low->plan, plan_piece(low->plan, p, PIECE_STORE));
        handle->stale = handle->hosted |= shape_elements(&local.shape) > 0;
    }
}

/* ---- the reduction ---- */

static void divide(struct lowering *low, uint8_t lane, uint32_t buffer, float by)
{
    if (by <= 1)
        return;
    const struct operand x = plan_whole_buffer(low->plan, buffer);
    const uint32_t kernel = emit_work_on(low, PLAN_COMPUTE, lane, WORK_MUL_NUMBER, ATEN_DIV_,
                                         PLAN_NO_GROUP, 1, &x, 1, &x);
    plan_own_kernel(low->plan, kernel)->attr.p = 1 / by;
}

/* A tensor of the hook; the handle's own buffer if it is the one that is kept. */
static uint32_t born(struct lowering *low, const struct handle *handle, bool kept, uint8_t lane,
                     enum aten label, enum dtype dtype, uint64_t elements)
{
    if (!kept)
        return alloc_buffer(low, CATEGORY_REDUCE_SCATTER, lane, label, dtype, flat(elements));
    emit_alloc(low, handle->kept);
    return handle->kept;
}

static bool is_last(const struct lowering *low)
{
    return low->micro_batch + 1 == low->strategy->accumulate;
}

static uint32_t cast_on(struct lowering *low, const struct handle *handle, bool kept, uint8_t lane,
                        enum dtype dtype, uint32_t from)
{
    const uint64_t elements = low->plan->buffers[from].bytes / dtype_bytes(dtype_of(low, from));
    const uint32_t to = born(low, handle, kept, lane, ATEN_TO_COPY, dtype, elements);
    emit_unary(low, lane, WORK_CAST, ATEN_TO_COPY, from, to);
    return to;
}

/* _get_reduce_scatter_tensors: as many elements as all shards have. */
static uint32_t pad(struct lowering *low, const struct handle *handle, uint32_t from)
{
    const struct fsdp1 *f = fsdp1_of(low);
    if (handle->shard * f->ranks == handle->elements)
        return from;
    const uint32_t padded =
        alloc_buffer(low, CATEGORY_REDUCE_SCATTER, f->post_backward, ATEN_CONSTANT_PAD,
                     low->strategy->reduce, flat(handle->shard * f->ranks));
    emit_unary(low, f->post_backward, WORK_PAD, ATEN_CONSTANT_PAD, from, padded);
    return padded;
}

/* _accumulate_sharded_grad: `shard` becomes .grad, or is added to it. Returns it if it was only
 * added, or NONE. */
static uint32_t accumulate_shard(struct lowering *low, struct handle *handle, uint32_t shard,
                                 uint8_t lane)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const struct strategy *s = low->strategy;
    const bool first = handle->gradient == NONE;
    if (s->reduce != s->store) {
        const uint32_t reduced = shard;
        shard = cast_on(low, handle, f->kept == KEPT_CAST && first, lane, s->store, reduced);
        emit_use(low, reduced, lane); /* _cast_grad_to_param_dtype says so again */
        emit_free_after(low, reduced, lane);
    }
    if (first)
        handle->gradient = shard;
    else
        emit_unary(low, lane, WORK_ADD_IN_PLACE, ATEN_ADD_, shard, handle->gradient);
    expose_sharded(low, handle, handle->gradient);
    return first ? NONE : shard;
}

/* _offload_grad: `gradient` stays until the final callback. */
static void offload(struct lowering *low, struct handle *handle, uint32_t gradient, uint8_t lane)
{
    handle->gradient = gradient;
    emit_work(low, PLAN_DEVICE_TO_HOST, lane, WORK_COPY, ATEN_COPY_, PLAN_NO_GROUP, 1, &gradient, 1,
              &handle->kept);
    emit_use(low, gradient, fsdp1_of(low)->post_backward);
}

/* _reduce_grad: `flat` is the flat gradient, `gradient` that in the reduction dtype. */
static void reduce_shard(struct lowering *low, struct handle *handle, uint32_t flat_gradient,
                         uint32_t gradient)
{
    const struct fsdp1 *f = fsdp1_of(low);
    uint8_t lane = f->post_backward;
    const uint32_t padded = pad(low, handle, gradient);
    const uint32_t shard = born(low, handle, f->kept == KEPT_REDUCED && handle->gradient == NONE,
                                lane, ATEN_EMPTY_LIKE, low->strategy->reduce, handle->shard);
    divide(low, lane, padded, f->before);
    emit_work(low, PLAN_REDUCE_SCATTER, lane, WORK_REDUCE_SCATTER_SUM, ATEN_REDUCE_SCATTER_TENSOR,
              f->group, 1, &padded, 1, &shard);
    if (f->replicate_group != PLAN_NO_GROUP) {
        lane = f->all_reduce;
        emit_sync(low, lane, f->post_backward);
        emit_use(low, shard, lane);
        emit_work(low, PLAN_ALL_REDUCE, lane, WORK_ALL_REDUCE_SUM, ATEN_ALL_REDUCE,
                  f->replicate_group, 1, &shard, 1, &shard);
    }
    divide(low, lane, shard, f->after);
    const uint32_t added = accumulate_shard(low, handle, shard, lane);
    if (handle->hosted) /* which read it, before it issued anything of this */
        emit_sync(low, lane, LANE_HOST);
    if (f->kept == KEPT_HOST)
        offload(low, handle, handle->gradient, lane);
    if (gradient != flat_gradient)
        emit_free(low, gradient);
    if (padded != gradient)
        emit_free(low, padded);
    if (added != NONE)
        emit_free_after(low, added, lane);
}

/* _reduce_grad_no_shard: in place. Returns what the gradient is in now. */
static uint32_t reduce_whole(struct lowering *low, struct handle *handle, uint32_t flat_gradient,
                             uint32_t gradient)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const struct strategy *s = low->strategy;
    const uint8_t lane = f->post_backward;
    uint32_t reduced = gradient;
    divide(low, lane, gradient, f->before);
    if (f->group != PLAN_NO_GROUP)
        emit_work(low, PLAN_ALL_REDUCE, lane, WORK_ALL_REDUCE_SUM, ATEN_ALL_REDUCE, f->group, 1,
                  &gradient, 1, &gradient);
    divide(low, lane, gradient, f->after);
    if (!s->keep_low_precision_grads && s->reduce != s->store) {
        reduced =
            cast_on(low, handle, f->kept == KEPT_CAST && is_last(low), lane, s->store, gradient);
        if (gradient != flat_gradient)
            emit_free(low, gradient);
    }
    if (f->kept == KEPT_HOST)
        offload(low, handle, reduced, lane);
    expose_sharded(low, handle, reduced);
    return f->kept == KEPT_HOST ? NONE : reduced;
}

/* The hook, on the stream post_backward. Returns what the flat gradient of the handle is then. */
static uint32_t reduce(struct lowering *low, struct handle *handle, uint32_t flat_gradient)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const enum dtype dtype = low->strategy->reduce;
    uint32_t gradient = flat_gradient;
    emit_sync(low, f->post_backward, LANE_COMPUTE);
    if (dtype_of(low, flat_gradient) != dtype)
        gradient = cast_on(low, handle, !f->sharded && f->kept == KEPT_REDUCED, f->post_backward,
                           dtype, flat_gradient);
    if (!f->sharded)
        return reduce_whole(low, handle, flat_gradient, gradient);
    reduce_shard(low, handle, flat_gradient, gradient);
    return NONE;
}

void fsdp1_reduce(struct lowering *low, struct handle *handle)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const uint32_t cat = concatenate(low, handle), held = handle->flat;
    if (held != NONE)
        emit_unary(low, LANE_COMPUTE, WORK_ADD_IN_PLACE, ATEN_ADD_, cat, held);
    const uint32_t gradient = held != NONE ? held : cat;
    const uint32_t before = enter_scope(low, "_post_backward_hook", handle->unit, true);
    fsdp1_reshard(low, handle, fsdp1_frees_in_backward(low));
    fsdp1_prefetch_backward(low, handle, PREFETCH_POST);
    handle->flat = gradient;
    if (low->sync)
        handle->flat = reduce(low, handle, gradient);
    else
        expose_unsharded(low, handle);
    if (low->sync && handle->flat == gradient) /* otherwise its free says so */
        emit_use(low, gradient, f->post_backward);
    if (held != NONE && handle->flat != held)
        emit_free_after(low, held, f->post_backward);
    leave_scope(low, before);
    /* The engine holds what it gave to the hook. */
    if (held != NONE)
        emit_free(low, cat);
    else if (handle->flat != cat)
        emit_free_after(low, cat, f->post_backward);
}

/* ---- keep_low_precision_grads ---- */

/* A shard's gradient in another dtype, on the compute stream. */
static void recast(struct lowering *low, struct handle *handle, bool kept, enum dtype dtype)
{
    const uint32_t from = handle->gradient;
    uint32_t to = handle->kept;
    if (kept)
        emit_alloc(low, to);
    else
        to = alloc_buffer(low, CATEGORY_BACKWARD, LANE_COMPUTE, ATEN_TO_COPY, dtype,
                          flat(handle->shard));
    emit_unary(low, LANE_COMPUTE, WORK_CAST, ATEN_TO_COPY, from, to);
    handle->gradient = to;
}

void fsdp1_finish_gradient(struct lowering *low, struct handle *handle)
{
    const struct strategy *s = low->strategy;
    if (low->sync && fsdp1_of(low)->kept == KEPT_HOST && handle->gradient != NONE) {
        fsdp1_free_gradient(low, handle->gradient);
        handle->gradient = handle->kept;
    }
    if (low->sync && s->keep_low_precision_grads && handle->gradient != NONE &&
        dtype_of(low, handle->gradient) != s->compute) {
        const uint32_t from = handle->gradient;
        recast(low, handle, is_last(low), s->compute);
        fsdp1_free_gradient(low, from);
    }
}

void fsdp1_resume_gradient(struct lowering *low, struct handle *handle)
{
    const struct strategy *s = low->strategy;
    const uint32_t from = handle->gradient;
    if (handle->restored != NONE)
        emit_free(low, handle->restored);
    handle->restored = NONE;
    if (!s->keep_low_precision_grads || from == NONE || dtype_of(low, from) == s->store)
        return;
    recast(low, handle, false, s->store);
    if (s->use_orig_params)
        handle->shown = from;
    else
        emit_free(low, from);
}
