/* ddp.c - PyTorch DistributedDataParallel (torch 2.14), event for event.
 *
 * Every rank has all parameters; gradients are averaged, bucket by bucket, while backward goes on
 * (nn/parallel/distributed.py and the reducer, torch/csrc/distributed/c10d/reducer.cpp; recordings
 * in tests/data/truth):
 *
 *     forward    module buffers are broadcast from rank 0, those of one dtype together
 *     backward   a gradient's hook copies it into its bucket, divided by the world; when all of the
 *                next bucket are in, its all-reduce starts. As views of their buckets, gradients
 *                move there for good, and autograd's tensor dies
 *     end        the compute stream waits for each bucket, which is copied back to the gradients
 *
 * Buckets are what the steady state has: rebuilt once, in the order in which gradients became
 * ready; with find_unused_parameters never, and how often each parameter was used is summed behind
 * the last bucket. Under no_sync nothing of this happens, and gradients are autograd's. */
#include "lower/lowering.h"

#include <assert.h>
#include <stdlib.h>

struct bucket {            /* in the order of the all-reduces */
    uint32_t first, count; /* range of ddp.order */
    uint64_t elements;
    uint32_t buffer;
    uint32_t pending; /* gradients still to come in this backward */
    uint32_t event;   /* it is reduced */
};

struct in_flight { /* a broadcast of module buffers */
    const uint32_t *buffers;
    uint32_t count;
    uint32_t flat; /* their flat copy; NONE: of one buffer, in place */
    uint32_t event;
};

struct ddp {
    uint8_t group, lane;          /* PLAN_NO_GROUP: a world of one */
    uint8_t future;               /* lane: what is done when a hook's collective is */
    uint32_t *order, order_count; /* parameters as their gradients become ready */
    struct bucket *buckets;
    uint32_t bucket_count, next; /* to be reduced */
    bool began;                  /* this backward's first gradient is there */
    uint32_t *bucket_of;         /* (params) NONE: frozen */
    uint64_t *offset;            /* (params) elements before it in its bucket */
    /* ZeroRedundancyOptimizer: parameters as their owners update them, owner after owner */
    uint32_t *owned, owned_count;
    uint32_t *owner;  /* (params) rank */
    uint32_t *views;  /* (ranks) buffers of all that a rank owns; NULL: parameters have their own */
    uint32_t used[2]; /* buffers: how often each parameter was used, as the host counts it and what
                         is summed of it; NONE: nobody asks */
    uint32_t used_event;
};

/* Broadcasts of module buffers: distributed.py, _sync_module_buffers and broadcast_bucket_size. */
enum { IN_FLIGHT_MOST = 2, BROADCAST_BYTES = 250 << 20 };

static struct ddp *ddp_of(const struct lowering *low)
{
    return low->state;
}

static bool has_hook(const struct lowering *low)
{
    return low->strategy->comm_hook != COMM_HOOK_NONE;
}

/* What a hook reduces buckets in. */
static enum dtype hook_dtype(const struct lowering *low)
{
    return low->strategy->comm_hook == COMM_HOOK_BF16   ? DTYPE_BF16
           : low->strategy->comm_hook == COMM_HOOK_FP16 ? DTYPE_FP16
                                                        : low->strategy->store;
}

/* ... on a copy, unless that is the bucket itself. */
static bool compresses(const struct lowering *low)
{
    return hook_dtype(low) != low->strategy->store;
}

/* Whether the graph is searched for unused parameters in each step (not once, as static). */
static bool finds_unused(const struct strategy *s)
{
    return system_copies_outputs(s);
}

/* A parameter's elements in its bucket. */
static struct operand view_of(const struct lowering *low, uint32_t p)
{
    const struct ddp *d = ddp_of(low);
    struct operand view = plan_whole_buffer(low->plan, d->buckets[d->bucket_of[p]].buffer);
    view.offset = d->offset[p];
    view.shape = low->plan->params[p].shape;
    return view;
}

