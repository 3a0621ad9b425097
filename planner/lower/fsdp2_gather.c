/* fsdp2_gather.c - unshard, wait_for_unshard and reshard of one unit (see fsdp2.c). */
#include "lower/fsdp2.h"

#include <stdlib.h>

static uint32_t current_ranks(const struct fsdp2 *f, const struct unit *unit)
{
    return unit->state == SECONDARY ? unit->post_ranks : f->shard_ranks;
}

static void collect_shards(const struct fsdp2 *f, const struct unit *unit, uint32_t *out)
{
    for (uint32_t i = 0; i < unit->params; i++)
        out[i] = unit->state == SECONDARY ? f->secondary[param_index(f, unit, i)]
                                          : param_of(f, unit, i)->shard_buffer;
}

/* CPU offload: each shard is copied to the device (and cast) on its own; the copies live until
 * the gather call returns. Returns their number. */
static uint32_t copy_from_host(struct fsdp2 *f, const struct unit *unit, uint32_t *shards)
{
    const struct strategy *s = f->low.strategy;
    for (uint32_t i = 0; i < unit->params; i++) {
        const struct shape shape =
            flat(f->low.plan->buffers[shards[i]].bytes / dtype_bytes(s->store));
        const uint32_t copy = alloc_buffer(&f->low, CATEGORY_ALL_GATHER, STREAM_COPY_IN,
                                           ATEN_TO_COPY, s->store, shape);
        emit_work(&f->low, PLAN_HOST_TO_DEVICE, STREAM_COPY_IN, WORK_COPY, ATEN_COPY_,
                  PLAN_NO_GROUP, 1, &shards[i], 1, &copy);
        shards[i] = copy;
        if (s->compute == s->store)
            continue;
        shards[i] = alloc_buffer(&f->low, CATEGORY_ALL_GATHER, STREAM_COPY_IN, ATEN_TO_COPY,
                                 s->compute, shape);
        emit_work(&f->low, PLAN_COMPUTE, STREAM_COPY_IN, WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1,
                  &copy, 1, &shards[i]);
        emit_free(&f->low, copy);
    }
    return unit->params;
}

void unshard(struct fsdp2 *f, struct unit *unit)
{
    const struct strategy *s = f->low.strategy;
    if (!unit->exists || unit->pending || unit->state == UNSHARDED)
        return;
    unit->pending = true;
    unit->gather = NONE;
    const uint32_t ranks = current_ranks(f, unit);
    if (ranks == 1)
        return;

    const struct plan_instruction before = enter_site(f, SITE_UNSHARD, unit);
    const uint64_t elements = unit->shard_elements * f->shard_ranks / ranks;
    uint32_t *shards = xmalloc(unit->params * sizeof *shards);
    collect_shards(f, unit, shards);
    const bool from_host = s->offload && unit->state == SHARDED;
    uint32_t copies = 0, cast = NONE;
    if (from_host) {
        copies = copy_from_host(f, unit, shards);
    } else if (s->compute != s->store) { /* also from a secondary shard: a useless copy */
        cast = alloc_buffer(&f->low, CATEGORY_ALL_GATHER, STREAM_COPY_IN, ATEN_EMPTY, s->compute,
                            flat(elements));
        emit_work(&f->low, PLAN_COMPUTE, STREAM_COPY_IN, WORK_PACK, ATEN_FOREACH_COPY_,
                  PLAN_NO_GROUP, unit->params, shards, 1, &cast);
    }
    unit->gather = alloc_buffer(&f->low, CATEGORY_ALL_GATHER, STREAM_COPY_IN, ATEN_EMPTY,
                                s->compute, flat(elements * ranks));
    unit->gather_group = unit->state == SECONDARY ? f->post_group : f->shard_group;
    if (cast != NONE)
        emit_work(&f->low, PLAN_COPY_IN, STREAM_COPY_IN, WORK_COPY_IN, ATEN_FOREACH_COPY_,
                  unit->gather_group, 1, &cast, 1, &unit->gather);
    else
        emit_work(&f->low, PLAN_COPY_IN, STREAM_COPY_IN, WORK_COPY_IN, ATEN_FOREACH_COPY_,
                  unit->gather_group, unit->params, shards, 1, &unit->gather);
    emit_wait(&f->low, STREAM_ALL_GATHER, emit_record(&f->low, STREAM_COPY_IN));
    emit_work(&f->low, PLAN_ALL_GATHER, STREAM_ALL_GATHER, WORK_ALL_GATHER,
              ATEN_ALL_GATHER_INTO_TENSOR, unit->gather_group, 1, &unit->gather, 1, &unit->gather);
    unit->gather_event = emit_record(&f->low, STREAM_ALL_GATHER);
    if (cast != NONE)
        emit_free(&f->low, cast);
    for (uint32_t i = 0; i < copies; i++)
        emit_free(&f->low, shards[i]);
    free(shards);
    leave_site(f, before);
}

void release_gather(struct fsdp2 *f, uint32_t event)
{
    emit_wait(&f->low, STREAM_COPY_IN, event);
    emit_wait(&f->low, STREAM_ALL_GATHER, event);
}

/* World size 1: every parameter is still copied, through a cast where dtypes differ; one cast
 * dies when the next exists. */
