/* fsdp1.c - PyTorch FSDP1 (FullyShardedDataParallel, torch 2.14), event for event.
 *
 * A unit's parameters are one flat parameter, of which each rank keeps a shard. While a unit
 * computes, its parameters are views of the gathered one (_runtime_utils.py, _flat_param.py,
 * _exec_order_utils.py; recordings in tests/data/truth):
 *
 *     forward   pre_forward    unshard: [the shard is cast], gathered; [the next unit's, too]
 *               ...compute...
 *               post_forward   reshard: the gathered parameter dies, but the root's
 *     backward  pre_backward   unshard, if it is not there; the unit before is prefetched
 *               ...compute...  the gradients of all parameters, until the last one is there
 *               cat            autograd makes them one flat gradient
 *               post-backward  reshard; reduce-scatter, in its dtype; the shard is .grad
 *     final     compute waits for the reductions
 *
 * The strategies differ in two bits, whether anything is sharded and whether forward reshards; the
 * hybrid ones reduce once more over replicas.
 *
 * When a unit's flat gradient is made is autograd's decision. Its node, the backward of the views,
 * was made in a pre-forward and runs when backward has come back to that point: behind everything
 * that was computed since. So a forward prefetch moves it by a unit.
 *
 * The host goes ahead of the device, and frees what the device still reads (record_stream: a free
 * on another lane than the pool's). The limiter holds it back: it waits for the free of two buffers
 * ago before it gathers another. What it waits for may be of the step before, and then has passed:
 * the queue is as long when a step begins as a step leaves it (`settles`). */
#include "lower/fsdp1.h"

/* ---- forward hooks ---- */

static void root_pre_forward(struct lowering *low, const struct root *root)
{
    struct fsdp1 *f = low->state;
    for (uint32_t u = 0; u < f->handle_count && low->strategy->forward_prefetch; u++) {
        if (f->handles[u].root != root)
            continue;
        f->handles[u].needs_pre_forward = true;
        f->handles[u].prefetched = false;
    }
    if (low->strategy->offload) /* shards are read where the host's optimizer wrote them */
        emit_sync(low, LANE_COMPUTE, LANE_HOST);
    emit_sync(low, root->unshard, LANE_COMPUTE);
    emit_sync(low, root->pre_unshard, LANE_COMPUTE);
    if (root == &f->root)
        fsdp1_drop_gradients(low);
}

/* Of a script that does not say where the root is called: what it is called with may be cast before
 * its own hooks. */
static void begin(struct lowering *low)
{
    if (!low->graph->enters_root || low->graph->casts_first)
        root_pre_forward(low, &fsdp1_of(low)->root);
}

static bool is_again(const struct fsdp1 *f, uint32_t module)
{
    return module != MODULE_ROOT && f->again[module];
}

static void pre_forward(struct lowering *low, uint32_t module)
{
    const struct fsdp1 *f = fsdp1_of(low);
    struct handle *handle = fsdp1_handle_at(low, module);
    const bool again = low->here.phase == PLAN_BACKWARD;
    if (module == MODULE_ROOT && low->graph->enters_root && !low->graph->casts_first)
        root_pre_forward(low, &f->root);
    else if (module == low->graph->beside.module)
        root_pre_forward(low, &f->beside);
    if (!handle || (again && handle->ran_pre_backward))
        return;
    if (!handle->prefetched) {
        fsdp1_unshard(low, handle);
        if (again == is_again(f, module)) /* the other forward is none of autograd's */
            fsdp1_make_views(low, handle, module);
    }
    handle->needs_pre_forward = false;
    emit_sync(low, LANE_COMPUTE, handle->root->unshard);
    fsdp1_prefetch_forward(low, handle, module);
}

static bool needs_gradient(const struct lowering *low, uint32_t module)
{
    const struct graph *graph = low->graph;
    const uint32_t output = module == MODULE_ROOT ? graph->loss : graph->modules[module].output;
    return output != GRAPH_NONE && graph->tensors[output].requires_grad;
}

static void post_forward(struct lowering *low, uint32_t module)
{
    struct fsdp1 *f = low->state;
    struct handle *handle = fsdp1_handle_at(low, module);
    const bool again = low->here.phase == PLAN_BACKWARD;
    if (!handle || (again && handle->ran_pre_backward))
        return;
    if (fsdp1_is_beside(low, handle)) { /* it stays whole where no backward comes to it */
        fsdp1_reshard(low, handle, f->reshards && handle->unit != f->own_count);
        return;
    }
    if (handle->backward_index == NONE || handle->backward_index == 0) /* taken for none */
        handle->backward_index = f->backward_count;
    f->backward_order[f->backward_count++] = handle->unit;
    fsdp1_reshard(low, handle, f->reshards && handle->unit != 0);
    fsdp1_expose_host(low, handle);
    handle->viewed = f->sharded && !f->reshards && low->strategy->use_orig_params;
    if (!low->no_grad)
        handle->needs_pre_backward = needs_gradient(low, module) && (again || !is_again(f, module));
}

/* ---- backward hooks ---- */

/* _post_backward_reshard_only_hook, of a unit without gradients of its own. */
static void reshard_waiting(struct lowering *low)
{
    struct fsdp1 *f = low->state;
    struct handle *handle = f->waiting;
    if (!handle)
        return;
    f->waiting = NULL;
    fsdp1_reshard(low, handle, fsdp1_frees_in_backward(low));
    fsdp1_prefetch_backward(low, handle, PREFETCH_POST);
}

