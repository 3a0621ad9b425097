/* fsdp2_reduce.c - from unsharded gradients to sharded ones: post_backward of one unit (see
 * fsdp2.c). */
#include "lower/fsdp2.h"

#include <stdlib.h>
#include <string.h>

/* FSDPParamGroup._set_unsharded_grad_dtypes: a parameter's gradient has the dtype that is reduced,
 * but for one in a narrower dtype that is reduced, or added to the sum, as it is. */
bool fsdp2_casts_gradient(const struct lowering *low, uint32_t param, enum dtype from,
                          enum dtype *to)
{
    const enum dtype reduce = low->strategy->reduce;
    const bool deferred = dtype_bytes(reduce) > dtype_bytes(low->strategy->compute) &&
                          (low->sync || low->grad[param].place != NONE);
    *to = reduce;
    if (is_ignored(&fsdp2_of(low)->wrapping, param))
        return false;
    return torch_does(low->graph->torch, TORCH_GRADIENTS_CAST) && from != reduce && !deferred;
}

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
 * rows decide the chunks; `params`: whose they are. Returns how many. */
static uint32_t take_grads(struct lowering *low, struct unit *unit, struct operand *grads,
                           uint32_t *params)
{
    const struct fsdp2 *f = fsdp2_of(low);
    uint32_t count = 0;
    for (uint32_t i = 0; i < unit->count; i++) {
        const uint32_t p = unit->params[i];
        struct operand *grad = &low->grad[p];
        if (unit->accumulated && f->accumulated[p] != NONE)
            plan_set_whole_buffer(low->plan, f->accumulated[p], grad);
        f->accumulated[p] = NONE;
        if (grad->place == NONE)
            continue;
        params[count] = p;
        grads[count++] = *grad;
        grad->place = NONE;
    }
    unit->accumulated = false;
    return count;
}

void release_retained(struct lowering *low)
{
    struct fsdp2 *f = low->state;
    for (uint32_t i = 0; i < f->retained_count; i++)
        emit_wait(low, LANE_COMPUTE, f->retained[i].event);
    if (f->retained_count) { /* list.clear() from its end; the last one is a loop variable's */
        for (uint32_t i = f->retained_count - 1; i-- > 0;)
            emit_free(low, f->retained[i].buffer);
        emit_free(low, f->retained[f->retained_count - 1].buffer);
    }
    f->retained_count = 0;
}

/* Of the inputs of reduce-scatters so many may live, with the one to come: the oldest go. Returns
 * the one that a loop variable holds until post_backward returns, or NONE. */
static uint32_t make_room(struct lowering *low)
{
    struct fsdp2 *f = low->state;
    uint32_t held = NONE;
    while (f->retained_count >= f->retained_most) {
        emit_wait(low, LANE_COMPUTE, f->retained[0].event);
        if (torch_does(low->graph->torch, TORCH_INPUT_LET_GO))
            emit_free(low, f->retained[0].buffer);
        else
            held = f->retained[0].buffer;
        f->retained_count--;
        memmove(f->retained, f->retained + 1, f->retained_count * sizeof *f->retained);
    }
    return held;
}

/* FSDPParamGroup._wait_for_post_backward: of a micro-batch before, whose backward was not the last.
 */
static void wait_for_reduction(struct lowering *low, struct unit *unit)
{
    if (unit->reduce_event != NONE && torch_does(low->graph->torch, TORCH_WAITS_FOR_ITS_LAST))
        emit_wait(low, LANE_COMPUTE, unit->reduce_event);
    unit->reduce_event = NONE;
    if (unit->all_reduce_held == NONE)
        return;
    emit_wait(low, LANE_COMPUTE, unit->all_reduce_event);
    emit_free(low, unit->all_reduce_held);
    unit->all_reduce_held = NONE;
}

/* What locals of Python still hold of gradients until the reduction returns: the loop variable the
 * last one, `chunks` the last that was cut, `copy` the last that was copied to the host and added
 * there. NONE: nothing, or the same. */
