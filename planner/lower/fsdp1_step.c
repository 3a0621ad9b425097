/* fsdp1_step.c - clipping, the optimizer and zero_grad under FSDP1 (see fsdp1.c). */
#include "lower/fsdp1.h"

#include <stdlib.h>

/* What is .grad's, after backward. */
static uint32_t gradient_of(const struct lowering *low, const struct handle *handle)
{
    const struct fsdp1 *f = fsdp1_of(low);
    return f->sharded || f->kept == KEPT_HOST ? handle->gradient : handle->flat;
}

/* Says where gradients are: of flat parameters as a whole, of each original one its part. */
static void place_gradients(struct lowering *low)
{
    const struct fsdp1 *f = fsdp1_of(low);
    place_ignored_gradients(low, &f->wrapping);
    for (uint32_t u = 0, o = 0; u < f->own_count; u++) {
        const struct handle *handle = &f->handles[u];
        const uint32_t gradient = gradient_of(low, handle);
        uint64_t at = 0;
        for (uint32_t i = 0; i < handle->part_count; at += handle->parts[i++].elements) {
            const uint32_t p = handle->parts[i].param;
            if (p != NONE && gradient != NONE && low->plan->params[p].trainable)
                set_gradient(low, p, gradient, f->sharded ? 0 : at, !f->sharded);
        }
        if (low->strategy->use_orig_params || handle->part_count == 0)
            continue;
        while (low->optimized[o].param != NONE) /* in no unit */
            o++;
        low->optimized[o++].gradient =
            gradient == NONE ? no_operand() : plan_whole_buffer(low->plan, gradient);
    }
}

/* ---- FullyShardedDataParallel.clip_grad_norm_ ---- */

static uint32_t scalar_of(struct lowering *low, enum aten label, enum dtype dtype)
{
    return alloc_buffer(low, CATEGORY_OPTIMIZER, LANE_COMPUTE, label, dtype,
                        (struct shape){.rank = 0});
}

static uint32_t scalar(struct lowering *low, enum aten label)
{
    return scalar_of(low, label, DTYPE_FP32);
}

/* Elements of trained parameters that this rank has of a unit's, and in how many parameters. */
static uint64_t count_local(const struct lowering *low, const struct handle *handle,
                            uint32_t *params)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < handle->part_count; i++) {
        const uint32_t p = handle->parts[i].param;
        if (p == NONE || !low->plan->params[p].trainable)
            continue;
        const struct part part =
            plan_part(low->plan, plan_piece(low->plan, p, PIECE_STORE), low->plan->rank);
        elements += part_elements(&part);
        *params += part_elements(&part) > 0;
    }
    return elements;
}

static bool has_frozen(const struct lowering *low, const struct handle *handle)
{
    bool frozen = false;
    for (uint32_t i = 0; i < handle->part_count; i++)
        frozen |=
            handle->parts[i].param != NONE && !low->plan->params[handle->parts[i].param].trainable;
    return frozen;
}

/* What this rank has of the trained parameters' gradients; frozen ones have some beside them in the
 * shard, and no .grad. Returns how many. */
static uint32_t trained_parts(const struct lowering *low, const struct handle *handle,
                              struct operand *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < handle->part_count; i++) {
        const uint32_t p = handle->parts[i].param;
        const bool trained = p != NONE && low->plan->params[p].trainable;
        if (!trained)
            continue;
        const struct operand part =
            plan_piece_operand(low->plan, plan_piece(low->plan, p, PIECE_GRADIENT));
        if (shape_elements(&part.shape) > 0)
            out[n++] = part;
    }
    return n;
}

/* The gradient shards, of units that this rank has anything of, or their trained parts; returns how
 * many. *norms: of how many gradients PyTorch takes the norm, one by one. */
static uint32_t local_gradients(const struct lowering *low, struct operand *out, uint32_t *norms)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const bool parts = low->strategy->use_orig_params;
    uint32_t n = 0;
    *norms = 0;
    for (uint32_t u = 0; u < f->own_count; u++) {
        const struct handle *handle = &f->handles[u];
        uint32_t params = 0;
        if (handle->gradient == NONE)
            continue;
        const uint64_t elements = count_local(low, handle, &params);
        *norms += parts ? params : 1;
        if (parts && has_frozen(low, handle))
            n += trained_parts(low, handle, out + n);
        else if (elements > 0 || !parts)
            out[n++] = plan_whole_buffer(low->plan, handle->gradient);
    }
    return n;
}

/* A rank that has no gradient takes a zero that is there since the first call. */
static uint32_t no_norm(struct lowering *low)
{
    const uint32_t zero = fsdp1_of(low)->zero;
    emit_work(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_FILL, ATEN_ZEROS, PLAN_NO_GROUP, 0, NULL, 1,
              &zero);
    return zero;
}

