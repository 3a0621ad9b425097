/* zero3_fetch.c - the coordinator of ZeRO stage 3 (partitioned_param_coordinator.py): which
 * parameters are whole, when.
 *
 * From the second step on it knows the order of all calls of a micro-batch, the trace
 * (zero3_trace.c says when it does not). At a call:
 *
 *     fetch     what the module needs and is not there is gathered; then waited for, which copies
 *               gathers of several parameters apart; then what the calls to come need is gathered
 *               ahead, until prefetch_bucket_size elements are on their way and as long as there
 *               are less than max_live_parameters
 *     release   what is not needed again within max_reuse_distance elements of the trace, and was
 *               not gathered for a later call already, is partitioned: its memory goes
 *
 * Modules without parameters fetch and release nothing, but gather ahead all the same. What is
 * released stays as long as a node holds the memory itself (a view of it, or anything that was
 * saved while a checkpointed region ran again) and not the parameter; backward gathers it a second
 * time.
 *
 * hpZ (zero_hpz_partition_size): at its first release a parameter leaves a piece for a smaller
 * group of ranks, near each other, which later gathers of the step take instead; what is frozen has
 * it for good. */
#include "lower/zero3.h"

#include <assert.h>

/* ---- gathers ---- */

static struct zero3_handle *new_handle(struct lowering *low, const uint32_t *params, uint32_t count)
{
    struct zero3_handle *handle = arena_alloc(&low->scratch, sizeof *handle);
    *handle = (struct zero3_handle){.params = none_array(low, count),
                                    .count = count,
                                    .event = NONE,
                                    .quantized = NONE,
                                    .scales = NONE,
                                    .left = count};
    for (uint32_t i = 0; i < count; i++) { /* in the order in which parameters were made */
        uint32_t at = i;
        for (; at > 0 && handle->params[at - 1] > params[i]; at--)
            handle->params[at] = handle->params[at - 1];
        handle->params[at] = params[i];
    }
    return handle;
}

/* Into `whole`, from what is in its place there. Returns the event behind it. */
static uint32_t gather(struct lowering *low, uint8_t group, struct operand whole)
{
    const uint8_t nccl = zero3_of(low)->nccl_lane;
    emit_work_on(low, PLAN_ALL_GATHER, nccl, WORK_ALL_GATHER, ATEN_ALL_GATHER_INTO_TENSOR, group, 1,
                 &whole, 1, &whole);
    return emit_record(low, nccl);
}

static void put_in(struct lowering *low, uint8_t lane, uint8_t group, struct operand whole,
                   uint32_t count, const struct operand *shards)
{
    emit_work_on(low, PLAN_COPY_IN, lane, WORK_COPY_IN, ATEN_FOREACH_COPY_, group, count, shards, 1,
                 &whole);
}

/* Of one parameter, whose shard NCCL finds where it is. */
static uint32_t gather_shard(struct lowering *low, uint8_t lane, uint8_t group,
                             struct operand whole, struct operand shard)
{
    const uint8_t nccl = zero3_of(low)->nccl_lane;
    emit_sync(low, nccl, lane);
    put_in(low, nccl, group, whole, 1, &shard);
    return gather(low, group, whole);
}

/* Of what comes together, be it one of its dtype: `lane` copies shards together first
 * (torch.cat). */
static uint32_t gather_shards(struct lowering *low, uint8_t lane, uint8_t group,
                              struct operand whole, uint32_t count, const struct operand *shards)
{
    put_in(low, lane, group, whole, count, shards);
    emit_sync(low, zero3_of(low)->nccl_lane, lane);
    return gather(low, group, whole);
}

/* What a rank of `group` has of it. */
static struct operand shard_in(const struct lowering *low, uint8_t group, uint32_t p)
{
    return group == zero3_of(low)->shard_group
               ? zero3_shard(low, p)
               : plan_whole_buffer(low->plan, zero3_of(low)->params[p].secondary);
}