static void pre_backward_hook(struct lowering *low, struct handle *handle)
{
    struct fsdp1 *f = low->state;
    if (!handle || handle->ran_pre_backward)
        return;
    if (handle->unit != 0 && !f->in_units)
        emit_mark(low, PLAN_MARK_BACKWARD_BLOCKS);
    f->in_units |= handle->unit != 0;
    const uint32_t before = enter_scope(low, "_pre_backward_hook", handle->unit, true);
    if (handle->needs_pre_backward) {
        if (!handle->prefetched)
            fsdp1_unshard(low, handle);
        emit_sync(low, LANE_COMPUTE, handle->root->unshard);
    }
    handle->needs_pre_backward = false;
    fsdp1_prefetch_backward(low, handle, PREFETCH_PRE);
    fsdp1_resume_gradient(low, handle);
    handle->ran_pre_backward = true;
    leave_scope(low, before);
    reshard_waiting(low);
}

/* Hooks of one tensor run in the order in which they were put on it: that of a unit that returned
 * what the one around it returns comes first. */
static void pre_backward(struct lowering *low, uint32_t module)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const uint32_t last = f->returned[module == MODULE_ROOT ? low->graph->module_count : module];
    if (last != NONE)
        pre_backward(low, last);
    pre_backward_hook(low, fsdp1_handle_at(low, module));
}

/* Backward is back where the pre-forward of module `under` was: flat gradients of the views that
 * were made there and since, last first. */
static void come_back_to(struct lowering *low, uint32_t under)
{
    struct fsdp1 *f = low->state;
    uint32_t stay = 0;
    while (under != MODULE_ROOT && stay < f->view_count && f->views[stay].under != under)
        stay++;
    while (f->view_count > stay) {
        struct handle *handle = f->views[--f->view_count].handle;
        if (handle->trained)
            fsdp1_reduce(low, handle);
    }
}

/* A backward of the module's own runs all that it leads to, wherever the views were made. */
static void nested(struct lowering *low, uint32_t module)
{
    struct fsdp1 *f = low->state;
    struct handle *handle = fsdp1_handle_at(low, module);
    uint32_t left = 0;
    for (uint32_t i = 0; i < f->view_count; i++)
        if (f->views[i].handle != handle)
            f->views[left++] = f->views[i];
    const bool made = left < f->view_count;
    f->view_count = left;
    if (made && handle->trained)
        fsdp1_reduce(low, handle);
}

/* Whether a module is called with what another unit returned. */
static bool follows_unit(const struct lowering *low, uint32_t module)
{
    const struct graph *graph = low->graph;
    const struct graph_module *m = &graph->modules[module];
    for (uint32_t i = 0; i < graph->module_count; i++)
        for (uint32_t in = 0; in < m->inputs && fsdp1_handle_at(low, i); in++)
            if (graph->modules[i].output != GRAPH_NONE &&
                graph->tensors[graph->modules[i].output].root == graph->tensors[m->input[in]].root)
                return true;
    return false;
}

/* The gradients of a frozen unit's inputs are there. Hooks of one tensor run in the order in which
 * they were put on it: the pre-backward of the unit that returned it comes first. */
static void post_backward(struct lowering *low, uint32_t module)
{
    struct fsdp1 *f = low->state;
    struct handle *handle = fsdp1_handle_at(low, module);
    come_back_to(low, module);
    if (!handle || handle->trained)
        return;
    f->waiting = handle;
    if (!follows_unit(low, module))
        reshard_waiting(low);
}

/* _post_backward_final_callback. */
static void final(struct lowering *low)
{
    struct fsdp1 *f = low->state;
    come_back_to(low, MODULE_ROOT);
    if (low->sync) {
        emit_sync(low, LANE_COMPUTE, f->post_backward);
        if (f->all_reduce != LANE_COMPUTE)
            emit_sync(low, LANE_COMPUTE, f->all_reduce);
        if (low->strategy->offload) /* for copies of gradients */
            emit_sync(low, LANE_HOST, LANE_COMPUTE);
    }
    f->backward_count = 0;
    f->waiting = NULL;
    f->in_units = false;
    for (uint32_t u = 0; u < f->own_count; u++) {
        struct handle *handle = &f->handles[u];
        if (handle->viewed)
            fsdp1_reshard(low, handle, fsdp1_frees_in_backward(low));
        fsdp1_finish_gradient(low, handle);
        handle->ran_pre_backward = handle->needs_pre_backward = handle->prefetched = false;
        handle->backward_index = NONE;
    }
}

const struct system system_fsdp1 = {
    .name = "fsdp1",
    .state_bytes = sizeof(struct fsdp1),
    .unit_hooks = true,
    .views = true,
    .casts_root = true,
    .marks_blocks = true,
    .settles = true,
    .prepare = fsdp1_prepare,
    .check = fsdp1_check,
    .set_up = fsdp1_set_up,
    .begin = begin,
    .pre_forward = pre_forward,
    .post_forward = post_forward,
    .pre_backward = pre_backward,
    .back = come_back_to,
    .post_backward = post_backward,
    .nested = nested,
    .final = final,
    .update = fsdp1_update,
    .close = fsdp1_zero_grad,
};