struct held {
    uint32_t loop, chunks, copy;
};

static void copy_to_host(struct lowering *low, uint8_t lane, struct operand from, uint32_t to)
{
    const struct operand host = plan_whole_buffer(low->plan, to);
    emit_work_on(low, PLAN_DEVICE_TO_HOST, lane, WORK_COPY, ATEN_COPY_, PLAN_NO_GROUP, 1, &from, 1,
                 &host);
}

/* A parameter's gradient there: this rank's rows, without the padding that the device's have. */
static uint32_t alloc_on_host(struct lowering *low, const struct operand *shard, bool pinned)
{
    const uint32_t buffer = new_buffer(low, CATEGORY_REDUCE_SCATTER, LANE_HOST, ATEN_TO_COPY,
                                       low->strategy->store, shard->shape);
    low->plan->buffers[buffer].local = shard->local;
    low->plan->buffers[buffer].pinned = pinned;
    emit_alloc(low, buffer);
    return buffer;
}

/* Parameter by parameter. The first time into memory of their own, for which the host waits in the
 * final callback (grad_offload_event); later ones are added there on the CPU (`.grad += `), for
 * which the host waits copy by copy. */
static void move_to_host(struct lowering *low, const struct unit *unit, uint32_t gradient,
                         uint8_t lane, struct held *held)
{
    const struct fsdp2 *f = fsdp2_of(low);
    uint64_t offset = 0;
    for (uint32_t i = 0; i < unit->count; i++) {
        const uint32_t p = unit->params[i];
        if (!low->plan->params[p].trainable)
            continue;
        const struct operand shard =
            plan_piece_operand(low->plan, plan_piece(low->plan, p, PIECE_STORE));
        struct operand from = plan_whole_buffer(low->plan, gradient);
        from.offset = offset;
        from.shape = shard.shape;
        from.local = shard.local;
        offset += padded_shard(low, p);
        if (held->copy != NONE)
            emit_free(low, held->copy);
        held->copy = NONE;
        const bool first = f->host_grad[p] == NONE;
        const uint32_t copy = alloc_on_host(low, &shard, first);
        copy_to_host(low, lane, from, copy);
        if (first) {
            f->host_grad[p] = copy;
            f->offload_event[p] = emit_record(low, lane);
            continue;
        }
        emit_sync(low, LANE_HOST, lane);
        const struct operand came = plan_whole_buffer(low->plan, copy);
        const struct operand sum = plan_whole_buffer(low->plan, f->host_grad[p]);
        emit_work_on(low, PLAN_COMPUTE, LANE_HOST, WORK_ADD_IN_PLACE, ATEN_ADD_, PLAN_NO_GROUP, 1,
                     &came, 1, &sum);
        held->copy = copy;
    }
}

void wait_for_offload(struct lowering *low, const struct unit *unit)
{
    const struct fsdp2 *f = fsdp2_of(low);
    for (uint32_t i = 0; i < unit->count && low->strategy->offload; i++) {
        const uint32_t p = unit->params[i];
        if (f->offload_event[p] != NONE)
            emit_wait(low, LANE_HOST, f->offload_event[p]);
        f->offload_event[p] = NONE;
    }
}

/* HSDP's AllReduceState. */
static bool holds_all_reduced(const struct lowering *low, const struct unit *unit)
{
    return unit->mesh->replicas > 1 && torch_does(low->graph->torch, TORCH_ALL_REDUCE_HELD);
}

/* After the reduction: cast to the store dtype, then `.grad = view` or `.grad += view`. Returns
 * the buffer that dies on return when it was only added or copied, NONE otherwise. */