/* One parameter: into its place. `shard` is on the device. */
static uint32_t gather_to(struct lowering *low, uint8_t lane, uint8_t group, uint32_t p,
                          uint32_t buffer, struct operand shard)
{
    zero3_of(low)->params[p].buffer = buffer;
    if (low->plan->buffers[buffer].resident) /* else there already */
        emit_alloc(low, buffer);
    return gather_shard(low, lane, group, plan_whole_buffer(low->plan, buffer), shard);
}

static uint32_t gather_one(struct lowering *low, uint8_t lane, uint8_t group, uint32_t p,
                           uint32_t buffer)
{
    struct operand shard = shard_in(low, group, p);
    emit_alloc(low, buffer);
    zero3_bring_shards(low, lane, &shard, 1);
    const uint32_t event = gather_to(low, lane, group, p, buffer, shard);
    zero3_drop_copies(low, zero3_of(low)->nccl_lane, &shard, 1);
    return event;
}

static uint32_t new_place(struct lowering *low, uint8_t lane, uint32_t p)
{
    const struct zero3 *z = zero3_of(low);
    return new_buffer(low, CATEGORY_UNSHARDED_PARAM, lane, ATEN_EMPTY, zero_dtype(low, p),
                      flat(z->params[p].part * z->ranks));
}

/* Those of one dtype, in `shards`: how many, and elements of a rank. */
static uint32_t shards_of(struct lowering *low, const struct zero3_handle *handle, enum dtype dtype,
                          struct operand *shards, uint64_t *elements)
{
    uint32_t count = 0;
    *elements = 0;
    for (uint32_t i = 0; i < handle->count; i++) {
        const uint32_t p = handle->params[i];
        if (zero_dtype(low, p) != dtype)
            continue;
        shards[count++] = shard_in(low, handle->group, p);
        *elements += zero3_of(low)->params[p].part;
    }
    return count;
}

static void gather_dtype(struct lowering *low, struct zero3_handle *handle, enum dtype dtype)
{
    const struct zero3 *z = zero3_of(low);
    struct operand *shards = arena_alloc(&low->scratch, handle->count * sizeof *shards);
    uint64_t elements = 0;
    const uint32_t count = shards_of(low, handle, dtype, shards, &elements);
    if (count == 0)
        return;
    struct zero3_flat *flat_in = zero3_add_flat(low, handle, dtype);
    flat_in->buffer = alloc_buffer(low, CATEGORY_ALL_GATHER, z->gather_lane, ATEN_EMPTY, dtype,
                                   flat(elements * z->ranks));
    zero3_bring_shards(low, z->gather_lane, shards, count);
    flat_in->event = gather_shards(low, z->gather_lane, handle->group,
                                   plan_whole_buffer(low->plan, flat_in->buffer), count, shards);
    zero3_drop_copies(low, z->gather_lane, shards, count);
}

/* _all_gather_coalesced: several together, those of one dtype; bfloat16 is sorted before uint8, as
 * are all of floating point. */
static void gather_several(struct lowering *low, struct zero3_handle *handle)
{
    const enum dtype packed = low->graph->bits4.storage, floats = low->strategy->compute;
    gather_dtype(low, handle, floats);
    if (packed != floats)
        gather_dtype(low, handle, packed);
}

static void gather_in_8_bits(struct lowering *low, struct zero3_handle *handle)
{
    struct operand *shards = arena_alloc(&low->scratch, handle->count * sizeof *shards);
    for (uint32_t i = 0; i < handle->count; i++)
        shards[i] = shard_in(low, handle->group, handle->params[i]);
    zero3_gather_quantized(low, handle, shards);
}

/* NoGatherHandle: one rank has it whole, on the host. */
static void copy_in(struct lowering *low, uint8_t lane, uint32_t p, uint32_t buffer)
{
    zero3_of(low)->params[p].buffer = buffer;
    emit_alloc(low, buffer);
    zero_move(low, PLAN_HOST_TO_DEVICE, lane, zero3_shard(low, p),
              plan_whole_buffer(low->plan, buffer), low->strategy->zero.param.pageable);
}

