/* zero3.c - DeepSpeed ZeRO stage 3 (deepspeed 0.19.8), event for event.
 *
 * Every parameter is cut into N pieces by itself; a rank has one of each, in 16 bits for computing,
 * and in fp32 what it updates. Every module's hooks bring its parameters and let them go
 * (zero3_fetch.c). Gradients are copied into a bucket as they come (stage3.py):
 *
 *     full      the pieces of all its gradients are put together rank by rank, and scattered;
 *               what is this rank's is copied, or added, into a buffer that is always there
 *     epilogue  the rest likewise
 *     step      zero3_step.c
 *
 * Also always there: the bucket, and small parameters, which are whole between steps. */
#include "lower/zero3.h"
#include "lower/states.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is there before the first step ---- */

/* DeepSpeed's kernel takes multiples of 8, and asserts it of what is gathered together. */
static enum err_code check_quantized(const struct strategy *s, const struct graph *graph,
                                     struct err *err)
{
    uint64_t all = 0;
    if (s->zero.param.on)
        return err_set(err, ERR_UNSUPPORTED,
                       "--zero: zero_quantized_weights with offload_param is not planned");
    for (uint32_t p = 0; s->world > 1 && p < graph->param_count; p++) {
        const uint64_t n = shape_elements(&graph->params[p].shape);
        const uint64_t part = placement_chunk(n, s->world);
        const bool persistent = n <= s->zero.param_persistence_threshold &&
                                n + all <= s->zero.model_persistence_threshold;
        all += persistent ? n : 0;
        if (!persistent && part % 8 != 0)
            return err_set(
                err, ERR_INVALID,
                "--zero: zero_quantized_weights: a rank's piece of %s has %llu elements, "
                "and DeepSpeed quantises multiples of 8",
                graph->params[p].name, (unsigned long long)part);
    }
    return ERR_OK;
}

/* Where a reduction's pieces are put together, each that is shorter than a rank's part is filled up
 * by a tensor of its own, rank by rank (reduce_scatter_coalesced): parameters times ranks. So many
 * a micro-batch take 20 s of a host that calls torch.empty for each (5 us): nobody would train so.
 */
enum { PADS_MOST = 1 << 22 };

static enum err_code check_pads(const struct strategy *s, const struct graph *graph,
                                struct err *err)
{
    uint64_t pads = 0;
    for (uint32_t p = 0; p < graph->param_count; p++) {
        const uint64_t n = shape_elements(&graph->params[p].shape);
        if (graph->params[p].trainable && n > 0)
            pads += s->world - n / placement_chunk(n, s->world);
    }
    if (pads > PADS_MOST)
        return err_set(err, ERR_UNSUPPORTED,
                       "zero3 on %u ranks: parameters are cut into so many pieces each, and "
                       "DeepSpeed makes %llu tensors a micro-batch that fill up the short ones; "
                       "more than %d are not planned: fewer --gpus, or another --strategy",
                       s->world, (unsigned long long)pads, PADS_MOST);
    return ERR_OK;
}

static enum err_code check(const struct strategy *s, const struct graph *graph,
                           const struct stream *stream, struct err *err)
{
    if (s->world % s->zero.hpz_partition_size != 0)
        return err_set(err, ERR_INVALID,
                       "--zero: zero_hpz_partition_size: %llu does not divide the %u ranks",
                       (unsigned long long)s->zero.hpz_partition_size, s->world);
    if (graph->lies_across)
        return err_set(err, ERR_UNSUPPORTED,
                       "zero3: the layer of %s is given tokens as columns, which DeepSpeed's "
                       "function in its place copies again in backward: not planned; ZeRO-1 and 2 "
                       "and FSDP are",
                       graph->lies_across);
    if (graph->cross_entropy == CROSS_ENTROPY_CUT)
        return err_set(
            err, ERR_UNSUPPORTED,
            "--loss cut-cross-entropy under zero3: its backward gathers the head's weight, "
            "which the model has gathered, and DeepSpeed 0.19.8 fails there (\"Cannot free "
            "a ZeRO-3 parameter while it is still active in submodules\"): zero2, an FSDP, "
            "or another --loss");
    if (s->zero.quantized_weights)
        TRY(check_quantized(s, graph, err));
    if (s->zero.reduce_scatter)
        TRY(check_pads(s, graph, err));
    TRY(zero3_check_qgz(s, err));
    TRY(zero3_check_leaves(s, graph, stream, err));
    return zero_check_used(graph, stream, err);
}

