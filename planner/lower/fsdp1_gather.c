/* fsdp1_gather.c - unshard and reshard of one flat parameter, prefetching, the limiter of
 * all-gathers (see fsdp1.c; _runtime_utils.py, _flat_param.py, _limiter_utils.py). */
#include "lower/fsdp1.h"

#include <assert.h>

/* ---- the limiter: a queue of frees ---- */

enum { IN_FLIGHT_MOST = 2 }; /* all-gathers: _FreeEventQueue */

/* The host blocks on the oldest free when two are under way. */
static void limit(struct lowering *low, struct root *root)
{
    if (low->strategy->unlimited_gathers || root->free_count < IN_FLIGHT_MOST)
        return;
    const uint32_t event = root->free_events[root->free_first++];
    root->free_count--;
    if (event != NONE)
        emit_wait(low, LANE_HOST, event);
}

/* The queue is an array that begins anew when it is empty or its end is reached. */
static void note_free(struct root *root, uint32_t event)
{
    if (root->free_first + root->free_count == root->free_room) {
        for (uint32_t i = 0; i < root->free_count; i++)
            root->free_events[i] = root->free_events[root->free_first + i];
        root->free_first = 0;
    }
    assert(root->free_first + root->free_count < root->free_room);
    root->free_events[root->free_first + root->free_count++] = event;
}

/* ---- unshard ---- */

/* An offloaded shard, on the device. */
static uint32_t bring_shard(struct lowering *low, const struct handle *handle)
{
    const uint8_t lane = handle->root->pre_unshard;
    const uint32_t brought = alloc_buffer(low, CATEGORY_CAST_SHARD, lane, ATEN_TO_COPY,
                                          handle->stored, flat(handle->shard));
    emit_work(low, PLAN_HOST_TO_DEVICE, lane, WORK_COPY, ATEN_TO_COPY, PLAN_NO_GROUP, 1,
              &handle->store, 1, &brought);
    return brought;
}

static void cast_shard(struct lowering *low, struct handle *handle)
{
    const uint32_t before = enter_scope(low, "_use_low_precision_shard", handle->unit, false);
    uint32_t from = handle->store;
    emit_alloc(low, handle->cast);
    handle->cast_held = true;
    if (low->strategy->offload)
        from = bring_shard(low, handle);
    emit_unary(low, handle->root->pre_unshard, WORK_CAST, ATEN_COPY_, from, handle->cast);
    if (from != handle->store)
        emit_free(low, from);
    leave_scope(low, before);
}

/* What uses it is `lane`. */
static void free_cast(struct lowering *low, struct handle *handle, uint8_t lane)
{
    const uint32_t before = enter_scope(low, "free_low_precision", handle->unit, false);
    if (handle->cast_held)
        emit_free_after(low, handle->cast, lane);
    handle->cast_held = false;
    leave_scope(low, before);
}

static void gather(struct lowering *low, struct handle *handle, uint32_t shard)
{
    const struct fsdp1 *f = fsdp1_of(low);
    emit_alloc(low, handle->gathered);
    emit_work(low, PLAN_ALL_GATHER, handle->root->unshard, WORK_ALL_GATHER,
              ATEN_ALL_GATHER_INTO_TENSOR, f->group, 1, &shard, 1, &handle->gathered);
    handle->unsharded = true;
}

void fsdp1_restore_host(struct lowering *low, struct handle *handle)
{
    if (!handle->stale)
        return;
    handle->stale = false;
    const uint32_t before = enter_scope(low, "_writeback_orig_params", handle->unit, false);
    handle->restored = alloc_buffer(low, CATEGORY_GRADIENT, LANE_HOST, ATEN_ZEROS_LIKE,
                                    handle->stored, flat(handle->shard));
    emit_work(low, PLAN_COMPUTE, LANE_HOST, WORK_FILL, ATEN_ZEROS_LIKE, PLAN_NO_GROUP, 0, NULL, 1,
              &handle->restored);
    emit_unary(low, LANE_HOST, WORK_COPY, ATEN_COPY_, handle->kept, handle->restored);
    leave_scope(low, before);
}