/* y = factor · x. */
static void emit_scale(struct lowering *low, uint8_t lane, double factor, struct operand x,
                       struct operand y)
{
    const uint32_t kernel = emit_work_on(low, PLAN_COMPUTE, lane, WORK_MUL_NUMBER, ATEN_MUL,
                                         PLAN_NO_GROUP, 1, &x, 1, &y);
    plan_own_kernel(low->plan, kernel)->attr.p = (float)factor;
}

static void emit_copy(struct lowering *low, struct operand x, struct operand y)
{
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_COPY, ATEN_COPY_, PLAN_NO_GROUP, 1, &x, 1,
                 &y);
}

/* ---- what is there before the first step ---- */

static enum err_code check(const struct strategy *s, const struct graph *graph,
                           const struct stream *stream, struct err *err)
{
    const uint32_t unused = find_unused(graph, stream);
    if (unused != NONE && !s->find_unused)
        return err_set(
            err, ERR_INVALID,
            "%s is trained and gets no gradient: ddp waits for it and fails (\"Expected to "
            "have finished reduction in the prior iteration\"); %s--freeze what is like it",
            graph->params[unused].name,
            graph->is_recording ? "" : "--find-unused-parameters on, or ");
    if (unused != NONE && (s->static_graph || s->zero_redundancy))
        return err_set(
            err, ERR_UNSUPPORTED,
            "%s is trained and gets no gradient: what becomes of it with %s is not planned",
            graph->params[unused].name,
            s->static_graph ? "--static-graph on" : "--zero-redundancy");
    if (s->replicate > 1)
        return err_set(err, ERR_INVALID, "--replicate: ddp replicates over all ranks");
    if (s->offload)
        return err_set(err, ERR_INVALID, "--offload: ddp keeps parameters on the device");
    if (s->static_graph && s->accumulate > 1 && !s->accumulate_sync)
        return err_set(err, ERR_INVALID,
                       "--static-graph on with --accumulate-sync last: torch fails in the first "
                       "micro-batch under no_sync (expect_autograd_hooks_)");
    if (finds_unused(s) && graph->is_recording)
        return err_set(err, ERR_UNSUPPORTED,
                       "--find-unused-parameters on: what a recorded model returns is not in its "
                       "recording, so the copies of it cannot be planned");
    if (finds_unused(s) && graph->cross_entropy == CROSS_ENTROPY_CHUNKED)
        return err_set(err, ERR_UNSUPPORTED,
                       "--find-unused-parameters on with --loss chunked: what is returned in place "
                       "of logits was not recorded under ddp");
    if (finds_unused(s) && loss_is_per_token(graph->cross_entropy))
        return err_set(
            err, ERR_UNSUPPORTED,
            "--find-unused-parameters on with --loss per-token: what the model's own loss "
            "keeps lives until backward then, which is not planned");
    return check_frozen_dtype(s, graph, err);
}

/* Bytes at which a bucket is full. */
static uint64_t bucket_limit(const struct strategy *s, uint32_t bucket)
{
    const double unset = bucket == 0 ? 1 : 25;
    return (uint64_t)((s->bucket_cap_mb > 0 ? (double)s->bucket_cap_mb : unset) * 1048576);
}

static uint64_t bucket_bytes(const struct strategy *strategy)
{
    return bucket_limit(strategy, 1);
}

/* compute_bucket_assignment_by_size: the parameter that reaches the limit stays in its bucket. */
static void fill_buckets(struct lowering *low)
{
    struct ddp *d = low->state;
    const uint32_t element = dtype_bytes(low->strategy->store);
    bool open = false;
    for (uint32_t i = 0; i < d->order_count; i++) {
        const uint32_t p = d->order[i];
        if (!open)
            d->buckets[d->bucket_count++] = (struct bucket){.first = i};
        struct bucket *bucket = &d->buckets[d->bucket_count - 1];
        d->bucket_of[p] = d->bucket_count - 1;
        d->offset[p] = bucket->elements;
        bucket->elements += shape_elements(&low->plan->params[p].shape);
        bucket->count++;
        open = bucket->elements * element < bucket_limit(low->strategy, d->bucket_count - 1);
    }
}