/* mark_persistent_parameters. */
static void mark_persistent(struct lowering *low)
{
    struct zero3 *z = low->state;
    const struct zero_options *o = z->options;
    uint64_t all = 0;
    for (uint32_t p = z->first; p < z->end; p++) {
        const uint64_t n = zero3_elements(low, p);
        z->params[p] = (struct zero3_param){.fetched = -1,
                                            .buffer = NONE,
                                            .home = NONE,
                                            .owner = NONE,
                                            .secondary = NONE,
                                            .group = NONE,
                                            .frozen = NONE};
        z->params[p].part = placement_chunk(n, z->ranks);
        if (n > o->param_persistence_threshold || n + all > o->model_persistence_threshold)
            continue;
        z->params[p].persistent = true;
        z->persistent_count++;
        all += n;
    }
}

/* What a module reads of others' is its own, too, as it is not there when that is called first
 * (ZeROOrderedDict). */
static void list_external(struct lowering *low)
{
    struct zero3 *z = low->state;
    uint32_t all = 0;
    for (uint32_t c = 0; c < z->calls->count; c++)
        all += z->calls->at[c].params;
    z->in_use = arena_alloc(&low->scratch, all + 1);
    z->leaving = arena_alloc(&low->scratch, (all + 1) * sizeof *z->leaving);
    memcpy(z->leaving, z->calls->params, all * sizeof *z->leaving);
    for (uint32_t c = 0; c < z->calls->count; c++) {
        struct graph_call *call = &z->calls->at[c];
        uint32_t *params = &z->calls->params[call->first_param];
        if (call->external == 0)
            continue;
        call->external = 0;
        qsort(params, call->params, sizeof *params, zero3_by_index);
    }
}

/* _create_fp16_sub_groups: the parameter that fills one stays in it. What is frozen is in none. */
static void divide(struct lowering *low)
{
    struct zero3 *z = low->state;
    const uint64_t most = low->strategy->zero.sub_group_size;
    uint64_t done = 0;
    z->trained = none_array(low, low->plan->param_count);
    z->groups = arena_alloc(&low->scratch, (low->plan->param_count + 1) * sizeof *z->groups);
    for (uint32_t p = 0; p < low->plan->param_count; p++) {
        struct zero3_group *group = &z->groups[z->group_count];
        if (!low->plan->params[p].trainable)
            continue;
        if (group->count == 0)
            *group = (struct zero3_group){.first = z->trained_count, .at = done};
        z->params[p].group = z->group_count;
        z->params[p].at = group->elements;
        z->trained[z->trained_count++] = p;
        group->count++;
        group->elements += z->params[p].part;
        done += z->params[p].part;
        if (group->elements >= most)
            z->group_count++;
    }
    z->group_count += z->groups[z->group_count].count > 0;
}

/* Units of the plan: the groups of the update, and what is not trained. */
static void declare_units(struct lowering *low)
{
    const struct zero3 *z = zero3_of(low);
    struct plan *plan = low->plan;
    const uint32_t frozen = plan->param_count - z->trained_count;
    plan->unit_count = z->group_count + (frozen > 0);
    plan->units = arena_alloc(&plan->arena, (z->group_count + 1) * sizeof *plan->units);
    plan->unit_params = arena_alloc(&plan->arena, (plan->param_count + 1) * sizeof(uint32_t));
    memcpy(plan->unit_params, z->trained, z->trained_count * sizeof *z->trained);
    for (uint32_t g = 0; g < z->group_count; g++) {
        plan->units[g] = (struct plan_unit){arena_printf(&plan->arena, "group %u", g),
                                            z->groups[g].first, z->groups[g].count};
        for (uint32_t i = 0; i < z->groups[g].count; i++)
            plan->params[z->trained[z->groups[g].first + i]].unit = g;
    }
    plan->units[z->group_count] = (struct plan_unit){frozen_unit(plan), z->trained_count, frozen};
    uint32_t next = z->trained_count;
    for (uint32_t p = 0; p < plan->param_count; p++)
        if (!plan->params[p].trainable) {
            plan->params[p].unit = z->group_count;
            plan->unit_params[next++] = p;
        }
}