/* The 2-norm of this rank's gradients, in fp32. There is a number for each gradient, as there is in
 * PyTorch; that of a unit's whole shard is in the first ones. */
static uint32_t local_norm(struct lowering *low, const struct operand *gradients, uint32_t n,
                           uint32_t count)
{
    struct operand *norms = xmalloc((count + 1) * sizeof *norms);
    for (uint32_t i = 0; i < count; i++)
        norms[i] = plan_whole_buffer(low->plan, scalar(low, ATEN_LINALG_VECTOR_NORM));
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_NORMS, ATEN_LINALG_VECTOR_NORM,
                 PLAN_NO_GROUP, n, gradients, n, norms);
    struct operand stacked =
        plan_whole_buffer(low->plan, alloc_buffer(low, CATEGORY_OPTIMIZER, LANE_COMPUTE, ATEN_STACK,
                                                  DTYPE_FP32, SHAPE(count)));
    stacked.shape = SHAPE(n);
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_STACK, ATEN_STACK, PLAN_NO_GROUP, n, norms,
                 1, &stacked);
    for (uint32_t i = 0; i < count; i++)
        emit_free(low, norms[i].place);
    const struct operand norm = plan_whole_buffer(low->plan, scalar(low, ATEN_LINALG_VECTOR_NORM));
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_VECTOR_NORM, ATEN_LINALG_VECTOR_NORM,
                 PLAN_NO_GROUP, 1, &stacked, 1, &norm);
    emit_free(low, stacked.place);
    free(norms);
    return norm.place;
}

/* Every gradient (n operands behind the first of `scaled`; PyTorch has `count`) times the
 * coefficient, which is cast to its dtype for each. Returns the norm in that dtype. */
static uint32_t scale(struct lowering *low, struct operand *scaled, uint32_t n, uint32_t count,
                      uint32_t coefficient, uint32_t norm)
{
    const enum dtype dtype = n ? (enum dtype)scaled[1].dtype : DTYPE_FP32;
    const bool casts = dtype != DTYPE_FP32;
    for (uint32_t i = 0; i < count && casts; i++) {
        if (i > 0)
            emit_free(low, scaled[0].place);
        const uint32_t cast = scalar_of(low, ATEN_TO_COPY, dtype);
        emit_unary(low, LANE_COMPUTE, WORK_CAST, ATEN_TO_COPY, coefficient, cast);
        scaled[0] = plan_whole_buffer(low->plan, cast);
    }
    if (!casts)
        scaled[0] = plan_whole_buffer(low->plan, coefficient);
    if (n == 0)
        return norm;
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_SCALE, ATEN_FOREACH_MUL_, PLAN_NO_GROUP,
                 n + 1, scaled, n, scaled + 1);
    if (!casts)
        return norm;
    emit_free(low, scaled[0].place);
    const uint32_t returned = scalar_of(low, ATEN_TO_COPY, dtype);
    emit_unary(low, LANE_COMPUTE, WORK_CAST, ATEN_TO_COPY, norm, returned);
    return returned;
}

/* coefficient = clamp(max_norm / (total + 1e-6), max=1), and every gradient times it. */
static void clip(struct lowering *low)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const size_t most = (size_t)f->own_count + low->plan->param_count + 1;
    struct operand *scaled = xmalloc(most * sizeof *scaled);
    uint32_t count;
    const uint32_t n = local_gradients(low, scaled + 1, &count);
    const bool none = n == 0 && f->zero != NONE;
    const uint32_t local = none ? no_norm(low) : local_norm(low, scaled + 1, n, count);
    const uint32_t square = scalar(low, ATEN_POW);
    emit_unary(low, LANE_COMPUTE, WORK_SQUARE, ATEN_POW, local, square);
    emit_work(low, PLAN_ALL_REDUCE, LANE_COMPUTE, WORK_ALL_REDUCE_SUM, ATEN_ALL_REDUCE, f->group, 1,
              &square, 1, &square);
    const uint32_t total = scalar(low, ATEN_POW);
    emit_unary(low, LANE_COMPUTE, WORK_SQUARE_ROOT, ATEN_POW, square, total);
    emit_free(low, square);
    const uint32_t denominator = scalar(low, ATEN_ADD), inverse = scalar(low, ATEN_RECIPROCAL);
    const uint32_t ratio = scalar(low, ATEN_MUL);
    emit_free(low, inverse);
    emit_free(low, denominator);
    const uint32_t clamped = scalar(low, ATEN_CLAMP);
    const uint32_t clamp =
        emit_unary(low, LANE_COMPUTE, WORK_CLIP_COEFFICIENT, ATEN_CLAMP, total, clamped);
    plan_own_kernel(low->plan, clamp)->attr.p = low->strategy->max_norm;
    const uint32_t returned = scale(low, scaled, n, count, clamped, total);
    if (!none)
        emit_free(low, local);
    if (returned != total)
        emit_free(low, total);
    emit_free(low, ratio);
    emit_free(low, clamped);
    emit_free(low, returned);
    free(scaled);
}