/* The parameters that are trained as they are registered, those without a gradient, too: buckets
 * that are never rebuilt are filled in this order, and reduced from the last one on. */
static void order_as_registered(struct lowering *low)
{
    struct ddp *d = low->state;
    d->order_count = 0;
    for (uint32_t p = 0; p < low->plan->param_count; p++)
        if (low->plan->params[p].trainable)
            d->order[d->order_count++] = p;
}

/* Has a place in its bucket, and gets no gradient: find_unused_parameters. */
static bool is_unused(const struct lowering *low, uint32_t p)
{
    return !low->plan->params[p].trainable;
}

static void reverse_buckets(struct lowering *low)
{
    struct ddp *d = low->state;
    for (uint32_t i = 0, j = d->bucket_count; i + 1 < j--; i++) {
        const struct bucket first = d->buckets[i];
        d->buckets[i] = d->buckets[j];
        d->buckets[j] = first;
    }
    for (uint32_t i = 0; i < d->order_count; i++)
        d->bucket_of[d->order[i]] = d->bucket_count - 1 - d->bucket_of[d->order[i]];
}

/* Buckets are the plan's units; frozen parameters are in one of their own at the end. */
static void declare_units(struct lowering *low)
{
    const struct ddp *d = ddp_of(low);
    struct plan *plan = low->plan;
    const uint32_t frozen = plan->param_count - d->order_count;
    plan->unit_count = d->bucket_count + (frozen > 0);
    plan->units = arena_alloc(&plan->arena, (plan->unit_count + 1) * sizeof *plan->units);
    plan->unit_params = arena_alloc(&plan->arena, plan->param_count * sizeof(uint32_t));
    uint32_t next = 0;
    for (uint32_t b = 0; b < d->bucket_count; b++) {
        plan->units[b] = (struct plan_unit){arena_printf(&plan->arena, "bucket %u", b), next,
                                            d->buckets[b].count};
        for (uint32_t i = 0; i < d->buckets[b].count; i++) {
            const uint32_t p = d->order[d->buckets[b].first + i];
            plan->unit_params[next++] = p;
            plan->params[p].unit = b;
        }
    }
    if (frozen)
        plan->units[d->bucket_count] = (struct plan_unit){frozen_unit(plan), next, frozen};
    for (uint32_t p = 0; p < plan->param_count; p++)
        if (d->bucket_of[p] == NONE) {
            plan->unit_params[next++] = p;
            plan->params[p].unit = d->bucket_count;
        }
}

/* ---- ZeroRedundancyOptimizer (torch/distributed/optim/zero_redundancy_optimizer.py) ---- */

struct sized {
    uint64_t elements;
    uint32_t param;
};

static int largest_first(const void *x, const void *y)
{
    const struct sized *a = x, *b = y;
    if (a->elements != b->elements)
        return a->elements > b->elements ? -1 : 1;
    return a->param < b->param ? -1 : a->param > b->param;
}

/* Those that are trained, largest first and of equals the one listed first. Returns their number.
 */
static uint32_t sort_trained(struct lowering *low, struct sized **out)
{
    const struct plan *plan = low->plan;
    struct sized *of = arena_lend(&low->scratch, (plan->param_count + 1) * sizeof *of);
    uint32_t count = 0;
    for (uint32_t p = 0; p < plan->param_count; p++)
        if (plan->params[p].trainable)
            of[count++] = (struct sized){shape_elements(&plan->params[p].shape), p};
    qsort(of, count, sizeof *of, largest_first);
    *out = of;
    return count;
}