static uint32_t store_gradient(struct lowering *low, struct unit *unit, uint32_t reduced,
                               uint8_t lane, struct held *held)
{
    const struct strategy *s = low->strategy;
    uint32_t gradient = reduced;
    if (s->reduce != s->store) {
        gradient = alloc_buffer(low, CATEGORY_REDUCE_SCATTER, lane, ATEN_TO_COPY, s->store,
                                flat(unit->trained_elements));
        uint32_t *kernel = &unit->kernels->cast;
        if (!emit_again(low, PLAN_COMPUTE, lane, PLAN_NO_GROUP, kernel))
            *kernel = emit_unary(low, lane, WORK_CAST, ATEN_TO_COPY, reduced, gradient);
        if (holds_all_reduced(low, unit))
            unit->all_reduce_held = reduced;
        else
            emit_free(low, reduced);
    }
    if (s->offload) {
        move_to_host(low, unit, gradient, lane, held);
        if (!holds_all_reduced(low, unit) || gradient != reduced)
            return gradient;
        unit->all_reduce_held = gradient; /* by the AllReduceState */
        return NONE;
    }
    if (unit->sharded_grad == NONE) {
        unit->sharded_grad = gradient;
        return NONE;
    }
    emit_unary(low, lane, WORK_ADD_IN_PLACE, ATEN_ADD_, gradient, unit->sharded_grad);
    if (!holds_all_reduced(low, unit) || s->reduce != s->store)
        return gradient;
    unit->all_reduce_held = gradient; /* the AllReduceState still refers to it */
    return NONE;
}

/* HSDP without the all-reduce (set_requires_all_reduce): what was reduced is added up. Returns the
 * buffer that dies on return, or NONE. */
static uint32_t keep_partial(struct lowering *low, struct unit *unit, uint32_t reduced)
{
    if (unit->partial == NONE) {
        unit->partial = reduced;
        return NONE;
    }
    emit_unary(low, fsdp2_of(low)->reduce_scatter, WORK_ADD_IN_PLACE, ATEN_ADD_, reduced,
               unit->partial);
    return reduced;
}

/* ... and joins the sum of the last micro-batch. Returns likewise. */
static uint32_t take_partial(struct lowering *low, struct unit *unit, uint32_t reduced)
{
    const uint32_t partial = unit->partial;
    if (partial != NONE)
        emit_unary(low, fsdp2_of(low)->reduce_scatter, WORK_ADD_IN_PLACE, ATEN_ADD_, partial,
                   reduced);
    unit->partial = NONE;
    return partial;
}

static bool keeps_partial(const struct lowering *low, const struct unit *unit)
{
    return unit->mesh->replicas > 1 && low->strategy->all_reduce_last && !is_last_micro_batch(low);
}

/* Returns the lane on which it goes on. */
static uint8_t reduce_over_replicas(struct lowering *low, struct unit *unit, uint32_t output)
{
    const struct fsdp2 *f = fsdp2_of(low);
    emit_sync(low, f->all_reduce, f->reduce_scatter);
    const uint8_t group = unit->mesh->replicate_group;
    uint32_t *kernel = &unit->kernels->all_reduce;
    if (!emit_again(low, PLAN_ALL_REDUCE, f->all_reduce, group, kernel))
        *kernel = emit_work(low, PLAN_ALL_REDUCE, f->all_reduce, WORK_ALL_REDUCE_AVG,
                            ATEN_ALL_REDUCE, group, 1, &output, 1, &output);
    unit->all_reduce_event = emit_record(low, f->all_reduce);
    return f->all_reduce;
}

/* Whose stream makes a reduction's input: then it lives on, until the next (make_room). */
static bool scatters_from_caller(const struct lowering *low)
{
    return torch_does(low->graph->torch, TORCH_SCATTERS_FROM_CALLER);
}

/* Whether all of the unit's parameters have gradients, of one dtype. */
static bool has_all_alike(const struct unit *unit, const struct operand *grads, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (grads[i].dtype != grads[0].dtype)
            return false;
    return count == unit->count;
}

