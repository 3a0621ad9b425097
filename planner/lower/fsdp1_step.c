/* fsdp1_step.c - clipping, the optimizer and zero_grad under FSDP1 (see fsdp1.c). */
#include "lower/fsdp1.h"

#include <stdlib.h>

/* What is .grad's, after backward. */
static uint32_t gradient_of(const struct lowering *low, const struct handle *handle)
{
    return fsdp1_of(low)->sharded ? handle->gradient : handle->flat;
}

/* Says where gradients are: of flat parameters as a whole, of each original one its part. */
static void place_gradients(struct lowering *low)
{
    const struct fsdp1 *f = fsdp1_of(low);
    for (uint32_t u = 0, o = 0; u < f->handle_count; u++) {
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
        low->optimized[o++].gradient =
            gradient == NONE ? no_operand() : plan_whole_buffer(low->plan, gradient);
    }
}

/* ---- FullyShardedDataParallel.clip_grad_norm_ ---- */

static uint32_t scalar(struct lowering *low, enum aten label)
{
    return alloc_buffer(low, CATEGORY_OPTIMIZER, LANE_COMPUTE, label, DTYPE_FP32,
                        (struct shape){.rank = 0});
}

/* Gradients that this rank has anything of; returns how many. */
static uint32_t local_gradients(const struct lowering *low, struct operand *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < low->optimized_count; i++) {
        const struct optimized *o = &low->optimized[i];
        struct operand gradient = o->gradient;
        if (o->param != NONE)
            gradient = plan_piece(low->plan, o->param, PIECE_GRADIENT)
                           ? plan_updated_operand(low->plan, o->param, PIECE_GRADIENT)
                           : no_operand();
        if (gradient.place != NONE && shape_elements(&gradient.shape) > 0)
            out[n++] = gradient;
    }
    return n;
}

/* The 2-norm of this rank's gradients, in fp32. */
static uint32_t local_norm(struct lowering *low, const struct operand *gradients, uint32_t n)
{
    struct operand *norms = xmalloc((n + 1) * sizeof *norms);
    for (uint32_t i = 0; i < n; i++)
        norms[i] = plan_whole_buffer(low->plan, scalar(low, ATEN_LINALG_VECTOR_NORM));
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_NORMS, ATEN_LINALG_VECTOR_NORM,
                 PLAN_NO_GROUP, n, gradients, n, norms);
    const uint32_t stacked =
        alloc_buffer(low, CATEGORY_OPTIMIZER, LANE_COMPUTE, ATEN_STACK, DTYPE_FP32, SHAPE(n));
    const struct operand all = plan_whole_buffer(low->plan, stacked);
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_STACK, ATEN_STACK, PLAN_NO_GROUP, n, norms,
                 1, &all);
    for (uint32_t i = 0; i < n; i++)
        emit_free(low, norms[i].place);
    const uint32_t norm = scalar(low, ATEN_LINALG_VECTOR_NORM);
    emit_unary(low, LANE_COMPUTE, WORK_VECTOR_NORM, ATEN_LINALG_VECTOR_NORM, stacked, norm);
    emit_free(low, stacked);
    free(norms);
    return norm;
}

/* coefficient = clamp(max_norm / (total + 1e-6), max=1), and every gradient times it. */
static void clip(struct lowering *low)
{
    struct operand *scaled = xmalloc((low->optimized_count + 1) * sizeof *scaled);
    const uint32_t n = local_gradients(low, scaled + 1);
    const uint32_t local = local_norm(low, scaled + 1, n);
    const uint32_t square = scalar(low, ATEN_POW);
    emit_unary(low, LANE_COMPUTE, WORK_SQUARE, ATEN_POW, local, square);
    emit_work(low, PLAN_ALL_REDUCE, LANE_COMPUTE, WORK_ALL_REDUCE_SUM, ATEN_ALL_REDUCE,
              fsdp1_of(low)->group, 1, &square, 1, &square);
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
    emit_free(low, local);
    emit_free(low, ratio);
    scaled[0] = plan_whole_buffer(low->plan, clamped);
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_SCALE, ATEN_FOREACH_MUL_, PLAN_NO_GROUP,
                 n + 1, scaled, n, scaled + 1);
    emit_free(low, clamped);
    emit_free(low, total);
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

void fsdp1_zero_grad(struct lowering *low)
{
    struct fsdp1 *f = low->state;
    for (uint32_t u = 0; u < f->handle_count; u++) {
        struct handle *handle = &f->handles[u];
        const uint32_t gradient = gradient_of(low, handle);
        if (gradient != NONE && !low->strategy->use_orig_params)
            emit_free(low, gradient);
        handle->carried = gradient != NONE && low->strategy->use_orig_params;
        handle->gradient = handle->flat = NONE;
        handle->exposed = false;
    }
    for (uint32_t i = 0; i < f->free_count; i++) /* the step's end has passed them */
        f->free_events[f->free_first + i] = NONE;
}

void fsdp1_drop_gradients(struct lowering *low)
{
    struct fsdp1 *f = low->state;
    low->here.flags |= PLAN_LATER_STEPS;
    for (uint32_t u = 0; u < f->handle_count; u++) {
        if (f->handles[u].carried)
            emit_free(low, f->handles[u].kept);
        f->handles[u].carried = false;
    }
    low->here.flags &= (uint8_t)~PLAN_LATER_STEPS;
}