/* _partition_parameters: each goes to the rank with the fewest elements so far. */
static void choose_owners(struct lowering *low)
{
    struct ddp *d = low->state;
    const uint32_t world = low->strategy->world;
    uint64_t *elements = arena_alloc(&low->scratch, world * sizeof *elements);
    uint32_t *firsts = arena_alloc(&low->scratch, (world + 1UL) * sizeof *firsts);
    struct sized *taken;
    const uint32_t count = sort_trained(low, &taken);
    d->owner = none_array(low, low->plan->param_count);
    d->owned = none_array(low, low->plan->param_count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t rank = 0;
        for (uint32_t r = 1; r < world; r++)
            if (elements[r] < elements[rank])
                rank = r;
        d->owner[taken[i].param] = rank;
        elements[rank] += taken[i].elements;
        firsts[rank + 1]++;
    }
    for (uint32_t r = 0; r < world; r++)
        firsts[r + 1] += firsts[r];
    for (uint32_t i = 0; i < count; i++)
        d->owned[firsts[d->owner[taken[i].param]]++] = taken[i].param;
    d->owned_count = count;
}

/* parameters_as_bucket_view: one tensor an owner, and of one element where a rank owns nothing. */
static void declare_owned(struct lowering *low)
{
    struct ddp *d = low->state;
    const uint32_t world = low->strategy->world;
    uint64_t *elements = arena_alloc(&low->scratch, world * sizeof *elements);
    uint64_t *offset = arena_alloc(&low->scratch, low->plan->param_count * sizeof *offset);
    for (uint32_t i = 0; i < d->owned_count; i++) {
        const uint32_t p = d->owned[i];
        offset[p] = elements[d->owner[p]];
        elements[d->owner[p]] += shape_elements(&low->plan->params[p].shape);
    }
    d->views = none_array(low, world);
    for (uint32_t r = 0; r < world; r++)
        d->views[r] = new_resident(low, CATEGORY_PARAM, LANE_COMPUTE, ATEN_EMPTY,
                                   elements[r] ? low->strategy->store : DTYPE_FP32,
                                   flat(elements[r] ? elements[r] : 1));
    for (uint32_t i = 0; i < d->owned_count; i++) {
        const uint32_t p = d->owned[i];
        new_piece(low, p, PIECE_STORE, d->views[d->owner[p]], offset[p],
                  (struct placement){.kind = PLACEMENT_WHOLE}, PLAN_NO_GROUP);
    }
}

/* What a rank updates of a parameter is all of it, or nothing. */
static void declare_owners(struct lowering *low)
{
    const struct ddp *d = ddp_of(low);
    for (uint32_t i = 0; i < d->owned_count; i++) {
        const uint32_t p = d->owned[i];
        const struct plan_piece store = *plan_piece(low->plan, p, PIECE_STORE);
        new_piece(low, p, PIECE_MASTER, store.buffer, store.offset,
                  (struct placement){.kind = PLACEMENT_OWNED, .at = d->owner[p]}, d->group);
    }
    optimize_params(low, d->owned, d->owned_count);
}

static void broadcast_from(struct lowering *low, uint32_t owner, uint32_t buffer)
{
    const struct ddp *d = ddp_of(low);
    const uint32_t kernel = emit_work(low, PLAN_BROADCAST, d->lane, WORK_BROADCAST,
                                      ATEN_C10D_BROADCAST, d->group, 1, &buffer, 1, &buffer);
    plan_own_kernel(low->plan, kernel)->attr.dim = owner;
}

/* Every parameter goes from its owner to all, or every owner's tensor. */
static void broadcast_parameters(struct lowering *low)
{
    const struct ddp *d = ddp_of(low);
    if (d->group == PLAN_NO_GROUP || d->owned_count == 0)
        return;
    emit_sync(low, d->lane, LANE_COMPUTE);
    for (uint32_t r = 0; d->views && r < low->strategy->world; r++)
        broadcast_from(low, r, d->views[r]);
    for (uint32_t i = 0; !d->views && i < d->owned_count; i++)
        broadcast_from(low, d->owner[d->owned[i]],
                       plan_piece(low->plan, d->owned[i], PIECE_STORE)->buffer);
    emit_sync(low, LANE_COMPUTE, d->lane);
}