static void copy_all_in(struct lowering *low, struct zero3_handle *handle)
{
    const uint8_t lane = zero3_of(low)->gather_lane;
    for (uint32_t i = 0; i < handle->count; i++)
        copy_in(low, lane, handle->params[i],
                new_buffer(low, CATEGORY_UNSHARDED_PARAM, lane, ATEN_TO_COPY,
                           zero_dtype(low, handle->params[i]),
                           flat(zero3_elements(low, handle->params[i]))));
    handle->event = emit_record(low, lane);
}

/* Of one group: all have a secondary piece, or none has. */
static void gather_in(struct lowering *low, uint8_t group, const uint32_t *params, uint32_t count)
{
    struct zero3 *z = low->state;
    if (count == 0)
        return;
    struct zero3_handle *handle = new_handle(low, params, count);
    handle->group = group;
    for (uint32_t i = 0; i < count; i++) {
        struct zero3_param *param = &z->params[params[i]];
        z->available += zero3_elements(low, params[i]);
        param->status = zero3_brings(low) ? ZERO3_IN_FLIGHT : ZERO3_AVAILABLE;
        param->handle = handle;
        param->flight = z->flights++;
    }
    if (!zero3_brings(low)) /* what a rank keeps is the parameter */
        for (uint32_t i = 0; i < count; i++)
            low->gathered[params[i]] = zero3_shard(low, params[i]);
    else if (z->ranks == 1)
        copy_all_in(low, handle);
    else if (zero3_quantizes(low))
        gather_in_8_bits(low, handle);
    else if (count == 1)
        handle->event = gather_one(low, z->gather_lane, group, params[0],
                                   new_place(low, z->gather_lane, params[0]));
    else
        gather_several(low, handle);
}

static void gather_params(struct lowering *low, const uint32_t *params, uint32_t count)
{
    const struct zero3 *z = zero3_of(low);
    uint32_t *with = none_array(low, count), *without = none_array(low, count), n = 0, m = 0;
    for (uint32_t i = 0; i < count; i++)
        if (z->params[params[i]].secondary != NONE)
            with[n++] = params[i];
        else
            without[m++] = params[i];
    gather_in(low, z->secondary_group, with, n);
    gather_in(low, z->shard_group, without, m);
}

/* ---- waiting ---- */

static void set_place(struct lowering *low, uint32_t p)
{
    low->gathered[p] = plan_whole_buffer(low->plan, zero3_of(low)->params[p].buffer);
}

static void copy_apart(struct lowering *low, const struct zero3_handle *handle,
                       const struct zero3_flat *of)
{
    struct zero3 *z = low->state;
    const struct operand flat_in = plan_whole_buffer(low->plan, of->buffer);
    struct operand *out = arena_alloc(&low->scratch, handle->count * sizeof *out);
    uint32_t count = 0;
    for (uint32_t i = 0; i < handle->count; i++) {
        const uint32_t p = handle->params[i];
        if (zero_dtype(low, p) != of->dtype)
            continue;
        z->params[p].buffer = alloc_buffer(low, CATEGORY_UNSHARDED_PARAM, z->gather_lane, ATEN_CAT,
                                           of->dtype, flat(zero3_elements(low, p)));
        out[count++] = plan_whole_buffer(low->plan, z->params[p].buffer);
    }
    emit_work_on(low, PLAN_COPY_OUT, z->gather_lane, WORK_COPY_OUT, ATEN_CAT, handle->group, 1,
                 &flat_in, count, out);
}

static void end_handle(struct lowering *low, const struct zero3_handle *handle)
{
    if (handle->left > 0)
        return;
    if (handle->quantized != NONE)
        zero3_drop_quantized(low, handle);
    else
        zero3_drop_flats(low, handle);
}