static void wait_alone(struct fsdp2 *f, struct unit *unit)
{
    const struct strategy *s = f->low.strategy;
    uint32_t cast = NONE;
    for (uint32_t i = 0; i < unit->params; i++) {
        const struct plan_param *param = param_of(f, unit, i);
        uint32_t source = param->shard_buffer;
        if (s->compute != s->store || s->offload) {
            const struct shape shape = flat(padded_elements(&param->shape, 1));
            const uint32_t next = alloc_buffer(&f->low, CATEGORY_UNSHARDED_PARAM, STREAM_COMPUTE,
                                               ATEN_TO_COPY, s->compute, shape);
            emit_work(&f->low, s->offload ? PLAN_HOST_TO_DEVICE : PLAN_COMPUTE, STREAM_COMPUTE,
                      WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1, &source, 1, &next);
            if (cast != NONE)
                emit_free(&f->low, cast);
            source = cast = next;
        }
        emit_alloc(&f->low, param->unsharded_buffer);
        emit_work(&f->low, PLAN_COPY_OUT, STREAM_COMPUTE, WORK_COPY, ATEN_COPY_, PLAN_NO_GROUP, 1,
                  &source, 1, &param->unsharded_buffer);
    }
    if (cast != NONE)
        emit_free(&f->low, cast);
}

void wait_for_unshard(struct fsdp2 *f, struct unit *unit, bool forward)
{
    if (!unit->exists || !unit->pending)
        return;
    const struct plan_instruction before = enter_site(f, SITE_WAIT_FOR_UNSHARD, unit);
    uint32_t previous = NONE;
    if (forward && f->previous_gather != NONE) {
        release_gather(f, f->previous_event);
        previous = f->previous_gather;
        f->previous_gather = NONE;
    }
    if (unit->gather == NONE) {
        wait_alone(f, unit);
        unit->state = UNSHARDED;
    } else {
        emit_wait(&f->low, STREAM_COMPUTE, unit->gather_event);
        uint32_t *outs = xmalloc(unit->params * sizeof *outs);
        for (uint32_t i = 0; i < unit->params; i++) {
            outs[i] = param_of(f, unit, i)->unsharded_buffer;
            emit_alloc(&f->low, outs[i]);
        }
        emit_work(&f->low, PLAN_COPY_OUT, STREAM_COMPUTE, WORK_COPY_OUT, ATEN_SPLIT_WITH_SIZES_COPY,
                  unit->gather_group, 1, &unit->gather, unit->params, outs);
        free(outs);
        for (uint32_t i = 0; i < unit->params && unit->state == SECONDARY; i++)
            emit_free(&f->low, f->secondary[param_index(f, unit, i)]);
        unit->state = UNSHARDED;
        const uint32_t copied = emit_record(&f->low, STREAM_COMPUTE);
        if (forward) {
            f->previous_gather = unit->gather;
            f->previous_event = copied;
        } else {
            release_gather(f, copied);
            emit_free(&f->low, unit->gather);
        }
    }
    if (previous != NONE)
        emit_free(&f->low, previous);
    unit->pending = false;
    leave_site(f, before);
}

static void free_unsharded(struct fsdp2 *f, struct unit *unit)
{
    for (uint32_t i = 0; i < unit->params; i++)
        emit_free(&f->low, param_of(f, unit, i)->unsharded_buffer);
    unit->state = SHARDED;
}

/* The secondary shard is this rank's chunk of the unsharded parameter. */
static void copy_own_chunk(struct fsdp2 *f, const struct unit *unit, uint32_t from, uint32_t to)
{
    const struct operand out = plan_whole_buffer(f->low.plan, to);
    struct operand in = plan_whole_buffer(f->low.plan, from);
    in.shape = out.shape;
    in.offset = f->shard_rank % unit->post_ranks * shape_elements(&out.shape);
    emit_work_on(&f->low, PLAN_COMPUTE, STREAM_COMPUTE, WORK_COPY, ATEN_CLONE, PLAN_NO_GROUP, 1,
                 &in, 1, &out);
}

void reshard_after_forward(struct fsdp2 *f, struct unit *unit)
{
    if (!unit->exists || unit->state != UNSHARDED || unit->post_ranks == 0)
        return;
    const struct plan_instruction before = enter_site(f, SITE_RESHARD, unit);
    if (unit->post_ranks == f->shard_ranks) {
        free_unsharded(f, unit);
    } else {
        for (uint32_t i = 0; i < unit->params; i++) {
            const struct plan_param *param = param_of(f, unit, i);
            uint32_t *secondary = &f->secondary[param_index(f, unit, i)];
            *secondary = alloc_buffer(
                &f->low, CATEGORY_ACTIVATION, STREAM_COMPUTE, ATEN_CLONE, f->low.strategy->compute,
                flat(padded_elements(&param->shape, f->shard_ranks) / unit->post_ranks));
            copy_own_chunk(f, unit, param->unsharded_buffer, *secondary);
            emit_free(&f->low, param->unsharded_buffer);
        }
        unit->state = SECONDARY;
        const uint32_t event = emit_record(&f->low, STREAM_COMPUTE);
        release_gather(f, event);
    }
    leave_site(f, before);
}

void reshard_after_backward(struct fsdp2 *f, struct unit *unit)
{
    if (!unit->exists || unit->state != UNSHARDED)
        return;
    const struct plan_instruction before = enter_site(f, SITE_RESHARD, unit);
    free_unsharded(f, unit);
    leave_site(f, before);
}
