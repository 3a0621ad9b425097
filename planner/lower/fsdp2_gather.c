/* fsdp2_gather.c - unshard, wait_for_unshard and reshard of one unit (see fsdp2.c). */
#include "lower/fsdp2.h"

#include <stdlib.h>

static uint32_t current_ranks(const struct unit *unit)
{
    return unit->state == SECONDARY ? unit->post_ranks : unit->mesh->shard_ranks;
}

static void collect_shards(const struct lowering *low, const struct unit *unit, uint32_t *out)
{
    const struct fsdp2 *f = fsdp2_of(low);
    for (uint32_t i = 0; i < unit->count; i++)
        out[i] =
            unit->state == SECONDARY ? f->secondary[unit->params[i]] : f->store[unit->params[i]];
}

/* Whether a gather casts a parameter: a secondary shard, too, which is a useless copy. */
static bool is_cast(const struct lowering *low, uint32_t param)
{
    return !is_in_float8(low, param) && stored_dtype(low, param) != low->strategy->compute;
}

/* CPU offload: a shard is copied to the device, and cast there, on its own. Returns what is to be
 * gathered. */
static uint32_t copy_from_host(struct lowering *low, uint32_t param, enum category category,
                               uint8_t lane)
{
    const uint32_t stored = fsdp2_of(low)->store[param];
    const enum dtype store = stored_dtype(low, param), compute = low->strategy->compute;
    const struct shape shape = flat(padded_shard(low, param));
    const uint32_t copy = alloc_buffer(low, category, lane, ATEN_TO_COPY, store, shape);
    emit_work(low, PLAN_HOST_TO_DEVICE, lane, WORK_COPY, ATEN_COPY_, PLAN_NO_GROUP, 1, &stored, 1,
              &copy);
    if (compute == store)
        return copy;
    const uint32_t cast = alloc_buffer(low, category, lane, ATEN_TO_COPY, compute, shape);
    emit_unary(low, lane, WORK_CAST, ATEN_TO_COPY, copy, cast);
    emit_free(low, copy);
    return cast;
}

/* What lives until a gather's call returns. */
struct held {
    uint32_t cast;    /* of shards, one after the other; NONE: nothing is cast so */
    uint32_t *copies; /* (unit->count) of a shard alone, from the host or in another dtype; NONE:
                         none is made. Owned */
};

/* Casts what is to be cast, in one buffer; `in` (unit->count) is what is to be packed then, in the
 * order of the unit's parameters. Returns how much that is: where all is cast, it is one buffer. */
static uint32_t cast_shards(struct lowering *low, const struct unit *unit, const uint32_t *shards,
                            uint32_t ranks, struct operand *in, struct gather_kernels *kernels,
                            struct held *held)
{
    const uint8_t lane = unit->comm->copy_in;
    const enum dtype compute = low->strategy->compute;
    uint32_t *casts = xmalloc((unit->count + 1) * sizeof *casts), count = 0;
    uint64_t elements = 0;
    for (uint32_t i = 0; i < unit->count; i++) {
        in[i] = plan_whole_buffer(low->plan, shards[i]);
        if (!is_cast(low, unit->params[i]))
            continue;
        casts[count++] = shards[i];
        in[i] = (struct operand){.offset = elements, .dtype = compute};
        in[i].shape = flat(padded_shard(low, unit->params[i]) * unit->mesh->shard_ranks / ranks);
        elements += shape_elements(&in[i].shape);
    }
    if (count) {
        held->cast =
            alloc_buffer(low, CATEGORY_ALL_GATHER, lane, ATEN_EMPTY, compute, flat(elements));
        kernels->cast = emit_work(low, PLAN_COMPUTE, lane, WORK_PACK, ATEN_FOREACH_COPY_,
                                  PLAN_NO_GROUP, count, casts, 1, &held->cast);
        kernels->cast_elements = elements;
    }
    for (uint32_t i = 0; i < unit->count; i++)
        if (is_cast(low, unit->params[i]))
            in[i].place = PLACE_BUFFER | held->cast;
    free(casts);
    if (!count || count < unit->count)
        return unit->count;
    in[0] = plan_whole_buffer(low->plan, held->cast);
    return 1;
}

/* Of several dtypes a gather is of bytes (_get_all_gather_input_metadatas). */
static uint32_t new_gather(struct lowering *low, const struct unit *unit, uint32_t ranks)
{
    const uint64_t elements = unit->shard_elements * unit->mesh->shard_ranks / ranks;
    const enum dtype compute = low->strategy->compute;
    if (!has_float8(low, unit))
        return alloc_buffer(low, CATEGORY_ALL_GATHER, unit->comm->copy_in, ATEN_EMPTY, compute,
                            flat(elements * ranks));
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < unit->count; i++)
        bytes += padded_shard(low, unit->params[i]) *
                 (is_in_float8(low, unit->params[i]) ? 1 : dtype_bytes(compute));
    return alloc_buffer(low, CATEGORY_ALL_GATHER, unit->comm->copy_in, ATEN_EMPTY, DTYPE_UINT8,
                        flat(bytes * ranks));
}