void fsdp1_unshard(struct lowering *low, struct handle *handle)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const bool gathers = f->sharded && !handle->unsharded;
    const uint32_t before = enter_scope(low, "_unshard", handle->unit, true);
    uint32_t brought = NONE;
    fsdp1_restore_host(low, handle);
    /* FlatParamHandle.pre_unshard: of what is offloaded a shard is copied even where the unit is
     * still gathered, and nobody reads it. */
    if (handle->cast != NONE && (gathers || !f->sharded || low->strategy->offload)) {
        cast_shard(low, handle);
        emit_sync(low, handle->root->unshard, handle->root->pre_unshard);
    } else if (low->strategy->offload) {
        brought = bring_shard(low, handle);
        emit_sync(low, handle->root->unshard, handle->root->pre_unshard);
    }
    limit(low, handle->root);
    if (gathers)
        gather(low, handle,
               handle->cast_held ? handle->cast
               : brought != NONE ? brought
                                 : handle->store);
    /* flat_param_to's copy dies with flat_param.data. Nobody tells the allocator of the gather that
     * reads it, as of a cast shard; here it is told, or the next copy might be written over it. */
    if (brought != NONE)
        emit_free_after(low, brought, gathers ? handle->root->unshard : handle->root->pre_unshard);
    if (f->sharded && handle->cast != NONE)
        free_cast(low, handle, handle->root->unshard);
    handle->viewed = true;
    leave_scope(low, before);
}

void fsdp1_make_views(struct lowering *low, struct handle *handle, uint32_t under)
{
    struct fsdp1 *f = low->state;
    if (low->no_grad)
        return;
    f->views[f->view_count++] = (struct views){handle, under};
}

/* ---- reshard ---- */

void fsdp1_reshard(struct lowering *low, struct handle *handle, bool frees)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const uint32_t before = enter_scope(low, "_reshard", handle->unit, true);
    if (frees && handle->unsharded) {
        emit_free_after(low, handle->gathered, LANE_COMPUTE);
        handle->unsharded = false;
    }
    if (frees && !low->strategy->unlimited_gathers)
        note_free(handle->root, emit_record(low, LANE_COMPUTE));
    if (!f->sharded && handle->cast != NONE)
        free_cast(low, handle, LANE_COMPUTE);
    handle->viewed = handle->prefetched = false;
    leave_scope(low, before);
}

bool fsdp1_frees_in_backward(const struct lowering *low)
{
    const struct fsdp1 *f = fsdp1_of(low);
    return f->sharded && (low->sync || f->reshards);
}

/* ---- prefetching: one unit ahead ---- */

void fsdp1_prefetch_forward(struct lowering *low, const struct handle *handle, uint32_t under)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const struct root *root = handle->root;
    if (low->strategy->forward_prefetch == 0 || handle->forward_index == NONE ||
        handle->forward_index + 1 >= root->forward_count)
        return;
    struct handle *next = &f->handles[root->forward_order[handle->forward_index + 1]];
    if (!next->needs_pre_forward || next->prefetched)
        return;
    fsdp1_unshard(low, next);
    fsdp1_make_views(low, next, under);
    next->prefetched = true;
}

void fsdp1_prefetch_backward(struct lowering *low, const struct handle *handle,
                             enum backward_prefetch when)
{
    const struct fsdp1 *f = fsdp1_of(low);
    if (low->strategy->prefetch != when || handle->backward_index == NONE ||
        handle->backward_index == 0)
        return;
    struct handle *next = &f->handles[f->backward_order[handle->backward_index - 1]];
    if (!next->needs_pre_backward || next->prefetched)
        return;
    fsdp1_unshard(low, next);
    next->prefetched = true;
}
