/* fsdp2_reduce.c - from unsharded gradients to sharded ones: post_backward of one unit (see
 * fsdp2.c). */
#include "lower/fsdp2.h"

#include <stdlib.h>

static void add_grad(struct fsdp2 *f, uint32_t param, uint32_t buffer)
{
    emit_work(&f->low, PLAN_COMPUTE, STREAM_COMPUTE, WORK_ADD_IN_PLACE, ATEN_ADD_, PLAN_NO_GROUP, 1,
              &buffer, 1, &f->accumulated[param]);
    emit_free(&f->low, buffer);
}

/* FSDPParam.accumulate_unsharded_grad_if_needed, for gradients held in the reduce dtype. */
static void accumulate_unsharded(struct fsdp2 *f, struct unit *unit)
{
    for (uint32_t i = 0; i < unit->params; i++) {
        const uint32_t p = param_index(f, unit, i);
        if (f->grad[p] == NONE)
            continue;
        add_grad(f, p, f->grad[p]);
        f->grad[p] = NONE;
    }
}

/* FSDPParam.to_accumulated_grad_if_needed: a no-sync backward keeps gradients unsharded. */
static void hold_unsharded(struct fsdp2 *f, struct unit *unit)
{
    const struct strategy *s = f->low.strategy;
    unit->accumulated = true;
    for (uint32_t i = 0; i < unit->params; i++) {
        const uint32_t p = param_index(f, unit, i);
        const uint32_t grad = f->grad[p];
        if (grad == NONE)
            continue;
        f->accumulated[p] = alloc_buffer(&f->low, CATEGORY_REDUCE_SCATTER, STREAM_COMPUTE,
                                         ATEN_TO_COPY, s->reduce, f->low.plan->params[p].shape);
        emit_work(&f->low, PLAN_COMPUTE, STREAM_COMPUTE, WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1,
                  &grad, 1, &f->accumulated[p]);
        emit_free(&f->low, grad);
        f->grad[p] = NONE;
    }
}

/* Moves the gradients to reduce into `grads`, in unit order; returns how many. */
static uint32_t take_grads(struct fsdp2 *f, struct unit *unit, uint32_t *grads)
{
    uint32_t count = 0;
    uint32_t *held = unit->accumulated ? f->accumulated : f->grad;
    for (uint32_t i = 0; i < unit->params; i++) {
        const uint32_t p = param_index(f, unit, i);
        if (held[p] == NONE)
            continue;
        grads[count++] = held[p];
        held[p] = NONE;
    }
    unit->accumulated = false;
    return count;
}

void release_retained(struct fsdp2 *f)
{
    if (f->retained == NONE)
        return;
    emit_wait(&f->low, STREAM_COMPUTE, f->retained_event);
    emit_free(&f->low, f->retained);
    f->retained = NONE;
}

/* After the reduction: cast to the store dtype, then `.grad = view` or `.grad += view`. Returns
 * the buffer that dies on return when it was only added, NONE otherwise. */
static uint32_t store_gradient(struct fsdp2 *f, struct unit *unit, uint32_t reduced,
                               enum stream_id stream)
{
    const struct strategy *s = f->low.strategy;
    uint32_t gradient = reduced;
    if (s->reduce != s->store) {
        gradient = alloc_buffer(&f->low, CATEGORY_REDUCE_SCATTER, stream, ATEN_TO_COPY, s->store,
                                flat(unit->trainable_shard_elements));
        emit_work(&f->low, PLAN_COMPUTE, stream, WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1,
                  &reduced, 1, &gradient);
        if (f->replicas == 1)
            emit_free(&f->low, reduced);
        else
            unit->all_reduce_held = reduced;
    }
    if (s->offload) {
        const uint32_t host =
            new_buffer(&f->low, CATEGORY_REDUCE_SCATTER, STREAM_HOST, ATEN_TO_COPY, s->store,
                       flat(unit->trainable_shard_elements));
        if (unit->sharded_grad == NONE) {
            emit_alloc(&f->low, host);
            unit->sharded_grad = host;
        }
        emit_work(&f->low, PLAN_DEVICE_TO_HOST, stream, WORK_COPY, ATEN_COPY_, PLAN_NO_GROUP, 1,
                  &gradient, 1, &unit->sharded_grad);
        emit_free(&f->low, gradient);
        return NONE;
    }
    if (unit->sharded_grad == NONE) {
        unit->sharded_grad = gradient;
        return NONE;
    }
    emit_work(&f->low, PLAN_COMPUTE, stream, WORK_ADD_IN_PLACE, ATEN_ADD_, PLAN_NO_GROUP, 1,
              &gradient, 1, &unit->sharded_grad);
    if (f->replicas == 1 || s->reduce != s->store)
        return gradient;
    unit->all_reduce_held = gradient; /* the AllReduceState still refers to it */
    return NONE;
}