static void set_up(struct lowering *low)
{
    struct ddp *d = low->state;
    const struct strategy *s = low->strategy;
    d->lane = plan_add_lane(low->plan, "all_reduce", false);
    if (compresses(low))
        d->future = plan_add_lane(low->plan, "future", false);
    d->group =
        s->world > 1 ? plan_add_group(low->plan, "data", GROUP_DATA, s->world, 1) : PLAN_NO_GROUP;
    d->order = none_array(low, low->plan->param_count);
    d->bucket_of = none_array(low, low->plan->param_count);
    d->offset = arena_alloc(&low->scratch, low->plan->param_count * sizeof *d->offset);
    d->buckets = arena_alloc(&low->scratch, low->plan->param_count * sizeof *d->buckets);
    for (uint32_t i = 0; i < low->stream->grad_count; i++)
        d->order[d->order_count++] = low->stream->grads[i].param;
    if (finds_unused(s))
        order_as_registered(low);
    fill_buckets(low);
    if (finds_unused(s))
        reverse_buckets(low);
    declare_units(low);
    leave_out_unused(low);
    if (s->zero_redundancy) { /* a rank has kernels for its own parameters alone */
        low->plan->own_programs = s->world > 1;
        choose_owners(low);
    }
    if (s->zero_redundancy == ZERO_REDUNDANCY_VIEW)
        declare_owned(low);
    declare_whole_params(low); /* but for those in their owner's tensor */
    for (uint32_t b = 0; b < d->bucket_count; b++)
        d->buckets[b].buffer = new_resident(low, CATEGORY_BUCKET, LANE_COMPUTE, ATEN_EMPTY,
                                            s->store, flat(d->buckets[b].elements));
    d->used[0] = d->used[1] = NONE;
    if (s->static_graph || finds_unused(s)) /* on the host's side and the device's */
        for (int map = 0; map < 2; map++)
            d->used[map] = new_resident(low, CATEGORY_PERSISTENT, LANE_COMPUTE, ATEN_EMPTY,
                                        DTYPE_INT32, SHAPE(d->order_count));
    if (s->zero_redundancy)
        declare_owners(low);
}

/* ---- forward: module buffers ---- */

static struct in_flight start_broadcast(struct lowering *low, const uint32_t *buffers,
                                        uint32_t count)
{
    const struct ddp *d = ddp_of(low);
    const enum dtype dtype = (enum dtype)low->plan->buffers[buffers[0]].dtype;
    struct in_flight started = {.buffers = buffers, .count = count, .flat = NONE, .event = NONE};
    uint32_t sent = buffers[0];
    if (count > 1) {
        uint64_t elements = 0;
        for (uint32_t i = 0; i < count; i++)
            elements += shape_elements(&low->plan->buffers[buffers[i]].shape);
        sent = started.flat =
            alloc_buffer(low, CATEGORY_BUCKET, LANE_COMPUTE, ATEN_CAT, dtype, flat(elements));
        emit_work(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_PACK, ATEN_CAT, PLAN_NO_GROUP, count,
                  buffers, 1, &sent);
    }
    if (d->group == PLAN_NO_GROUP)
        return started;
    emit_sync(low, d->lane, LANE_COMPUTE);
    emit_work(low, PLAN_BROADCAST, d->lane, WORK_BROADCAST, ATEN_C10D_BROADCAST, d->group, 1, &sent,
              1, &sent);
    started.event = emit_record(low, d->lane);
    return started;
}

static void finish_broadcast(struct lowering *low, const struct in_flight *started)
{
    if (started->event != NONE)
        emit_wait(low, LANE_COMPUTE, started->event);
    if (started->flat == NONE)
        return;
    struct operand from = plan_whole_buffer(low->plan, started->flat);
    for (uint32_t i = 0; i < started->count; i++) {
        const struct operand to = plan_whole_buffer(low->plan, started->buffers[i]);
        from.shape = to.shape;
        emit_copy(low, from, to);
        from.offset += shape_elements(&to.shape);
    }
    emit_free(low, started->flat);
}

