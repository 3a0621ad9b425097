/* fsdp2_reduce.c - from unsharded gradients to sharded ones: post_backward of one unit (see
 * fsdp2.c). */
#include "lower/fsdp2.h"

#include <stdlib.h>

/* FSDPParam.accumulate_unsharded_grad_if_needed, for gradients held in the reduce dtype. */
static void accumulate_unsharded(struct lowering *low, struct unit *unit)
{
    const struct fsdp2 *f = fsdp2_of(low);
    for (uint32_t i = 0; i < unit->count; i++) {
        const uint32_t p = unit->params[i], grad = low->grad[p].place;
        if (grad == NONE)
            continue;
        emit_unary(low, LANE_COMPUTE, WORK_ADD_IN_PLACE, ATEN_ADD_, grad, f->accumulated[p]);
        emit_free(low, grad);
        low->grad[p] = no_operand();
    }
}

/* FSDPParam.to_accumulated_grad_if_needed: a no-sync backward keeps gradients unsharded. */
static void hold_unsharded(struct lowering *low, struct unit *unit)
{
    const struct fsdp2 *f = fsdp2_of(low);
    unit->accumulated = true;
    for (uint32_t i = 0; i < unit->count; i++) {
        const uint32_t p = unit->params[i], grad = low->grad[p].place;
        if (grad == NONE)
            continue;
        f->accumulated[p] = alloc_buffer(low, CATEGORY_REDUCE_SCATTER, LANE_COMPUTE, ATEN_TO_COPY,
                                         low->strategy->reduce, low->plan->params[p].shape);
        emit_unary(low, LANE_COMPUTE, WORK_CAST, ATEN_TO_COPY, grad, f->accumulated[p]);
        emit_free(low, grad);
        low->grad[p] = no_operand();
    }
}

/* Moves the gradients to reduce into `grads`, in unit order and in their parameters' shapes, whose
 * rows decide the chunks; returns how many. */
static uint32_t take_grads(struct lowering *low, struct unit *unit, struct operand *grads)
{
    const struct fsdp2 *f = fsdp2_of(low);
    uint32_t count = 0;
    for (uint32_t i = 0; i < unit->count; i++) {
        const uint32_t p = unit->params[i];
        struct operand grad = low->grad[p];
        if (unit->accumulated && f->accumulated[p] != NONE)
            grad = plan_whole_buffer(low->plan, f->accumulated[p]);
        f->accumulated[p] = NONE;
        low->grad[p] = no_operand();
        if (grad.place != NONE)
            grads[count++] = grad;
    }
    unit->accumulated = false;
    return count;
}

void release_retained(struct lowering *low)
{
    struct fsdp2 *f = low->state;
    if (f->retained == NONE)
        return;
    emit_wait(low, LANE_COMPUTE, f->retained_event);
    emit_free(low, f->retained);
    f->retained = NONE;
}

/* After the reduction: cast to the store dtype, then `.grad = view` or `.grad += view`. Returns
 * the buffer that dies on return when it was only added, NONE otherwise. */
static uint32_t store_gradient(struct lowering *low, struct unit *unit, uint32_t reduced,
                               uint8_t lane)
{
    const struct fsdp2 *f = fsdp2_of(low);
    const struct strategy *s = low->strategy;
    uint32_t gradient = reduced;
    if (s->reduce != s->store) {
        gradient = alloc_buffer(low, CATEGORY_REDUCE_SCATTER, lane, ATEN_TO_COPY, s->store,
                                flat(unit->trained_elements));
        emit_unary(low, lane, WORK_CAST, ATEN_TO_COPY, reduced, gradient);
        if (f->replicas == 1)
            emit_free(low, reduced);
        else
            unit->all_reduce_held = reduced;
    }
    if (s->offload) {
        const uint32_t host = new_buffer(low, CATEGORY_REDUCE_SCATTER, LANE_HOST, ATEN_TO_COPY,
                                         s->store, flat(unit->trained_elements));
        if (unit->sharded_grad == NONE) {
            emit_alloc(low, host);
            unit->sharded_grad = host;
        }
        emit_work(low, PLAN_DEVICE_TO_HOST, lane, WORK_COPY, ATEN_COPY_, PLAN_NO_GROUP, 1,
                  &gradient, 1, &unit->sharded_grad);
        emit_free(low, gradient);
        return NONE;
    }
    if (unit->sharded_grad == NONE) {
        unit->sharded_grad = gradient;
        return NONE;
    }
    emit_unary(low, lane, WORK_ADD_IN_PLACE, ATEN_ADD_, gradient, unit->sharded_grad);
    if (f->replicas == 1 || s->reduce != s->store)
        return gradient;
    unit->all_reduce_held = gradient; /* the AllReduceState still refers to it */
    return NONE;
}