/* `lane` waits; the handle is the caller's still. */
static struct zero3_handle *take(struct lowering *low, uint32_t p, uint8_t lane)
{
    struct zero3 *z = low->state;
    struct zero3_handle *handle = z->params[p].handle;
    const bool arrives = z->params[p].status == ZERO3_IN_FLIGHT && !handle->complete;
    if (!handle->complete && handle->event != NONE)
        emit_wait(low, z->ranks > 1 ? lane : LANE_HOST, handle->event);
    if (arrives && handle->quantized != NONE)
        zero3_dequantize(low, handle);
    for (uint32_t i = 0; i < handle->flat_count && arrives && handle->quantized == NONE; i++) {
        emit_wait(low, lane, handle->flats[i].event);
        copy_apart(low, handle, &handle->flats[i]);
    }
    for (uint32_t i = 0; i < handle->count && !handle->complete; i++) {
        z->params[handle->params[i]].status = ZERO3_AVAILABLE;
        if (zero3_brings(low))
            set_place(low, handle->params[i]);
    }
    handle->complete = true;
    z->params[p].handle = NULL;
    handle->left--;
    return handle;
}

static void wait_for(struct lowering *low, uint32_t p, uint8_t lane)
{
    end_handle(low, take(low, p, lane));
}

/* ---- partitioning ---- */

/* Blocks that computing still uses come back when that has passed. */
static void drop(struct lowering *low, uint32_t buffer)
{
    zero3_let_go(low, buffer, LANE_COMPUTE);
}

/* _partition_param_sec: this rank's piece among those of its secondary group. */
static void keep_secondary(struct lowering *low, uint32_t p)
{
    struct zero3 *z = low->state;
    struct zero3_param *param = &z->params[p];
    if (z->secondary_group == PLAN_NO_GROUP || param->secondary != NONE)
        return;
    const uint32_t ranks = plan_group_ranks(low->plan, z->secondary_group);
    const uint64_t n = zero3_elements(low, p), size = param->part * z->ranks / ranks;
    const uint64_t first =
        size * plan_group_rank(low->plan, z->secondary_group, low->strategy->rank);
    const uint64_t have = first < n ? (n - first < size ? n - first : size) : 0;
    const bool on_host = low->strategy->zero.param.on;
    param->secondary = zero3_new_secondary(low, zero_dtype(low, p), size);
    const struct operand whole = plan_whole_buffer(low->plan, param->secondary);
    if (have < size)
        emit_work_on(low, PLAN_COMPUTE, on_host ? LANE_HOST : LANE_COMPUTE, WORK_FILL, ATEN_ZEROS,
                     PLAN_NO_GROUP, 0, NULL, 1, &whole);
    if (on_host)
        emit_sync(low, LANE_COMPUTE, LANE_HOST);
    if (have && on_host)
        zero_move(low, PLAN_DEVICE_TO_HOST, LANE_COMPUTE, zero_run(low->gathered[p], first, have),
                  zero_run(whole, 0, have), true);
    else if (have)
        zero_copy(low, LANE_COMPUTE, zero_run(low->gathered[p], first, have),
                  zero_run(whole, 0, have));
    if (on_host)
        emit_sync(low, z->gather_lane, LANE_HOST);
    emit_sync(low, LANE_HOST, LANE_COMPUTE); /* backward gathers from it */
}

void zero3_drop_secondary(struct lowering *low)
{
    struct zero3 *z = low->state;
    for (uint32_t p = 0; p < low->plan->param_count; p++) {
        if (z->params[p].secondary == NONE || z->params[p].group == NONE)
            continue;
        drop(low, z->params[p].secondary);
        z->params[p].secondary = NONE;
    }
}

/* Whether a node has saved it. */
static bool is_saved(const struct zero3_param *param, uint32_t buffer)
{
    const struct zero3_saved *s = param->saved;
    while (s && s->buffer != buffer)
        s = s->before;
    return s != NULL;
}