static void declare_group(struct lowering *low, struct zero3_group *group, struct optimized *o)
{
    const struct zero3 *z = zero3_of(low);
    static const enum piece_role roles[] = {PIECE_EXP_AVG, PIECE_EXP_AVG_SQ};
    const bool on_host = zero3_is_on_host(low, (uint32_t)(group - z->groups));
    group->shard = zero3_new_shard(low, low->strategy->compute, group->elements);
    group->master =
        new_resident(low, CATEGORY_SHARDED_PARAM, on_host ? LANE_HOST : LANE_COMPUTE, /* pageable */
                     ATEN_TO_COPY, DTYPE_FP32, flat(group->elements));
    *o = (struct optimized){
        .param = NONE,
        .value = plan_whole_buffer(low->plan, group->master),
        .gradient = no_operand(),
        .trained = true,
        .on_host = on_host,
    };
    add_states(low, o);
    for (uint32_t i = 0; i < group->count; i++) {
        const uint32_t p = z->trained[group->first + i];
        const uint64_t at = z->params[p].at;
        new_piece(low, p, PIECE_STORE, group->shard, at, zero3_placement(low, p), z->shard_group);
        new_piece(low, p, PIECE_MASTER, group->master, at, zero3_placement(low, p), z->shard_group);
        low->plan->params[p].step_buffer = o->step;
        for (uint32_t s = 0; s < 2; s++)
            if (state_piece(low, o, s) != NONE)
                new_piece(low, p, roles[s], o->state[s], at, zero3_placement(low, p),
                          z->shard_group);
    }
}

/* The piece of each parameter that is in no group is a tensor of its own. */
static void declare_frozen(struct lowering *low)
{
    struct zero3 *z = low->state;
    for (uint32_t p = 0; p < low->plan->param_count; p++) {
        struct zero3_param *param = &z->params[p];
        if (param->group != NONE)
            continue;
        param->frozen = zero3_new_shard(low, zero_dtype(low, p), param->part);
        new_piece(low, p, PIECE_STORE, param->frozen, 0, zero3_placement(low, p), z->shard_group);
    }
}

/* hpZ: what is not trained is never stale, so its secondary pieces stay
 * (invalidate_secondary_tensor passes it over). DeepSpeed makes them at the first releases; here
 * they are there before. */
static void declare_secondary(struct lowering *low)
{
    const struct zero3 *z = zero3_of(low);
    const uint8_t group = z->secondary_group;
    if (group == PLAN_NO_GROUP)
        return;
    for (uint32_t p = 0; p < low->plan->param_count; p++) {
        struct zero3_param *param = &z->params[p];
        if (param->group != NONE)
            continue;
        const uint64_t all = param->part * z->ranks;
        param->secondary =
            zero3_keep_secondary(low, zero_dtype(low, p), all / plan_group_ranks(low->plan, group));
        new_piece(low, p, PIECE_SECONDARY, param->secondary, 0,
                  (struct placement){PLACEMENT_FLAT, 0, all}, group);
    }
}

static void declare_persistent(struct lowering *low)
{
    struct zero3 *z = low->state;
    for (uint32_t p = 0; p < low->plan->param_count; p++) {
        struct zero3_param *param = &z->params[p];
        if (param->persistent && zero3_brings(low)) {
            param->home = new_resident(low, CATEGORY_UNSHARDED_PARAM, LANE_COMPUTE,
                                       zero3_gathers_persistent(z) ? ATEN_EMPTY : ATEN_TO_COPY,
                                       zero_dtype(low, p), flat(param->part * z->ranks));
            new_piece(low, p, PIECE_GATHERED, param->home, 0,
                      (struct placement){.kind = PLACEMENT_WHOLE}, PLAN_NO_GROUP);
            param->buffer = param->home;
            param->status = ZERO3_AVAILABLE;
            low->gathered[p] = plan_whole_buffer(low->plan, param->home);
        }
    }
}