static void foreach_reduce(struct lowering *low, struct unit *unit, const struct operand *grads,
                           uint32_t count)
{
    struct fsdp2 *f = low->state;
    const enum dtype dtype = low->strategy->reduce;
    const uint64_t shard = unit->trained_elements;
    const bool alone = f->shard_ranks == 1;
    const uint32_t before = enter_scope(low, "foreach_reduce", unit->index, false);
    const uint32_t input = alloc_buffer(low, CATEGORY_REDUCE_SCATTER, LANE_COMPUTE, ATEN_EMPTY,
                                        dtype, flat(shard * f->shard_ranks));
    const struct operand cat = plan_whole_buffer(low->plan, input);
    emit_work_on(low, PLAN_COPY_IN, LANE_COMPUTE, WORK_CHUNK_CAT, ATEN_CHUNK_CAT, f->shard_group,
                 count, grads, 1, &cat);
    if (alone) /* no loop variable is left over here: all die, in unit order reversed as a list */
        emit_free(low, grads[count - 1].place);
    for (uint32_t i = count - 1; i-- > 0;)
        emit_free(low, grads[i].place);

    emit_sync(low, f->reduce_scatter, LANE_COMPUTE);
    const uint32_t output = alloc_buffer(low, CATEGORY_REDUCE_SCATTER, f->reduce_scatter,
                                         ATEN_EMPTY, dtype, flat(shard));
    if (alone)
        emit_unary(low, f->reduce_scatter, WORK_COPY, ATEN_COPY_, input, output);
    else
        emit_work(low, PLAN_REDUCE_SCATTER, f->reduce_scatter, WORK_REDUCE_SCATTER_AVG,
                  ATEN_REDUCE_SCATTER_TENSOR, f->shard_group, 1, &input, 1, &output);
    f->retained_event = emit_record(low, f->reduce_scatter);
    uint8_t last = f->reduce_scatter;
    if (f->replicas > 1) {
        last = f->all_reduce;
        emit_wait(low, last, f->retained_event);
        emit_work(low, PLAN_ALL_REDUCE, last, WORK_ALL_REDUCE_AVG, ATEN_ALL_REDUCE,
                  f->replicate_group, 1, &output, 1, &output);
    }
    const uint32_t added = store_gradient(low, unit, output, last);
    emit_record(low, last);
    if (!alone)
        emit_free(low, grads[count - 1].place);
    if (added != NONE)
        emit_free(low, added);
    f->retained = input;
    leave_scope(low, before);
}

void post_backward(struct lowering *low, struct unit *unit)
{
    const struct strategy *s = low->strategy;
    unit->post_backward_ran = true;
    if (!unit->count)
        return;
    const uint32_t before = enter_scope(low, "post_backward", unit->index, true);
    const bool held = unit->accumulated;
    if (held)
        accumulate_unsharded(low, unit);
    if (!low->sync) {
        reshard_after_backward(low, unit);
        if (!held && s->reduce != s->compute)
            hold_unsharded(low, unit);
        leave_scope(low, before);
        return;
    }
    struct operand *grads = xmalloc(unit->count * sizeof *grads);
    const uint32_t count = take_grads(low, unit, grads);
    reshard_after_backward(low, unit);
    release_retained(low);
    if (count)
        foreach_reduce(low, unit, grads, count);
    free(grads);
    leave_scope(low, before);
}

/* zero_grad(set_to_none=True): a unit's gradients are views of one buffer, which goes with the
 * last of them. */
void fsdp2_zero_grad(struct lowering *low)
{
    const struct plan *plan = low->plan;
    for (uint32_t p = 0; p < plan->param_count; p++) {
        struct unit *unit = &fsdp2_of(low)->units[plan->params[p].unit];
        if (p == unit->last_trainable && unit->sharded_grad != NONE) {
            emit_free(low, unit->sharded_grad);
            unit->sharded_grad = NONE;
        }
    }
}