/* What is released stays, as nodes hold it until backward. */
static void leave_to_nodes(struct lowering *low, uint32_t buffer)
{
    struct plan *plan = low->plan;
    uint64_t *held = &zero3_of(low)->saved_bytes;
    const uint64_t bytes = plan->buffers[buffer].bytes;
    *held += bytes;
    if (plan->saved_views_bytes < *held)
        plan->saved_views_bytes = *held;
    if (plan->saved_view_bytes < bytes)
        plan->saved_view_bytes = bytes;
}

static void partition(struct lowering *low, uint32_t p)
{
    struct zero3 *z = low->state;
    struct zero3_param *param = &z->params[p];
    if (param->status != ZERO3_AVAILABLE || param->users > 0)
        return;
    keep_secondary(low, p);
    if (param->buffer != NONE && is_saved(param, param->buffer))
        leave_to_nodes(low, param->buffer);
    else if (param->buffer != NONE)
        drop(low, param->buffer);
    param->buffer = NONE;
    param->status = ZERO3_PARTITIONED;
    z->available -= zero3_elements(low, p);
}

void zero3_save(struct lowering *low, uint32_t p)
{
    struct zero3_param *param = &zero3_of(low)->params[p];
    struct zero3_saved *saved = arena_alloc(&low->scratch, sizeof *saved);
    *saved = (struct zero3_saved){param->buffer, param->saved};
    param->saved = saved;
}

void zero3_unsave(struct lowering *low, uint32_t p)
{
    struct zero3_param *param = &zero3_of(low)->params[p];
    const uint32_t buffer = param->saved->buffer;
    param->saved = param->saved->before;
    if (buffer == NONE || buffer == param->buffer || is_saved(param, buffer))
        return;
    zero3_of(low)->saved_bytes -= low->plan->buffers[buffer].bytes;
    drop(low, buffer);
}

/* What is_reused sees of a call: with those of modules in it where `whole`; else its own alone, of
 * which a leaf module of others' parameters has none. */
static uint64_t elements_seen(const struct lowering *low, uint32_t index, bool whole)
{
    const struct zero3 *z = zero3_of(low);
    const struct graph_call *call = &z->calls->at[index];
    uint64_t elements = 0;
    if (whole)
        return z->whole[index];
    for (uint32_t i = 0; i < call->params && !call->leaf; i++)
        elements += zero3_elements(low, z->calls->params[call->first_param + i]);
    return elements;
}

static bool sees(const struct zero3 *z, uint32_t index, uint32_t p, bool whole)
{
    const struct graph_call *call = &z->calls->at[index];
    if (whole && graph_call_within(z->calls, z->home_call[p], index))
        return true;
    for (uint32_t i = 0; i < call->params && (whole || !call->leaf); i++)
        if (z->calls->params[call->first_param + i] == p)
            return true;
    return false;
}

/* Calls from `step` on, until they have used max_reuse_distance elements, use the parameter, which
 * `call` releases. __params_to_release looks at every one of them as it looks at that call: into
 * the modules within it where that is a leaf module, else not. */
static bool is_reused(const struct lowering *low, uint32_t call, uint32_t p)
{
    const struct zero3 *z = zero3_of(low);
    const bool whole = z->calls->at[call].leaf;
    uint64_t distance = 0;
    for (uint32_t i = z->step; i < z->trace_count; i++) {
        if (distance >= z->options->max_reuse_distance)
            return false;
        if (sees(z, z->trace[i], p, whole))
            return true;
        distance += elements_seen(low, z->trace[i], whole);
    }
    return false;
}

/* ---- what a recomputation fetches ---- */

/* update_recompute_parameters: no hook behind backward comes for what is frozen, so the innermost
 * call that backward is in has it until its own one. */
