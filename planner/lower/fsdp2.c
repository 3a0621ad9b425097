/* fsdp2.c - PyTorch FSDP2 (fully_shard, torch 2.15), event for event.
 *
 * Each unit is one FSDPParamGroup. The functions of fsdp2_gather.c and fsdp2_reduce.c are named
 * after the methods they follow (_fsdp_param_group.py, _fsdp_collectives.py, _fsdp_state.py) and do
 * what those do to memory and streams, in the same order:
 *
 *     forward   unshard        cast buffer, gather output, copy-in, all-gather, cast buffer dies
 *               wait           the PREVIOUS gather output dies; unsharded parameters, copy-out
 *               ...compute...
 *               post_forward   reshard: unsharded parameters die, or shrink to a secondary shard
 *     backward  pre_backward   wait; own gather output dies; unshard the unit before
 *               ...compute...
 *               post_backward  reshard; previous reduce-scatter input dies; copy-in; gradients
 *                              die; reduce-scatter; cast
 *     final     what post_backward has not run (the root, whose inputs need no gradient)
 *
 * Frees that come later than one would think, because a Python local still refers to the tensor:
 * the cast buffer, up to 2.14 the previous gather output, the last gradient of a unit. They set the
 * peaks.
 */
#include "lower/fsdp2.h"

#include <assert.h>

static struct unit *unit_at(const struct lowering *low, uint32_t module, bool first)
{
    const uint32_t unit = hooked_unit(&fsdp2_of(low)->wrapping, module, first);
    return unit == NONE ? NULL : &fsdp2_of(low)->units[unit];
}

/* ---- forward hooks ---- */

static bool is_beside(const struct lowering *low, const struct unit *unit)
{
    return unit->comm == &fsdp2_of(low)->beside;
}

/* Another model that is not resharded has no backward to do so: it is gathered once. */
static void begin_once(struct lowering *low, const struct unit *unit)
{
    if (is_beside(low, unit) && unit->post_ranks == 0)
        low->here.flags |= PLAN_FIRST_STEP;
}

static void end_once(struct lowering *low)
{
    low->here.flags &= (uint8_t)~PLAN_FIRST_STEP;
}

static void root_pre_forward(struct lowering *low, const struct comm *comm)
{
    if (low->strategy->offload) /* shards are read where the host's optimizer wrote them */
        emit_sync(low, LANE_COMPUTE, LANE_HOST);
    release_gather(low, comm, emit_record(low, LANE_COMPUTE));
}

/* Of a script that does not say where the root is called: what it is called with may be cast before
 * its own hooks. */
static void begin(struct lowering *low)
{
    if (!low->graph->enters_root || low->graph->casts_first)
        root_pre_forward(low, &fsdp2_of(low)->comm);
}

/* A checkpoint's forward within backward, of which the unit is the root: what it gathers waits for
 * what was issued so far, and nobody after it drops its last gather. It is not resharded
 * (FSDPParamGroup.post_forward, is_bw), and the order of backward stays what it was. */
static bool runs_again(const struct lowering *low)
{
    return low->here.phase == PLAN_BACKWARD;
}

static void drop_previous_gather(struct lowering *low, struct comm *comm)
{
    if (comm->previous_gather == NONE)
        return;
    release_gather(low, comm, comm->previous_event);
    emit_free(low, comm->previous_gather);
    comm->previous_gather = NONE;
}

static void pre_forward(struct lowering *low, uint32_t module)
{
    struct unit *unit = unit_at(low, module, true);
    const bool enters = low->graph->enters_root && !low->graph->casts_first;
    if (unit && ((module == MODULE_ROOT && enters) || is_beside(low, unit)))
        root_pre_forward(low, unit->comm);
    if (!unit || unit->in_pre_backward)
        return;
    unit->open = !runs_again(low);
    if (runs_again(low))
        release_gather(low, unit->comm, emit_record(low, LANE_COMPUTE));
    begin_once(low, unit);
    unshard(low, unit);
    wait_for_unshard(low, unit, true);
    end_once(low);
    for (uint32_t i = 0; i < unit->forward_list_count; i++)
        unshard(low, &fsdp2_of(low)->units[unit->forward_list[i]]);
}