/* FSDPParam.all_gather_inputs, where shards are cast one by one. */
static uint32_t cast_alone(struct lowering *low, uint8_t lane, uint32_t param)
{
    const uint32_t cast = alloc_buffer(low, CATEGORY_ALL_GATHER, lane, ATEN_TO_COPY,
                                       low->strategy->compute, flat(padded_shard(low, param)));
    emit_unary(low, lane, WORK_CAST, ATEN_TO_COPY, fsdp2_of(low)->store[param], cast);
    return cast;
}

/* Whether the shards of a unit are cast into one buffer: not those of the host. */
static bool casts_together(const struct lowering *low)
{
    return !low->strategy->offload && torch_does(low->graph->torch, TORCH_CASTS_TOGETHER);
}

/* What is packed in a shard's place, where that is made of it alone: a buffer, or NONE. */
static uint32_t copy_alone(struct lowering *low, const struct unit *unit, uint32_t param)
{
    if (unit->state == SHARDED && low->strategy->offload)
        return copy_from_host(low, param, CATEGORY_ALL_GATHER, unit->comm->copy_in);
    if (is_in_float8(low, param))
        return cast_to_float8(low, unit, param);
    if (unit->state == SHARDED && is_cast(low, param) && !casts_together(low))
        return cast_alone(low, unit->comm->copy_in, param);
    return NONE;
}

/* Shards become this rank's part of the gather's output. Where they are not cast together, what
 * was made of each, or a secondary shard, is packed as it is. */
static void pack(struct lowering *low, struct unit *unit, uint32_t ranks,
                 struct gather_kernels *kernels, struct held *held)
{
    const uint8_t lane = unit->comm->copy_in;
    struct operand *in = xmalloc((unit->count + 1) * sizeof *in);
    uint32_t *shards = xmalloc((unit->count + 1) * sizeof *shards), ins = unit->count;
    held->copies = xmalloc((unit->count + 1) * sizeof *held->copies);
    collect_shards(low, unit, shards);
    if (unit->scales_event != NONE) /* scales are written anew in place (fsdp2_float8.c) */
        emit_wait(low, lane, unit->scales_event);
    for (uint32_t i = 0; i < unit->count; i++) {
        held->copies[i] = copy_alone(low, unit, unit->params[i]);
        if (held->copies[i] != NONE)
            shards[i] = held->copies[i];
    }
    const bool together = casts_together(low);
    if (together)
        ins = cast_shards(low, unit, shards, ranks, in, kernels, held);
    for (uint32_t i = 0; i < ins && !together; i++)
        in[i] = plan_whole_buffer(low->plan, shards[i]);
    unit->gather = new_gather(low, unit, ranks);
    const struct operand gather = plan_whole_buffer(low->plan, unit->gather);
    kernels->copy_in = emit_work_on(low, PLAN_COPY_IN, lane, WORK_COPY_IN, ATEN_FOREACH_COPY_,
                                    unit->gather_group, ins, in, 1, &gather);
    free(shards);
    free(in);
}

/* The same of an outline that has packed a unit like it. */
static void pack_again(struct lowering *low, struct unit *unit,
                       const struct gather_kernels *kernels, struct held *held)
{
    const uint8_t lane = unit->comm->copy_in;
    if (kernels->cast_elements) {
        held->cast = alloc_buffer(low, CATEGORY_ALL_GATHER, lane, ATEN_EMPTY,
                                  low->strategy->compute, flat(kernels->cast_elements));
        emit_kernel(low, PLAN_COMPUTE, lane, kernels->cast, PLAN_NO_GROUP);
    }
    unit->gather = new_gather(low, unit, current_ranks(unit));
    emit_kernel(low, PLAN_COPY_IN, lane, kernels->copy_in, unit->gather_group);
}