/* Gradients are handed over in their parameters' shapes: rows decide the chunks. */
static void emit_chunk_cat(struct fsdp2 *f, const struct unit *unit, const uint32_t *grads,
                           uint32_t count, uint32_t input)
{
    if (f->low.tally)
        return;
    struct operand *in = xmalloc(count * sizeof *in);
    for (uint32_t i = 0, next = 0; i < unit->params && next < count; i++) {
        if (!param_of(f, unit, i)->trainable)
            continue;
        in[next] = plan_whole_buffer(f->low.plan, grads[next]);
        in[next].shape = param_of(f, unit, i)->shape;
        next++;
    }
    const struct operand out = plan_whole_buffer(f->low.plan, input);
    emit_work_on(&f->low, PLAN_COPY_IN, STREAM_COMPUTE, WORK_CHUNK_CAT, ATEN_CHUNK_CAT,
                 f->shard_group, count, in, 1, &out);
    free(in);
}

static void foreach_reduce(struct fsdp2 *f, struct unit *unit, const uint32_t *grads,
                           uint32_t count)
{
    const struct strategy *s = f->low.strategy;
    const uint64_t shard = unit->trainable_shard_elements;
    const bool alone = f->shard_ranks == 1;
    const struct plan_instruction before = enter_site(f, SITE_REDUCE, unit);
    const uint32_t input = alloc_buffer(&f->low, CATEGORY_REDUCE_SCATTER, STREAM_COMPUTE,
                                        ATEN_EMPTY, s->reduce, flat(shard * f->shard_ranks));
    emit_chunk_cat(f, unit, grads, count, input);
    if (alone) /* no loop variable is left over here: all die, in unit order reversed as a list */
        emit_free(&f->low, grads[count - 1]);
    for (uint32_t i = count - 1; i-- > 0;)
        emit_free(&f->low, grads[i]);

    emit_wait(&f->low, STREAM_REDUCE_SCATTER, emit_record(&f->low, STREAM_COMPUTE));
    const uint32_t output = alloc_buffer(&f->low, CATEGORY_REDUCE_SCATTER, STREAM_REDUCE_SCATTER,
                                         ATEN_EMPTY, s->reduce, flat(shard));
    if (alone)
        emit_work(&f->low, PLAN_COMPUTE, STREAM_REDUCE_SCATTER, WORK_COPY, ATEN_COPY_,
                  PLAN_NO_GROUP, 1, &input, 1, &output);
    else
        emit_work(&f->low, PLAN_REDUCE_SCATTER, STREAM_REDUCE_SCATTER, WORK_REDUCE_SCATTER_AVG,
                  ATEN_REDUCE_SCATTER_TENSOR, f->shard_group, 1, &input, 1, &output);
    f->retained_event = emit_record(&f->low, STREAM_REDUCE_SCATTER);
    enum stream_id last = STREAM_REDUCE_SCATTER;
    if (f->replicas > 1) {
        last = STREAM_ALL_REDUCE;
        emit_wait(&f->low, last, f->retained_event);
        emit_work(&f->low, PLAN_ALL_REDUCE, last, WORK_ALL_REDUCE_AVG, ATEN_ALL_REDUCE,
                  f->replicate_group, 1, &output, 1, &output);
    }
    const uint32_t added = store_gradient(f, unit, output, last);
    emit_record(&f->low, last);
    if (!alone)
        emit_free(&f->low, grads[count - 1]);
    if (added != NONE)
        emit_free(&f->low, added);
    f->retained = input;
    leave_site(f, before);
}

void post_backward(struct fsdp2 *f, struct unit *unit)
{
    const struct strategy *s = f->low.strategy;
    unit->post_backward_ran = true;
    if (!unit->exists)
        return;
    const struct plan_instruction before = enter_outer(f, OUTER_POST_BACKWARD, unit);
    const bool held = unit->accumulated;
    if (held)
        accumulate_unsharded(f, unit);
    if (!f->sync) {
        reshard_after_backward(f, unit);
        if (!held && s->reduce != s->compute)
            hold_unsharded(f, unit);
        leave_site(f, before);
        return;
    }
    uint32_t *grads = xmalloc(unit->params * sizeof *grads);
    const uint32_t count = take_grads(f, unit, grads);
    reshard_after_backward(f, unit);
    release_retained(f);
    if (count)
        foreach_reduce(f, unit, grads, count);
    free(grads);
    leave_site(f, before);
}

/* zero_grad(set_to_none=True): a unit's gradients are views of one buffer, which goes with the
 * last of them. */
void zero_grad(struct fsdp2 *f)
{
    const struct plan *plan = f->low.plan;
    for (uint32_t p = 0; p < plan->param_count; p++) {
        struct unit *unit = &f->units[plan->params[p].unit];
        if (p == unit->last_trainable && unit->sharded_grad != NONE) {
            emit_free(&f->low, unit->sharded_grad);
            unit->sharded_grad = NONE;
        }
    }
}