static void end_forward(struct lowering *low, struct unit *unit)
{
    struct fsdp2 *f = fsdp2_of(low);
    unit->open = false;
    reshard_after_forward(low, unit);
    if (!unit->count || is_beside(low, unit))
        return;
    assert(unit->index_count < USES_MOST);
    unit->indices[unit->index_count++] = f->order_count;
    f->order[f->order_count++] = unit->index;
}

/* Of units of several modules whose last was not called the root's hook does what is left
 * (_force_complete_incomplete_states), and theirs of backward are on what the root returns. */
static void end_open_units(struct lowering *low)
{
    struct fsdp2 *f = fsdp2_of(low);
    for (uint32_t u = f->wrapping.units; u-- > 1;) {
        struct unit *unit = &f->units[u];
        unit->at_root = unit->open;
        if (!unit->open)
            continue;
        unit->in_backward |= f->units[0].in_backward; /* by the root's hook */
        end_forward(low, unit);
    }
}

static void post_forward(struct lowering *low, uint32_t module)
{
    struct unit *unit = unit_at(low, module, false);
    if (!unit)
        return;
    if (runs_again(low)) {
        drop_previous_gather(low, unit->comm);
        return;
    }
    end_forward(low, unit);
    if (unit->index == 0)
        end_open_units(low);
    begin_once(low, unit);
    if (unit->index == 0 || is_beside(low, unit))
        drop_previous_gather(low, unit->comm);
    end_once(low);
}

/* ---- backward hooks ---- */

static void unshard_in_backward(struct lowering *low, struct unit *unit)
{
    if (!unit->not_in_backward)
        unshard(low, unit);
}

static void begin_backward(struct lowering *low, struct unit *unit)
{
    struct fsdp2 *f = fsdp2_of(low);
    if (!unit->count)
        return;
    unit->in_pre_backward = true;
    if (!f->in_blocks && unit->index != 0 && !is_tail_unit(low, &f->wrapping, unit->index)) {
        f->in_blocks = true;
        emit_mark(low, PLAN_MARK_BACKWARD_BLOCKS);
    }
    const uint32_t before = enter_scope(low, "pre_backward", unit->index, true);
    unshard_in_backward(low, unit);
    wait_for_unshard(low, unit, false);
    const uint32_t index = unit->index_count ? unit->indices[--unit->index_count] : 0;
    if (!unit->backward_list_count && index > 0)
        unshard_in_backward(low, &f->units[f->order[index - 1]]);
    leave_scope(low, before);
    for (uint32_t i = 0; i < unit->backward_list_count; i++)
        unshard_in_backward(low, &f->units[unit->backward_list[i]]);
}

static void pre_backward(struct lowering *low, uint32_t module)
{
    struct fsdp2 *f = fsdp2_of(low);
    struct unit *unit = unit_at(low, module, false);
    if (!unit)
        return;
    begin_backward(low, unit);
    for (uint32_t u = unit->index == 0 ? f->wrapping.units : 0; u-- > 1;)
        if (f->units[u].at_root)
            begin_backward(low, &f->units[u]);
}

static void post_backward_hook(struct lowering *low, uint32_t module)
{
    struct unit *unit = unit_at(low, module, true);
    if (unit)
        post_backward(low, unit);
}

/* FSDPParamGroup.finalize_backward: a unit was prefetched that backward did not come to. */
static void drop_unused_gather(struct lowering *low, struct unit *unit)
{
    if (unit->pending && unit->gather != NONE) {
        emit_wait(low, LANE_COMPUTE, unit->gather_event);
        emit_free(low, unit->gather);
    }
    unit->pending = false;
}