/* The next buffers that go together: of the dtype of the first that has not gone, until they are as
 * large as one broadcast is. Returns how many; `gone` marks them. */
static uint32_t take_buffers(const struct lowering *low, bool *gone, uint32_t *out)
{
    const struct plan *plan = low->plan;
    uint32_t count = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->module_buffer_count && bytes < BROADCAST_BYTES; i++) {
        const struct buffer *buffer = &plan->buffers[plan->module_buffers[i].buffer];
        if (gone[i] || (count && plan->buffers[out[0]].dtype != buffer->dtype))
            continue;
        gone[i] = true;
        out[count++] = plan->module_buffers[i].buffer;
        bytes += buffer->bytes;
    }
    return count;
}

/* _sync_module_buffers: at most two broadcasts are in flight. */
static void broadcast_buffers(struct lowering *low)
{
    const uint32_t all = low->plan->module_buffer_count;
    bool *gone = arena_alloc(&low->scratch, all + 1);
    uint32_t *taken = none_array(low, all), used = 0, count;
    for (uint32_t i = 0; i < all; i++)
        gone[i] = low->plan->module_buffers[i].values.unlisted;
    struct in_flight flights[IN_FLIGHT_MOST];
    uint32_t flying = 0;
    while ((count = take_buffers(low, gone, taken + used)) > 0) {
        if (flying == IN_FLIGHT_MOST) {
            finish_broadcast(low, &flights[0]);
            flights[0] = flights[1];
            flying--;
        }
        flights[flying++] = start_broadcast(low, taken + used, count);
        used += count;
    }
    for (uint32_t i = 0; i < flying; i++)
        finish_broadcast(low, &flights[i]);
}

static void begin(struct lowering *low)
{
    struct ddp *d = low->state;
    d->next = 0;
    d->began = false;
    for (uint32_t b = 0; b < d->bucket_count; b++)
        d->buckets[b].pending = d->buckets[b].count;
}

/* Buffers are sent when the forward before this one synchronised (require_forward_param_sync): a
 * step's last one always does. A reference is the model that is wrapped, called by itself. */
static void pre_forward(struct lowering *low, uint32_t module)
{
    if (module != MODULE_ROOT || low->no_grad)
        return;
    if (low->strategy->keep_buffers || (low->micro_batch > 0 && !low->strategy->accumulate_sync))
        return;
    const uint32_t before = enter_scope(low, "ddp_pre_forward", PLAN_NO_UNIT, false);
    broadcast_buffers(low);
    leave_scope(low, before);
}

/* ---- backward ---- */

static void all_reduce(struct lowering *low, uint32_t buffer)
{
    const struct ddp *d = ddp_of(low);
    if (d->group != PLAN_NO_GROUP)
        emit_work(low, PLAN_ALL_REDUCE, d->lane, WORK_ALL_REDUCE_SUM, ATEN_ALL_REDUCE, d->group, 1,
                  &buffer, 1, &buffer);
}

/* A compressing hook: a half-size copy is reduced and, on the stream of its future, copied back;
 * the host lets go of it at once, the allocator when that has passed. */
static void reduce_compressed(struct lowering *low, uint32_t bucket, uint64_t elements)
{
    const struct ddp *d = ddp_of(low);
    const uint32_t copy = alloc_buffer(low, CATEGORY_BACKWARD, LANE_COMPUTE, ATEN_TO_COPY,
                                       hook_dtype(low), flat(elements));
    const struct operand whole = plan_whole_buffer(low->plan, copy);
    emit_unary(low, LANE_COMPUTE, WORK_CAST, ATEN_TO_COPY, bucket, copy);
    emit_scale(low, LANE_COMPUTE, 1.0 / low->strategy->world, whole, whole);
    emit_sync(low, d->lane, LANE_COMPUTE);
    all_reduce(low, copy);
    emit_sync(low, d->future, d->lane);
    emit_unary(low, d->future, WORK_CAST, ATEN_COPY_, copy, bucket);
    emit_free_after(low, copy, d->future);
}