void unshard(struct lowering *low, struct unit *unit)
{
    const struct comm *comm = unit->comm;
    if (!unit->count || unit->pending || unit->state == UNSHARDED)
        return;
    if (unit->state == SECONDARY) /* made on the compute stream, read on the gathers' */
        release_gather(low, comm, unit->reshard_event);
    unit->pending = true;
    unit->gather = NONE;
    const uint32_t ranks = current_ranks(unit);
    if (ranks == 1 && torch_does(low->graph->torch, TORCH_ALONE_COPIES))
        return;

    const uint32_t before = enter_scope(low, "unshard", unit->index, true);
    struct gather_kernels *kernels = &unit->kernels->gather[unit->state == SECONDARY];
    struct held held = {NONE, NULL};
    unit->gather_group =
        unit->state == SECONDARY ? fsdp2_of(low)->post_group : unit->mesh->shard_group;
    if (low->tally && casts_together(low) && !has_float8(low, unit) && kernels->copy_in != NONE)
        pack_again(low, unit, kernels, &held);
    else
        pack(low, unit, ranks, kernels, &held);
    emit_wait(low, comm->all_gather, emit_record(low, comm->copy_in));
    if (!emit_again(low, PLAN_ALL_GATHER, comm->all_gather, unit->gather_group,
                    &kernels->all_gather))
        kernels->all_gather = emit_work(low, PLAN_ALL_GATHER, comm->all_gather, WORK_ALL_GATHER,
                                        ATEN_ALL_GATHER_INTO_TENSOR, unit->gather_group, 1,
                                        &unit->gather, 1, &unit->gather);
    unit->gather_event = emit_record(low, comm->all_gather);
    if (held.cast != NONE)
        emit_free(low, held.cast);
    for (uint32_t i = unit->count; i-- > 0 && held.copies;) /* a list dies from its end */
        if (held.copies[i] != NONE)
            emit_free(low, held.copies[i]);
    free(held.copies);
    leave_scope(low, before);
}

void release_gather(struct lowering *low, const struct comm *comm, uint32_t event)
{
    emit_wait(low, comm->copy_in, event);
    emit_wait(low, comm->all_gather, event);
}

/* One rank: every parameter is still copied, through a cast where dtypes differ; one cast dies when
 * the next parameter's exists, or needs none. Returns the last one's, which a local variable holds;
 * NONE: there is none. */
static uint32_t wait_alone(struct lowering *low, struct unit *unit)
{
    const struct fsdp2 *f = fsdp2_of(low);
    const struct strategy *s = low->strategy;
    uint32_t cast = NONE;
    for (uint32_t i = 0; i < unit->count; i++) {
        const uint32_t p = unit->params[i];
        uint32_t source = f->store[p], next = NONE;
        if (s->offload) {
            next = copy_from_host(low, p, CATEGORY_UNSHARDED_PARAM, LANE_COMPUTE);
        } else if (is_cast(low, p)) {
            next = alloc_buffer(low, CATEGORY_UNSHARDED_PARAM, LANE_COMPUTE, ATEN_TO_COPY,
                                s->compute, flat(padded_shard(low, p)));
            emit_unary(low, LANE_COMPUTE, WORK_CAST, ATEN_TO_COPY, source, next);
        }
        if (cast != NONE)
            emit_free(low, cast);
        cast = next;
        source = next != NONE ? next : source;
        emit_alloc(low, f->unsharded[p]);
        emit_work(low, PLAN_COPY_OUT, LANE_COMPUTE, WORK_COPY, ATEN_COPY_, PLAN_NO_GROUP, 1,
                  &source, 1, &f->unsharded[p]);
    }
    return cast;
}

/* Of shards by columns: what is copied out of the gather for each parameter, to be joined. */
static uint32_t *alloc_cut(struct lowering *low, const struct unit *unit)
{
    uint32_t *outs = xmalloc((unit->count + 1) * sizeof *outs);
    for (uint32_t i = 0; i < unit->count; i++) {
        outs[i] = unit->unsharded.buffers[i];
        emit_alloc(low, outs[i]);
        if (is_by_columns(low, unit->params[i]))
            outs[i] = alloc_buffer(low, CATEGORY_UNSHARDED_PARAM, LANE_COMPUTE, ATEN_EMPTY_LIKE,
                                   low->strategy->compute, low->plan->buffers[outs[i]].shape);
    }
    return outs;
}

static void copy_out(struct lowering *low, struct unit *unit)
{
    uint32_t *kernel = &unit->kernels->copy_out, *cut = NULL;
    if (low->strategy->columns)
        cut = alloc_cut(low, unit);
    else
        emit_alloc_all(low, &unit->unsharded);
    if (!emit_again(low, PLAN_COPY_OUT, LANE_COMPUTE, unit->gather_group, kernel))
        *kernel = emit_work(low, PLAN_COPY_OUT, LANE_COMPUTE, WORK_COPY_OUT,
                            ATEN_SPLIT_WITH_SIZES_COPY, unit->gather_group, 1, &unit->gather,
                            unit->count, cut ? cut : unit->unsharded.buffers);
    if (cut)
        join_columns(low, unit, cut);
    free(cut);
}