/* What is reduced, of all units so far, is waited for before any of it is let go. */
static void wait_for_reductions(struct lowering *low)
{
    struct fsdp2 *f = fsdp2_of(low);
    for (int lane = 0; lane < 2; lane++) {
        if (f->last_reduced[lane] != NONE)
            emit_wait(low, LANE_COMPUTE, f->last_reduced[lane]);
        f->last_reduced[lane] = NONE;
    }
}

static void finalize_backward(struct lowering *low, struct unit *unit)
{
    unit->reduce_event = NONE;
    if (unit->all_reduce_held != NONE) {
        emit_free(low, unit->all_reduce_held);
        unit->all_reduce_held = NONE;
    }
    wait_for_offload(low, unit);
    drop_unused_gather(low, unit);
    unit->index_count = 0;
}

static void finish_backward(struct lowering *low)
{
    release_retained(low);
    fsdp2_of(low)->order_count = 0;
}

/* The root's post-backward final callback: states in pre-order, so the root first. The rest of it
 * only the last backward has (set_is_last_backward). */
static void final(struct lowering *low)
{
    struct fsdp2 *f = fsdp2_of(low);
    const bool last = !low->strategy->finalize_last || is_last_micro_batch(low);
    const bool each = !torch_does(low->graph->torch, TORCH_FINALIZES_LAST);
    f->in_blocks = false;
    for (uint32_t u = 0; u < f->wrapping.units; u++) {
        struct unit *unit = &f->units[u];
        if (is_beside(low, unit))
            continue;
        if (!unit->post_backward_ran)
            post_backward(low, unit);
        unit->post_backward_ran = unit->in_pre_backward = false;
        if (!last || !each)
            continue;
        if (unit->count) /* a root without parameters has no group to do so */
            wait_for_reductions(low);
        finalize_backward(low, unit);
    }
    if (!last)
        return;
    wait_for_reductions(low);
    for (uint32_t u = 0; u < f->wrapping.units && !each; u++)
        finalize_backward(low, &f->units[u]);
    finish_backward(low);
}

/* ---- the step ---- */

/* Each parameter's sharded gradient lies in its unit's buffer: chunks in unit order, each as long
 * as the padded shard. On the host each has its own. */
static void before_step(struct lowering *low)
{
    const struct fsdp2 *f = fsdp2_of(low);
    for (uint32_t p = 0; p < low->plan->param_count && low->strategy->offload; p++)
        if (f->host_grad[p] != NONE)
            set_gradient(low, p, f->host_grad[p], 0, false);
    for (uint32_t u = 0; u < f->wrapping.units; u++) {
        const struct unit *unit = &f->units[u];
        uint64_t offset = 0;
        for (uint32_t i = 0; i < unit->count && unit->sharded_grad != NONE; i++) {
            const uint32_t p = unit->params[i];
            if (!low->plan->params[p].trainable)
                continue;
            set_gradient(low, p, unit->sharded_grad, offset, false);
            offset += padded_shard(low, p);
        }
    }
    place_ignored_gradients(low, &f->wrapping);
    if (low->strategy->offload) {
        emit_sync(low, LANE_HOST, f->comm.copy_in); /* the optimizer writes what was copied in */
        emit_sync(low, LANE_COMPUTE, LANE_HOST);    /* clipping reads what was added up there */
    }
}

const struct system system_fsdp2 = {
    .name = "fsdp2",
    .state_bytes = sizeof(struct fsdp2),
    .dtensors = true,
    .input_nodes = true,
    .unit_hooks = true,
    .casts_inputs = true,
    .marks_blocks = true,
    .fetches_apart = true, /* into all_gather_copy_in_stream's memory, and out of it at their use */
    .prepare = fsdp2_prepare,
    .check = fsdp2_check,
    .set_up = fsdp2_set_up,
    .begin = begin,
    .pre_forward = pre_forward,
    .post_forward = post_forward,
    .pre_backward = pre_backward,
    .post_backward = post_backward_hook,
    .casts_gradient = fsdp2_casts_gradient,
    .final = final,
    .before_step = before_step,
    .after_step = precompute_scales,
    .close = fsdp2_zero_grad,
};