static void reduce_bucket(struct lowering *low, struct bucket *bucket)
{
    const struct ddp *d = ddp_of(low);
    if (compresses(low)) {
        reduce_compressed(low, bucket->buffer, bucket->elements);
    } else {
        const struct operand whole = plan_whole_buffer(low->plan, bucket->buffer);
        if (has_hook(low))
            emit_scale(low, LANE_COMPUTE, 1.0 / low->strategy->world, whole, whole);
        emit_sync(low, d->lane, LANE_COMPUTE);
        all_reduce(low, bucket->buffer);
    }
    bucket->event = emit_record(low, compresses(low) ? d->future : d->lane);
}

static void reduce_complete(struct lowering *low)
{
    struct ddp *d = low->state;
    while (d->next < d->bucket_count && d->buckets[d->next].pending == 0)
        reduce_bucket(low, &d->buckets[d->next++]);
}

/* Before the first gradient: the places of parameters that get none are zeros, and in. */
static void mark_unused(struct lowering *low)
{
    struct ddp *d = low->state;
    if (d->began)
        return;
    d->began = true;
    for (uint32_t i = 0; i < d->order_count; i++)
        if (is_unused(low, d->order[i])) {
            const struct operand view = view_of(low, d->order[i]);
            emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_FILL, ATEN_ZEROS, PLAN_NO_GROUP, 0,
                         NULL, 1, &view);
            d->buckets[d->bucket_of[d->order[i]]].pending--;
            reduce_complete(low);
        }
}

/* The hook of AccumulateGrad: mark_variable_ready_dense, then the buckets that are complete. */
static void gradient(struct lowering *low, uint32_t p)
{
    struct ddp *d = low->state;
    if (!low->sync)
        return;
    mark_unused(low);
    const struct operand view = view_of(low, p), grad = low->grad[p];
    if (!has_hook(low))
        emit_scale(low, LANE_COMPUTE, 1.0 / low->strategy->world, grad, view);
    else if (grad.place != view.place)
        emit_copy(low, grad, view);
    if (low->strategy->bucket_view)
        move_gradient(low, p, view);
    d->buckets[d->bucket_of[p]].pending--;
    reduce_complete(low);
    if (d->next == d->bucket_count && finds_unused(low->strategy)) {
        emit_copy(low, plan_whole_buffer(low->plan, d->used[0]),
                  plan_whole_buffer(low->plan, d->used[1]));
        emit_sync(low, d->lane, LANE_COMPUTE);
        all_reduce(low, d->used[1]);
        d->used_event = emit_record(low, d->lane);
    }
}

/* finalize_backward. */
static void final(struct lowering *low)
{
    const struct ddp *d = ddp_of(low);
    for (uint32_t b = 0; b < d->bucket_count && low->sync; b++) {
        const struct bucket *bucket = &d->buckets[b];
        emit_wait(low, LANE_COMPUTE, bucket->event);
        for (uint32_t i = 0; i < bucket->count && !low->strategy->bucket_view; i++) {
            const uint32_t p = d->order[bucket->first + i];
            if (!is_unused(low, p))
                emit_copy(low, view_of(low, p), low->grad[p]);
        }
    }
    if (low->sync && finds_unused(low->strategy) && d->bucket_count > 0)
        emit_wait(low, LANE_COMPUTE, d->used_event);
}

/* ---- the step ---- */

static void zero_grad(struct lowering *low)
{
    if (!low->strategy->bucket_view)
        free_gradients(low);
}

const struct system system_ddp = {
    .name = "ddp",
    .as_stored = true,
    .state_bytes = sizeof(struct ddp),
    .bucket_bytes = bucket_bytes,
    .node_hooks = true,
    .check = check,
    .set_up = set_up,
    .begin = begin,
    .pre_forward = pre_forward,
    .gradient = gradient,
    .final = final,
    .before_step = gradients_are_whole,
    .after_step = broadcast_parameters,
    .close = zero_grad,
};