static void own_recomputed(struct lowering *low, uint32_t p)
{
    struct zero3 *z = low->state;
    struct zero3_param *param = &z->params[p];
    if (low->plan->params[p].trainable || z->active_count == 0 || param->owner != NONE)
        return;
    param->owner = z->active[z->active_count - 1];
    param->users++;
    z->owned[z->owned_count++] = p;
}

/* Whether the call was its owner, which it is no more. */
static bool disown(struct zero3 *z, uint32_t p, uint32_t call)
{
    uint32_t kept = 0;
    if (z->params[p].owner != call)
        return false;
    z->params[p].owner = NONE;
    z->params[p].users--;
    for (uint32_t i = 0; i < z->owned_count; i++)
        if (z->owned[i] != p)
            z->owned[kept++] = z->owned[i];
    z->owned_count = kept;
    return true;
}

static void release_owned(struct lowering *low, uint32_t call)
{
    struct zero3 *z = low->state;
    for (uint32_t i = 0; i < z->owned_count;) {
        const uint32_t p = z->owned[i];
        if (!disown(z, p, call))
            i++;
        else if (!z->params[p].persistent)
            partition(low, p);
    }
}

/* ---- hooks ---- */

/* The parameter that has been in flight for longest; NONE: none is. */
static uint32_t first_in_flight(const struct lowering *low)
{
    const struct zero3 *z = zero3_of(low);
    uint32_t first = NONE;
    for (uint32_t p = z->first; p < z->end; p++)
        if (z->params[p].handle && (first == NONE || z->params[p].flight < z->params[first].flight))
            first = p;
    return first;
}

/* _clean_inflight_param_registry, which has the handles until all are released. */
static void clean_in_flight(struct lowering *low)
{
    struct zero3_handle **handles =
        arena_alloc(&low->scratch, (low->plan->param_count + 1) * sizeof(struct zero3_handle *));
    uint32_t count = 0;
    for (uint32_t p = first_in_flight(low); p != NONE; p = first_in_flight(low)) {
        struct zero3_handle *handle = take(low, p, LANE_COMPUTE);
        partition(low, p);
        if (handle->left == 0)
            handles[count++] = handle;
    }
    for (uint32_t i = 0; i < count; i++)
        end_handle(low, handles[i]);
}

void zero3_reset(struct lowering *low)
{
    struct zero3 *z = low->state;
    clean_in_flight(low);
    zero3_trace_restarts(z);
    for (uint32_t p = z->first; p < z->end; p++)
        z->params[p].fetched = -1;
    z->next_use = z->active_count = 0;
    z->available = 0;
    if (z->gather_lane != LANE_COMPUTE) /* shards are what the update wrote */
        emit_sync(low, z->gather_lane, LANE_COMPUTE);
    if (low->strategy->zero.param.on)
        emit_sync(low, z->gather_lane, LANE_HOST);
}

/* What the module uses leaves the queue, unless it was gathered ahead for this call. */
static void take_from_queue(struct zero3 *z, const struct graph_call *call)
{
    uint32_t taken = 0, wanted = 0;
    for (uint32_t i = 0; i < call->params; i++)
        wanted += z->params[z->calls->params[call->first_param + i]].fetched < (int64_t)z->step;
    for (; z->next_use < z->use_count && taken < wanted; taken++) {
        const struct zero3_use *use = &z->uses[z->next_use++];
        z->params[use->param].fetched = use->call;
    }
}

static void prefetch(struct lowering *low)
{
    struct zero3 *z = low->state;
    const struct zero_options *o = z->options;
    if (o->prefetch_bucket_size == 0 || z->available >= o->max_live_parameters)
        return;
    const uint64_t room = o->max_live_parameters - z->available;
    const uint64_t most = room < o->prefetch_bucket_size ? room : o->prefetch_bucket_size;
    uint32_t *params = none_array(low, z->use_count - z->next_use), count = 0;
    uint64_t elements = 0;
    while (z->next_use < z->use_count && elements < most) {
        const struct zero3_use *use = &z->uses[z->next_use++];
        struct zero3_param *param = &z->params[use->param];
        bool wanted = param->status == ZERO3_PARTITIONED;
        for (uint32_t i = 0; i < count; i++)
            wanted = wanted && params[i] != use->param;
        if (param->fetched < (int64_t)use->call)
            param->fetched = use->call;
        if (wanted) {
            params[count++] = use->param;
            elements += zero3_elements(low, use->param);
        }
    }
    gather_params(low, params, count);
}