/* ---- the step ---- */

void fsdp1_update(struct lowering *low)
{
    place_gradients(low);
    if (low->strategy->max_norm > 0) {
        if (fsdp1_of(low)->sharded)
            clip(low);
        else
            emit_clip(low);
    }
    emit_optimizer(low);
}

/* Gradients go in the optimizer's order: those of what is in no unit that come before a unit's flat
 * parameter (NULL: all that are left), from `o` of low->optimized on. Returns where it is now. */
static uint32_t drop_ignored(struct lowering *low, const struct handle *handle, uint32_t o)
{
    const struct wrapping *w = &fsdp1_of(low)->wrapping;
    if (handle && (handle->part_count == 0 || low->strategy->use_orig_params))
        return o;
    for (; o < low->optimized_count; o++) {
        const uint32_t p = low->optimized[o].param;
        if (p == NONE && handle)
            return o + 1;
        if (p != NONE && is_ignored(w, p))
            drop_gradient(low, p);
    }
    return o;
}

/* record_stream: the flat gradient is the hook's, too (_post_backward_hook); what was reduced to a
 * shard is the all-reduce's (_reduce_grad), and what is copied to the host the hook's
 * (_offload_grad). The rest is of the stream that it was made on alone. */
static uint8_t other_user(const struct lowering *low, uint32_t buffer)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const bool replicates = f->replicate_group != PLAN_NO_GROUP;
    const uint16_t label = low->plan->buffers[buffer].label;
    if (label == ATEN_CAT || (replicates && label == ATEN_TO_COPY && f->kept == KEPT_HOST))
        return f->post_backward;
    return replicates && label == ATEN_EMPTY_LIKE ? f->all_reduce : LANE_COMPUTE;
}

void fsdp1_free_gradient(struct lowering *low, uint32_t buffer)
{
    const uint8_t lane = other_user(low, buffer);
    if (lane == LANE_COMPUTE)
        emit_free(low, buffer);
    else
        emit_free_after(low, buffer, lane);
}

void fsdp1_zero_grad(struct lowering *low)
{
    struct fsdp1 *f = low->state;
    uint32_t last = 0;
    for (uint32_t u = 0, o = 0; u < f->own_count; u++) {
        struct handle *handle = &f->handles[u];
        o = drop_ignored(low, handle, o);
        /* what the host has for it is always there */
        const uint32_t gradient = f->kept == KEPT_HOST ? NONE : gradient_of(low, handle);
        if (gradient != NONE && !low->strategy->use_orig_params)
            fsdp1_free_gradient(low, gradient);
        handle->carried = gradient != NONE && low->strategy->use_orig_params;
        handle->gradient = handle->flat = NONE;
        handle->exposed = handle->hosted = handle->stale = false;
        last = o;
    }
    drop_ignored(low, NULL, last);
    struct root *const roots[] = {&f->root, &f->beside};
    for (int r = 0; r < 2; r++)
        for (uint32_t i = 0; i < roots[r]->free_count; i++) /* the step's end has passed them */
            roots[r]->free_events[roots[r]->free_first + i] = NONE;
}

/* Whether none of the original parameters has a .grad: this rank has no part of any that is
 * trained. */
static bool shows_nothing(const struct lowering *low, const struct handle *handle)
{
    uint32_t params = 0;
    return low->strategy->use_orig_params && fsdp1_of(low)->sharded &&
           count_local(low, handle, &params) == 0;
}

/* _reset_flat_param_grad_info_if_needed: a flat gradient goes unless an original parameter has a
 * part of it. In the first micro-batch zero_grad has taken all of those. */
void fsdp1_drop_gradients(struct lowering *low)
{
    struct fsdp1 *f = low->state;
    for (uint32_t u = 0; u < f->own_count; u++) {
        struct handle *handle = &f->handles[u];
        if (handle->gradient == NONE || !shows_nothing(low, handle))
            continue;
        fsdp1_free_gradient(low, handle->gradient);
        handle->gradient = NONE;
    }
    low->here.flags |= PLAN_LATER_STEPS;
    for (uint32_t u = 0; u < f->own_count; u++) {
        if (f->handles[u].carried)
            fsdp1_free_gradient(low, f->handles[u].kept);
        f->handles[u].carried = false;
    }
    low->here.flags &= (uint8_t)~PLAN_LATER_STEPS;
}