static void declare_small_things(struct lowering *low)
{
    const bool on_host = low->strategy->zero.optimizer.on;
    const uint8_t pool = on_host ? LANE_HOST : LANE_COMPUTE;
    new_resident(low, CATEGORY_PERSISTENT, pool, ATEN_ZEROS, DTYPE_BOOL, SHAPE(1));
    new_resident(low, CATEGORY_PERSISTENT, pool, ATEN_DIV, on_host ? DTYPE_FP32 : DTYPE_FP64,
                 (struct shape){.rank = 0}); /* the last step's norm */
}

static void set_up_beside(struct lowering *low)
{
    struct zero3 *z = low->state, *beside = arena_alloc(&low->scratch, sizeof *beside);
    struct zero_options *options = arena_alloc(&low->scratch, sizeof *options);
    *options = zero_options_beside(&low->strategy->zero);
    *beside = *z;
    beside->options = options;
    beside->root = z->calls->beside;
    beside->first = z->end;
    beside->end = low->plan->param_count;
    beside->persistent_count = 0;
    if (z->gather_lane != LANE_COMPUTE)
        beside->gather_lane = plan_add_lane(low->plan, "reference_all_gather", false);
    low->state = z->beside = beside;
    mark_persistent(low);
    low->state = z;
}

static void set_up(struct lowering *low)
{
    struct zero3 *z = low->state;
    const struct strategy *s = low->strategy;
    struct plan *plan = low->plan;
    const bool overlap = s->zero.overlap_comm;
    z->ranks = s->world;
    z->shard_group =
        s->world > 1 ? plan_add_group(plan, "shard", GROUP_SHARD, s->world, 1) : PLAN_NO_GROUP;
    z->secondary_group =
        s->zero.hpz_partition_size > 1
            ? plan_add_group(plan, "hpz", GROUP_RESHARD, (uint32_t)s->zero.hpz_partition_size, 1)
            : PLAN_NO_GROUP;
    zero3_set_up_qgz(low);
    z->options = &s->zero;
    z->end = graph_own_params(low->graph);
    z->gather_lane = overlap ? plan_add_lane(plan, "all_gather", false) : LANE_COMPUTE;
    z->reduce_lane = overlap ? plan_add_lane(plan, "reduce_scatter", false) : LANE_COMPUTE;
    z->nccl_lane = s->world > 1 ? plan_add_lane(plan, "nccl", false) : LANE_COMPUTE;
    z->calls = graph_calls_new(low->graph);
    z->again = arena_alloc(&low->scratch, (z->calls->count + 1) * sizeof *z->again);
    z->times = arena_alloc(&low->scratch, (z->calls->count + 1) * sizeof *z->times);
    z->params = arena_alloc(&low->scratch, (plan->param_count + 1) * sizeof *z->params);
    z->in = none_array(low, plan->param_count);
    z->normed = none_array(low, plan->param_count);
    z->copied = arena_alloc(&low->scratch, plan->param_count + 1);
    z->waits = arena_alloc(&low->scratch, plan->param_count + 1);
    low->gathered = arena_alloc(&low->scratch, (plan->param_count + 1) * sizeof *low->gathered);
    mark_persistent(low);
    list_external(low);
    if (z->end < plan->param_count)
        set_up_beside(low);
    divide(low);
    declare_units(low);
    low->optimized = arena_alloc(&low->scratch, (z->group_count + 1) * sizeof *low->optimized);
    low->optimized_count = z->group_count;
    uint64_t all = 0;
    for (uint32_t g = 0; g < z->group_count; g++) {
        declare_group(low, &z->groups[g], &low->optimized[g]);
        all += z->groups[g].elements;
    }
    declare_frozen(low);
    declare_secondary(low);
    declare_persistent(low);
    z->gradients = zero3_new_gradients(low, s->grad_accum_fp32 ? DTYPE_FP32 : s->compute, all);
    z->bucket = s->zero.contiguous_gradients
                    ? new_resident(low, CATEGORY_BUCKET, LANE_COMPUTE, ATEN_EMPTY, s->compute,
                                   flat(s->zero.reduce_bucket_size))
                    : NONE;
    declare_small_things(low);
    zero3_trace(low);
    if (!z->beside)
        return;
    z->beside->whole = z->whole;
    z->beside->home_call = z->home_call;
    low->state = z->beside;
    zero3_trace(low);
    low->state = z;
}