void zero3_fetch(struct lowering *low, uint32_t index, bool forward)
{
    struct zero3 *z = low->state;
    const struct graph_call *call = &z->calls->at[index];
    uint32_t *missing = none_array(low, call->params), count = 0;
    if (zero3_trace_breaks(z, index)) {
        for (uint32_t p = z->first; p < z->end; p++)
            z->params[p].fetched = -1;
        clean_in_flight(low);
    }
    if (!forward)
        z->active[z->active_count++] = index;
    const uint32_t before = enter_named_scope(low, "ds_fetch", call->name);
    for (uint32_t i = 0; i < call->params; i++) {
        const uint32_t p = z->calls->params[call->first_param + i];
        if (z->params[p].status == ZERO3_PARTITIONED)
            missing[count++] = p;
    }
    gather_params(low, missing, count);
    for (uint32_t i = 0; i < call->params; i++) {
        const uint32_t p = z->calls->params[call->first_param + i];
        z->params[p].users += !z->in_use[call->first_param + i];
        z->in_use[call->first_param + i] = true;
        if (forward && low->here.phase == PLAN_BACKWARD)
            own_recomputed(low, p);
        if (!z->params[p].handle)
            continue;
        zero3_hold_host(low, &z->fetches);
        wait_for(low, p, z->gather_lane);
        zero3_add_event(low, &z->fetches, z->gather_lane);
    }
    if (z->gather_lane != LANE_COMPUTE)
        emit_sync(low, LANE_COMPUTE, z->gather_lane);
    if (z->tracing == ZERO3_TRACE_COMPLETE) {
        take_from_queue(z, call);
        prefetch(low);
    }
    z->step++;
    leave_scope(low, before);
}

/* Where a call has the parameter in the list of all. */
static uint32_t place_of(const struct zero3 *z, const struct graph_call *call, uint32_t p)
{
    uint32_t at = call->first_param;
    while (z->calls->params[at] != p)
        at++;
    return at;
}

void zero3_release(struct lowering *low, uint32_t index, bool forward)
{
    struct zero3 *z = low->state;
    const struct graph_call *call = &z->calls->at[index];
    const uint32_t before = enter_named_scope(low, "ds_release", call->name);
    for (uint32_t i = z->active_count; !forward && i-- > 0;)
        if (z->active[i] == index) {
            for (uint32_t j = i + 1; j < z->active_count; j++)
                z->active[j - 1] = z->active[j];
            z->active_count--;
            break;
        }
    for (uint32_t i = 0; i < call->params; i++) {
        const uint32_t p = z->leaving[call->first_param + i], at = place_of(z, call, p);
        struct zero3_param *param = &z->params[p];
        param->users -= z->in_use[at];
        z->in_use[at] = false;
        const bool owned = !forward && disown(z, p, index); /* a set has its own but once, first */
        const bool traced = z->tracing == ZERO3_TRACE_COMPLETE; /* else all that it uses goes */
        const bool is_last = param->fetched <= (int64_t)z->step && !is_reused(low, index, p);
        if (!traced || (!param->persistent && (owned || is_last)))
            partition(low, p);
    }
    if (!forward)
        release_owned(low, index);
    leave_scope(low, before);
}