static void chunk_cat(struct lowering *low, const struct unit *unit, uint8_t lane,
                      const struct operand *grads, uint32_t count, uint32_t input)
{
    struct unit_kernels *kernels = unit->kernels;
    const uint8_t group = unit->mesh->shard_group;
    const bool alike = low->tally && has_all_alike(unit, grads, count);
    if (alike && kernels->gradients == (enum dtype)grads[0].dtype &&
        emit_again(low, PLAN_COPY_IN, lane, group, &kernels->chunk_cat))
        return;
    const struct operand cat = plan_whole_buffer(low->plan, input);
    const uint32_t kernel = emit_work_on(low, PLAN_COPY_IN, lane, WORK_CHUNK_CAT, ATEN_CHUNK_CAT,
                                         group, count, grads, 1, &cat);
    if (!alike)
        return;
    kernels->chunk_cat = kernel;
    kernels->gradients = (enum dtype)grads[0].dtype;
}

/* The gradients become one input, in unit order and chunk by chunk, and die, a list from its end.
 */
static uint32_t copy_in(struct lowering *low, const struct unit *unit, const uint32_t *params,
                        struct operand *grads, uint32_t count, struct held *held)
{
    const uint32_t ranks = unit->mesh->shard_ranks;
    const uint32_t last = grads[count - 1].place;
    held->chunks = cut_columns(low, params, grads, count);
    const bool loops = !torch_does(low->graph->torch, TORCH_GRADIENTS_GO) &&
                       (ranks > 1 || !torch_does(low->graph->torch, TORCH_ALONE_REDUCES));
    if (held->chunks != NONE && torch_does(low->graph->torch, TORCH_GRADIENTS_GO)) {
        emit_free(low, held->chunks); /* the function that cut it returns */
        held->chunks = NONE;
    }
    held->loop = loops && last != held->chunks ? last : NONE; /* alone there is no loop */
    const uint8_t scatter = fsdp2_of(low)->reduce_scatter;
    const uint8_t lane = scatters_from_caller(low) ? LANE_COMPUTE : scatter;
    if (lane == scatter)
        emit_sync(low, scatter, LANE_COMPUTE);
    const uint32_t input =
        alloc_buffer(low, CATEGORY_REDUCE_SCATTER, lane, ATEN_EMPTY, low->strategy->reduce,
                     flat(unit->trained_elements * ranks));
    chunk_cat(low, unit, lane, grads, count, input);
    if (lane == scatter) /* the gradients are the compute stream's */
        emit_sync(low, LANE_COMPUTE, scatter);
    uint32_t *gone = fsdp2_of(low)->reduced_buffers, n = 0;
    for (uint32_t i = count; i-- > 0;)
        if (grads[i].place != held->loop)
            gone[n++] = grads[i].place;
    const struct bundle all = bundle_of(low, n, gone);
    emit_free_all(low, &all);
    return input;
}

static struct retained reduce_scatter(struct lowering *low, const struct unit *unit, uint32_t input,
                                      uint32_t *output)
{
    const struct fsdp2 *f = fsdp2_of(low);
    uint32_t *kernel = &unit->kernels->reduce_scatter;
    if (scatters_from_caller(low))
        emit_sync(low, f->reduce_scatter, LANE_COMPUTE);
    *output = alloc_buffer(low, CATEGORY_REDUCE_SCATTER, f->reduce_scatter, ATEN_EMPTY,
                           low->strategy->reduce, flat(unit->trained_elements));
    if (unit->mesh->shard_ranks == 1 && torch_does(low->graph->torch, TORCH_ALONE_REDUCES))
        emit_unary(low, f->reduce_scatter, WORK_COPY, ATEN_COPY_, input, *output);
    else if (!emit_again(low, PLAN_REDUCE_SCATTER, f->reduce_scatter, unit->mesh->shard_group,
                         kernel))
        *kernel =
            emit_work(low, PLAN_REDUCE_SCATTER, f->reduce_scatter, WORK_REDUCE_SCATTER_AVG,
                      ATEN_REDUCE_SCATTER_TENSOR, unit->mesh->shard_group, 1, &input, 1, output);
    return (struct retained){input, emit_record(low, f->reduce_scatter)};
}