/* ---- gradients ---- */

/* Those of a leaf module wait for all of that (reduce_leaf_module_grads). */
static void gradient(struct lowering *low, uint32_t p)
{
    struct zero3 *z = low->state;
    z->waits[p] = z->calls->at[z->home_call[p]].leaf;
    if (!z->waits[p])
        zero3_reduce(low, p);
}

/* ---- hooks ---- */

/* Another model has a coordinator of its own, and no backward. */
static void called_beside(struct lowering *low, enum step_kind kind, uint32_t call)
{
    struct zero3 *z = low->state;
    low->state = z->beside;
    if (zero3_calls_root(z->beside, kind, call))
        zero3_reset(low);
    if (kind == STEP_CALL_FORWARD)
        zero3_fetch(low, call, true);
    else
        zero3_release(low, call, true);
    low->state = z;
}

/* A module is called. Each call sets the count anew of what its hook behind backward waits for, so
 * that one alone brings it to 0: of a module that another calls twice, the last call's. (A block's
 * wrapper is another module.) */
static void count_call(struct zero3 *z, uint32_t call)
{
    const uint32_t around = z->calls->at[call].parent;
    struct zero3_times *times = &z->times[call];
    const uint32_t inside = around == GRAPH_NONE ? 0 : z->times[around].all;
    times->second = inside > 0 && times->inside == inside && !z->calls->at[call].bordered;
    times->inside = inside;
    times->ended = false;
    times->all++;
}

/* Whether a module's return from backward is one that its hook does not see. */
static bool is_unseen(struct zero3 *z, uint32_t call)
{
    struct zero3_times *times = &z->times[call];
    const bool unseen = times->second && times->ended;
    times->ended = true;
    return unseen;
}

static void called(struct lowering *low, enum step_kind kind, uint32_t call)
{
    struct zero3 *z = low->state;
    if (zero3_is_beside(z, call)) {
        called_beside(low, kind, call);
        return;
    }
    if (zero3_calls_root(z, kind, call)) {
        zero3_reset(low);
        memset(z->again, 0, z->calls->count * sizeof *z->again);
    }
    if (kind == STEP_CALL_FORWARD)
        z->again[call] = low->no_grad;
    if (kind == STEP_CALL_FORWARD)
        count_call(z, call);
    if (kind == STEP_RETURN_BACKWARD && (z->again[call] || is_unseen(z, call)))
        return;
    switch (kind) {
    case STEP_CALL_FORWARD:
    case STEP_CALL_BACKWARD:
        zero3_fetch(low, call, kind == STEP_CALL_FORWARD);
        break;
    default:
        if (kind == STEP_RETURN_BACKWARD)
            zero3_reduce_leaf(low, call);
        zero3_release(low, call, kind == STEP_RETURN_FORWARD);
        break;
    }
}

static void final(struct lowering *low)
{
    const struct zero3 *z = zero3_of(low);
    const uint32_t before = enter_scope(low, "ds_epilogue", PLAN_NO_UNIT, false);
    zero3_flush(low);
    emit_sync(low, LANE_HOST, z->reduce_lane);
    leave_scope(low, before);
    zero3_release_leftovers(low);
}

static void tear_down(struct lowering *low)
{
    graph_calls_free(zero3_of(low)->calls);
}

const struct system system_zero3 = {
    .name = "zero3",
    .state_bytes = sizeof(struct zero3),
    .scaled_loss = true,
    .zero_stage = 3,
    .casts_params = true, /* keep_in_fp32.py */
    .own_programs = true,
    .call_hooks = true,
    .own_linear = true,
    .prepare = zero3_prepare,
    .check = check,
    .set_up = set_up,
    .called = called,
    .saved = zero3_save,
    .unsaved = zero3_unsave,
    .gradient = gradient,
    .final = final,
    .update = zero3_update,
    .tear_down = tear_down,
};