void zero3_release_leftovers(struct lowering *low)
{
    struct zero3 *z = low->state;
    while (z->active_count > 0) {
        const struct graph_call *call = &z->calls->at[z->active[--z->active_count]];
        for (uint32_t i = 0; i < call->params; i++) {
            const uint32_t p = z->leaving[call->first_param + i], at = place_of(z, call, p);
            z->params[p].users -= z->in_use[at];
            z->in_use[at] = false;
            disown(z, p, z->active[z->active_count]);
            if (!z->params[p].persistent)
                partition(low, p);
        }
        release_owned(low, z->active[z->active_count]);
    }
}

void zero3_partition_all(struct lowering *low)
{
    struct zero3 *z = low->state;
    for (uint32_t p = z->first; p < z->end; p++) {
        if (z->params[p].handle)
            wait_for(low, p, LANE_COMPUTE);
        z->params[p].users = 0;
        z->params[p].owner = NONE;
        partition(low, p);
    }
    z->owned_count = 0;
    for (uint32_t c = 0; c < z->calls->count; c++)
        for (uint32_t i = 0; i < z->calls->at[c].params; i++)
            z->in_use[z->calls->at[c].first_param + i] = false;
}

static void copy_persistent_in(struct lowering *low, const uint32_t *params, uint32_t count)
{
    struct zero3 *z = low->state;
    for (uint32_t i = 0; i < count; i++) {
        copy_in(low, LANE_COMPUTE, params[i], z->params[params[i]].home);
        z->params[params[i]].status = ZERO3_AVAILABLE;
        set_place(low, params[i]);
    }
    if (count)
        emit_sync(low, LANE_HOST, LANE_COMPUTE);
}

/* _allgather_params_sequential, which one alone takes: its place is there before its piece is. */
static void gather_alone(struct lowering *low, uint32_t p)
{
    struct zero3 *z = low->state;
    struct zero3_param *param = &z->params[p];
    struct operand shard = zero3_shard(low, p);
    const struct operand home = plan_whole_buffer(low->plan, param->home);
    param->buffer = param->home;
    emit_alloc(low, param->home);
    zero3_bring_shards(low, LANE_COMPUTE, &shard, 1);
    if (z->ranks > 1) {
        emit_wait(low, LANE_COMPUTE, gather_shard(low, LANE_COMPUTE, z->shard_group, home, shard));
    } else {
        zero_copy(low, LANE_COMPUTE, shard, home);
        emit_sync(low, LANE_HOST, LANE_COMPUTE);
    }
    param->status = ZERO3_AVAILABLE;
    set_place(low, p);
    zero3_drop_copies(low, LANE_COMPUTE, &shard, 1);
}

void zero3_gather_persistent(struct lowering *low)
{
    struct zero3 *z = low->state;
    uint32_t *params = none_array(low, low->plan->param_count), count = 0;
    for (uint32_t p = z->first; p < z->end && zero3_brings(low); p++)
        if (z->params[p].persistent)
            params[count++] = p;
    if (count == 1) {
        gather_alone(low, params[0]);
        return;
    }
    if (!zero3_gathers_persistent(z)) {
        copy_persistent_in(low, params, count);
        return;
    }
    struct operand *shards = arena_alloc(&low->scratch, (count + 1) * sizeof *shards);
    for (uint32_t i = 0; i < count; i++)
        shards[i] = zero3_shard(low, params[i]);
    zero3_bring_shards(low, LANE_COMPUTE, shards, count);
    uint32_t *events = none_array(low, count);
    for (uint32_t i = 0; i < count; i++) {
        struct zero3_param *param = &z->params[params[i]];
        events[i] = gather_to(low, LANE_COMPUTE, z->shard_group, params[i], param->home, shards[i]);
        param->status = ZERO3_AVAILABLE;
        set_place(low, params[i]);
    }
    for (uint32_t i = 0; i < count; i++)
        emit_wait(low, LANE_COMPUTE, events[i]);
    if (count == 0)
        return;
    zero3_drop_copies(low, LANE_COMPUTE, shards, count - 1);
    zero3_drop_copies(low, LANE_COMPUTE, &shards[count - 1], 1); /* a loop variable's */
}