static void foreach_reduce(struct lowering *low, struct unit *unit, const uint32_t *params,
                           struct operand *grads, uint32_t count)
{
    struct fsdp2 *f = low->state;
    struct held held = {NONE, NONE, NONE};
    uint32_t output, joined = NONE, added;
    uint8_t last = f->reduce_scatter;
    const uint32_t before = enter_scope(low, "foreach_reduce", unit->index, false);
    const uint32_t input = copy_in(low, unit, params, grads, count, &held);
    const struct retained scattered = reduce_scatter(low, unit, input, &output);
    if (keeps_partial(low, unit)) {
        added = keep_partial(low, unit, output);
    } else {
        joined = take_partial(low, unit, output);
        if (unit->mesh->replicas > 1)
            last = reduce_over_replicas(low, unit, output);
        added = store_gradient(low, unit, output, last, &held);
    }
    unit->reduce_event = emit_record(low, last);
    f->last_reduced[last != f->reduce_scatter] = unit->reduce_event;
    if (!scatters_from_caller(low))
        emit_free(low, input);
    if (held.loop != NONE)
        emit_free(low, held.loop);
    if (held.chunks != NONE)
        emit_free(low, held.chunks);
    if (added != NONE)
        emit_free(low, added);
    if (held.copy != NONE)
        emit_free(low, held.copy);
    if (scatters_from_caller(low))
        f->retained[f->retained_count++] = scattered;
    leave_scope(low, before);
    if (joined != NONE) /* self._partial_reduce_output is set to what is returned */
        emit_free(low, joined);
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
    const bool reshards = !s->reshard_last || is_last_micro_batch(low);
    if (!low->sync) {
        const bool casts =
            s->reduce != s->compute && !torch_does(low->graph->torch, TORCH_GRADIENTS_CAST);
        if (reshards)
            reshard_after_backward(low, unit);
        if (!held && casts)
            hold_unsharded(low, unit);
        leave_scope(low, before);
        return;
    }
    struct operand *grads = fsdp2_of(low)->reduced;
    uint32_t *params = fsdp2_of(low)->reduced_params;
    const uint32_t count = take_grads(low, unit, grads, params);
    if (reshards)
        reshard_after_backward(low, unit);
    uint32_t input = NONE;
    if (count || torch_does(low->graph->torch, TORCH_EMPTY_GROUP_FREES))
        input = make_room(low);
    if (count) {
        wait_for_reduction(low, unit);
        foreach_reduce(low, unit, params, grads, count);
    }
    if (input != NONE)
        emit_free(low, input);
    leave_scope(low, before);
}

/* zero_grad(set_to_none=True): a unit's gradients are views of one buffer, which goes with the
 * last of them; on the host each has its own. */
void fsdp2_zero_grad(struct lowering *low)
{
    const struct plan *plan = low->plan;
    uint32_t *host_grad = fsdp2_of(low)->host_grad;
    for (uint32_t p = 0; p < plan->param_count; p++) {
        if (is_ignored(&fsdp2_of(low)->wrapping, p))
            continue;
        struct unit *unit = &fsdp2_of(low)->units[plan->params[p].unit];
        if (host_grad[p] != NONE)
            emit_free(low, host_grad[p]);
        host_grad[p] = NONE;
        if (p == unit->last_trainable && unit->sharded_grad != NONE) {
            emit_free(low, unit->sharded_grad);
            unit->sharded_grad = NONE;
        }
    }
    for (uint32_t p = 0; p < plan->param_count; p++)
        if (is_ignored(&fsdp2_of(low)->wrapping, p))
            drop_gradient(low, p);
}