void wait_for_unshard(struct lowering *low, struct unit *unit, bool forward)
{
    const struct fsdp2 *f = fsdp2_of(low);
    struct comm *comm = unit->comm;
    if (!unit->count || !unit->pending)
        return;
    const uint32_t before = enter_scope(low, "wait_for_unshard", unit->index, true);
    uint32_t previous = NONE, cast = NONE;
    if (forward && comm->previous_gather != NONE) {
        release_gather(low, comm, comm->previous_event);
        previous = comm->previous_gather;
        comm->previous_gather = NONE;
        if (torch_does(low->graph->torch, TORCH_GATHER_LET_GO)) {
            emit_free(low, previous);
            previous = NONE;
        }
    }
    if (unit->gather == NONE) {
        cast = wait_alone(low, unit);
        unit->state = UNSHARDED;
    } else {
        emit_wait(low, LANE_COMPUTE, unit->gather_event);
        copy_out(low, unit);
        for (uint32_t i = 0; i < unit->count && unit->state == SECONDARY; i++)
            emit_free(low, f->secondary[unit->params[i]]);
        unit->state = UNSHARDED;
        const uint32_t copied = emit_record(low, LANE_COMPUTE);
        if (forward) {
            comm->previous_gather = unit->gather;
            comm->previous_event = copied;
        } else {
            release_gather(low, comm, copied);
            emit_free(low, unit->gather);
        }
    }
    if (previous != NONE)
        emit_free(low, previous);
    if (cast != NONE)
        emit_free(low, cast);
    unit->pending = false;
    leave_scope(low, before);
}

static void free_unsharded(struct lowering *low, struct unit *unit)
{
    emit_free_all(low, &unit->unsharded);
    if (has_float8(low, unit))
        unit->scales_event = emit_record(low, LANE_COMPUTE);
    unit->state = SHARDED;
}

/* The secondary shard is this rank's chunk of the unsharded parameter. */
static void copy_own_chunk(struct lowering *low, uint32_t from, uint32_t to)
{
    const struct fsdp2 *f = fsdp2_of(low);
    const struct operand out = plan_whole_buffer(low->plan, to);
    struct operand in = plan_whole_buffer(low->plan, from);
    in.shape = out.shape;
    in.chunk = (uint8_t)(f->post_group + 1);
    in.offset =
        plan_group_rank(low->plan, f->post_group, low->plan->rank) * shape_elements(&out.shape);
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_COPY, ATEN_CLONE, PLAN_NO_GROUP, 1, &in, 1,
                 &out);
}

/* The secondary shard of a unit that backward does not come to: FSDPParam lets go of it when the
 * next forward has made a new one. So it is there for good, and for a moment there are two. */
static uint32_t renew_secondary(struct lowering *low, uint32_t old, struct shape shape)
{
    const enum dtype dtype = low->strategy->compute;
    emit_free(low, alloc_buffer(low, CATEGORY_ACTIVATION, LANE_COMPUTE, ATEN_CLONE, dtype, shape));
    if (old != NONE)
        return old;
    const uint32_t kept =
        new_resident(low, CATEGORY_ACTIVATION, LANE_COMPUTE, ATEN_CLONE, dtype, shape);
    low->here.flags |= PLAN_FIRST_STEP;
    emit_alloc(low, kept);
    low->here.flags &= (uint8_t)~PLAN_FIRST_STEP;
    return kept;
}

static void shrink_to_secondary(struct lowering *low, struct unit *unit)
{
    const struct fsdp2 *f = fsdp2_of(low);
    for (uint32_t i = 0; i < unit->count; i++) {
        const uint32_t p = unit->params[i];
        const struct shape shape =
            flat(padded_shard(low, p) * unit->mesh->shard_ranks / unit->post_ranks);
        f->secondary[p] = unit->in_backward
                              ? alloc_buffer(low, CATEGORY_ACTIVATION, LANE_COMPUTE, ATEN_CLONE,
                                             low->strategy->compute, shape)
                              : renew_secondary(low, f->secondary[p], shape);
        copy_own_chunk(low, f->unsharded[p], f->secondary[p]);
        emit_free(low, f->unsharded[p]);
    }
    unit->state = SECONDARY;
    unit->reshard_event = emit_record(low, LANE_COMPUTE);
}

void reshard_after_forward(struct lowering *low, struct unit *unit)
{
    if (!unit->count || unit->state != UNSHARDED || unit->post_ranks == 0)
        return;
    const uint32_t before = enter_scope(low, "reshard", unit->index, true);
    if (unit->post_ranks == unit->mesh->shard_ranks)
        free_unsharded(low, unit);
    else
        shrink_to_secondary(low, unit);
    leave_scope(low, before);
}

void reshard_after_backward(struct lowering *low, struct unit *unit)
{
    if (!unit->count)
        return;
    if (unit->state == UNSHARDED) {
        const uint32_t before = enter_scope(low, "reshard", unit->index, true);
        free_unsharded(low, unit);
        leave_scope(low, before);
    }
    unit->state = SHARDED;
}
