/* fsdp1_units.c - flat parameters, and what is there before the first step (see fsdp1.c).
 *
 *     use_orig_params off   | w1 | w2 | w3        |            P elements, as they are
 *     on                    | w1 |pad| w2 | w3 |pad|          each from a multiple of 16 bytes on
 * (in the compute dtype), P a multiple of N shards                | S = ceil(P / N) | S | S | S ...
 * the last ones may be padding alone
 *
 * Without sharding the flat parameter itself is stored. */
#include "lower/fsdp1.h"
#include "lower/states.h"

#include "graph/borders.h"
#include "graph/ops.h"

#include <string.h>

struct handle *fsdp1_handle_at(const struct lowering *low, uint32_t module)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const uint32_t unit = hooked_unit(&f->wrapping, module, true);
    return unit == NONE || f->handles[unit].part_count == 0 ? NULL : &f->handles[unit];
}

/* ---- whether it can be ---- */

static bool is_hybrid(const struct strategy *s)
{
    return s->sharding == SHARDING_HYBRID || s->sharding == SHARDING_HYBRID_ZERO2;
}

static const char *unit_path(const struct graph *graph, const struct wrapping *w, uint32_t unit)
{
    return unit == 0 ? "the root" : graph->modules[w->first_module[unit]].name;
}

static enum err_code check_mesh(const struct strategy *s, struct err *err)
{
    if (s->world % s->replicate != 0)
        return err_set(err, ERR_INVALID, "--replicate %u does not divide --gpus %u", s->replicate,
                       s->world);
    if (s->replicate > 1 && !is_hybrid(s))
        return err_set(err, ERR_INVALID,
                       "--replicate %u: only HYBRID_SHARD and _HYBRID_SHARD_ZERO2 of --sharding "
                       "have replicas",
                       s->replicate);
    if (is_hybrid(s) && (s->replicate == 1 || s->replicate == s->world))
        return err_set(err, ERR_INVALID,
                       "--sharding: the hybrid ones need --replicate from 2 to half of --gpus");
    return ERR_OK;
}

/* A unit with frozen and with trained parameters; NONE: there is none. */
static uint32_t mixed_unit(const struct graph *graph, const struct wrapping *w, struct arena *arena)
{
    bool(*has)[2] = arena_alloc(arena, w->units * sizeof *has); /* frozen ones, trained ones */
    for (uint32_t p = 0; p < graph->param_count; p++) {
        if (is_ignored(w, p))
            continue;
        bool *of_unit = has[unit_of_param(graph, w, p)];
        of_unit[graph->params[p].trainable] = true;
        if (of_unit[0] && of_unit[1])
            return unit_of_param(graph, w, p);
    }
    return NONE;
}

/* A parameter of a unit that an operator outside of it uses; NONE: there is none. */
static uint32_t strayed_param(const struct graph *graph, const struct wrapping *w)
{
    uint32_t inside = 0, around[MODULES_DEEP], depth = 0; /* units, the innermost last */
    for (uint32_t i = 0; i < graph->item_count; i++) {
        const struct graph_item item = graph->items[i];
        if (item.kind == ITEM_ENTER && w->of_module[item.arg] != NONE && depth < MODULES_DEEP) {
            around[depth++] = inside;
            inside = w->of_module[item.arg];
        } else if (item.kind == ITEM_EXIT && w->of_module[item.arg] != NONE && depth > 0) {
            inside = around[--depth];
        }
        const struct graph_op *op = item.kind == ITEM_OP ? &graph->ops[item.arg] : NULL;
        if (op && op->no_grad) /* a second call of the same modules */
            continue;
        for (uint32_t in = 0; op && in < op->ins; in++) {
            if (op->in[in] == GRAPH_NONE)
                continue;
            const struct graph_storage *s = &graph->storages[graph->tensors[op->in[in]].storage];
            if (s->kind != STORAGE_PARAM || is_ignored(w, s->index))
                continue;
            const uint32_t unit = unit_of_param(graph, w, s->index);
            if (unit != 0 && unit != inside)
                return s->index;
        }
    }
    return NONE;
}

/* A unit that no gradient reaches, and that forward leaves unsharded; NONE: there is none. */
static uint32_t unreached_unit(const struct graph *graph, const struct wrapping *w)
{
    for (uint32_t u = 1; u < w->units; u++) {
        const uint32_t output = graph->modules[w->first_module[u]].output;
        if (output != GRAPH_NONE && !graph->tensors[output].requires_grad)
            return u;
    }
    return NONE;
}

/* A shared table in a unit that is frozen as a whole and is not cast, where nothing is sharded;
 * NONE: there is none. */
static uint32_t stuck_table(const struct strategy *s, const struct graph *graph,
                            const struct wrapping *w, struct arena *arena)
{
    const bool sharded = s->sharding != SHARDING_NONE && s->world / s->replicate > 1;
    if (sharded || !s->use_orig_params || (!s->frozen_low && s->store != s->compute))
        return NONE;
    const uint32_t table = units_shared_table(graph, arena);
    for (uint32_t p = 0; p < graph->param_count && table != NONE; p++)
        if (graph->params[p].trainable && !is_ignored(w, p) &&
            unit_of_param(graph, w, p) == unit_of_param(graph, w, table))
            return NONE;
    return table;
}

static enum err_code check_units(const struct strategy *s, const struct graph *graph,
                                 const struct wrapping *w, const char *borderless,
                                 struct arena *arena, struct err *err)
{
    if (borderless)
        return err_set(err, ERR_UNSUPPORTED,
                       "--units would wrap %s, of which it is not known where it begins and ends; "
                       "%s",
                       borderless, units_instead(graph, borderless, "--units blocks wraps none"));
    if (s->units == UNITS_TRAINED && graph->lora.rank == 0)
        return err_set(err, ERR_INVALID,
                       "--units peft: that auto_wrap_policy is of models with adapters: --lora");
    const uint32_t strayed = strayed_param(graph, w);
    if (strayed != NONE)
        return err_set(err, ERR_INVALID,
                       "--units: %s is shared with a module outside of its unit, which fsdp1 would "
                       "not keep: each unit flattens what it finds, and they train apart or fail",
                       graph->params[strayed].name);
    const bool keeps_low =
        s->keep_low_precision_grads && s->use_orig_params && s->compute != s->store;
    const uint32_t shared = keeps_low ? units_shared_table(graph, arena) : NONE;
    if (shared != NONE)
        return err_set(err, ERR_INVALID,
                       "--keep-low-precision-grads on with --use-orig-params on: %s is shared, and "
                       "torch refuses a .grad of another dtype than its parameter's where it hands "
                       "it to who shares it",
                       graph->params[shared].name);
    const uint32_t stuck = stuck_table(s, graph, w, arena);
    if (stuck != NONE)
        return err_set(
            err, ERR_INVALID,
            "--use-orig-params on without shards: %s is shared in a unit that is frozen and "
            "not cast, of which torch fails to make parameters again (_use_unsharded_views: "
            "as_params=True); --use-orig-params off",
            graph->params[stuck].name);
    const uint32_t mixed = mixed_unit(graph, w, arena);
    if (mixed != NONE && s->frozen_low && s->store != s->compute)
        return err_set(
            err, ERR_INVALID,
            "--frozen-dtype param: %s has parameters of two dtypes, and torch flattens "
            "those of one alone (\"Must flatten tensors with uniform dtype\"); --units "
            "peft gives what is trained units of its own, as peft's auto_wrap_policy does",
            unit_path(graph, w, mixed));
    if (mixed != NONE && !s->use_orig_params)
        return err_set(err, ERR_INVALID,
                       "%s has frozen and trained parameters, which takes "
                       "--use-orig-params on",
                       unit_path(graph, w, mixed));
    const bool keeps = s->sharding == SHARDING_GRAD_OP || s->sharding == SHARDING_HYBRID_ZERO2;
    const uint32_t unreached = keeps && !s->use_orig_params ? unreached_unit(graph, w) : NONE;
    if (unreached != NONE)
        return err_set(err, ERR_UNSUPPORTED,
                       "no gradient reaches %s, which would stay unsharded for good: not "
                       "planned",
                       unit_path(graph, w, unreached));
    return ERR_OK;
}

static bool is_within(const struct graph *graph, uint32_t module, uint32_t outer)
{
    const char *name = graph->modules[outer].name;
    const size_t length = strlen(name);
    const char *other = graph->modules[module].name;
    return strncmp(other, name, length) == 0 && other[length] == '.';
}

/* A backward of a module's own gives all that it leads to its gradients, the flat parameter whose
 * views the module has in any case: so that is the module's, and all of it. */
static enum err_code check_nested(const struct strategy *s, const struct graph *graph,
                                  const struct wrapping *w, const struct stream *stream,
                                  struct err *err)
{
    for (uint32_t i = 0; i < stream->step_count; i++) {
        const struct stream_step step = stream->steps[i];
        if (step.kind != STEP_NESTED)
            continue;
        const char *name = graph->modules[step.arg].name;
        const uint32_t unit = hooked_unit(w, step.arg, true);
        if (unit == NONE || w->first_module[unit] != w->last_module[unit])
            return err_set(err, ERR_INVALID,
                           "--checkpoint-reentrant on: %s is in a unit with others, whose flat "
                           "parameter would get a gradient of each block's own backward, the "
                           "first of which frees what others are computed with: fsdp1 fails in "
                           "most; --units blocks",
                           name);
        for (uint32_t u = 1; u < w->units && s->forward_prefetch; u++)
            if (is_within(graph, w->first_module[u], step.arg))
                return err_set(err, ERR_UNSUPPORTED,
                               "--checkpoint-reentrant on with --forward-prefetch: %s, a unit in a "
                               "checkpointed block, would unshard the next without grad mode, "
                               "which is not planned; --forward-prefetch 0",
                               graph->modules[w->first_module[u]].name);
    }
    return ERR_OK;
}

/* CPUOffload(offload_params=True). */
static enum err_code check_offload(const struct strategy *s, struct err *err)
{
    if (s->accumulate > 1 && s->accumulate_sync)
        return err_set(err, ERR_INVALID,
                       "--offload cpu: fsdp1 cannot add to gradients that are on the host; "
                       "--accumulate-sync last, or --accumulate 1");
    if (s->keep_low_precision_grads)
        return err_set(err, ERR_INVALID,
                       "--offload cpu with --keep-low-precision-grads on: torch refuses a .grad of "
                       "another dtype than its parameter's");
    const bool sharded = s->sharding != SHARDING_NONE && s->world / s->replicate > 1;
    return sharded || s->compute != s->store
               ? ERR_OK
               : err_set(err, ERR_UNSUPPORTED,
                         "--offload cpu: what fsdp1 does without shards, with --param-dtype of the "
                         "stored one, is not planned");
}

enum err_code fsdp1_check(const struct strategy *s, const struct graph *graph,
                          const struct stream *stream, struct err *err)
{
    struct arena arena = {0};
    struct wrapping w;
    const char *borderless;
    TRY(check_mesh(s, err));
    TRY(check_scalars(s, graph, err));
    TRY(check_called(s, graph, stream, err));
    TRY(check_ignored(s, graph, err));
    if (s->offload)
        TRY(check_offload(s, err));
    choose_units(graph, s, &arena, &w, &borderless);
    enum err_code rc = check_units(s, graph, &w, borderless, &arena, err);
    if (rc == ERR_OK)
        rc = check_nested(s, graph, &w, stream, err);
    arena_free(&arena);
    return rc;
}

/* ---- what needs a gradient ---- */

/* Views of a flat parameter that needs a gradient all need one, frozen or not. */
void fsdp1_prepare(const struct strategy *s, struct graph *graph)
{
    struct arena arena = {0};
    struct wrapping w;
    choose_units_inside(graph, s, &arena, &w);
    bool *unit = arena_alloc(&arena, w.units), *needs = arena_alloc(&arena, graph->param_count + 1);
    for (uint32_t p = 0; p < graph->param_count; p++)
        if (!is_ignored(&w, p))
            unit[unit_of_param(graph, &w, p)] |= graph->params[p].trainable;
    for (uint32_t p = 0; p < graph->param_count; p++)
        needs[p] =
            is_ignored(&w, p) ? graph->params[p].trainable : unit[unit_of_param(graph, &w, p)];
    graph_need_gradients(graph, needs);
    arena_free(&arena);
}

/* ---- lanes and groups ---- */

/* DefaultState._get_gradient_predivide_factor. */
static uint32_t divided_before(uint32_t world)
{
    uint32_t factor = 1;
    while (world % factor == 0 && world / factor > factor)
        factor *= 2;
    return factor;
}

static struct root new_root(struct lowering *low, const char *unshard, const char *pre_unshard,
                            bool urgent)
{
    return (struct root){
        .unshard = plan_add_lane(low->plan, unshard, urgent),
        .pre_unshard = plan_add_lane(low->plan, pre_unshard, urgent),
    };
}

/* Room for a root's handles. */
static void make_orders(struct lowering *low, struct root *root)
{
    const uint32_t handles = fsdp1_of(low)->handle_count;
    root->forward_order = none_array(low, handles);
    root->free_room = 4 * handles + 16;
    root->free_events = none_array(low, root->free_room);
}

static void declare_mesh(struct lowering *low)
{
    struct fsdp1 *f = low->state;
    const struct strategy *s = low->strategy;
    struct plan *plan = low->plan;
    const bool urgent = is_hybrid(s) && !s->unlimited_gathers;
    f->ranks = s->world / s->replicate;
    f->sharded = s->sharding != SHARDING_NONE && f->ranks > 1;
    f->reshards = f->sharded && (s->sharding == SHARDING_FULL || s->sharding == SHARDING_HYBRID);
    f->group = f->replicate_group = PLAN_NO_GROUP;
    if (f->sharded)
        f->group = low->norm_group = plan_add_group(plan, "shard", GROUP_SHARD, f->ranks, 1);
    else if (f->ranks > 1)
        f->group = plan_add_group(plan, "data", GROUP_DATA, f->ranks, 1);
    if (s->replicate > 1)
        f->replicate_group =
            plan_add_group(plan, "replicate", GROUP_REPLICATE, s->replicate, f->ranks);
    f->root = new_root(low, "unshard", "pre_unshard", urgent);
    f->post_backward = plan_add_lane(plan, "post_backward", urgent);
    if (low->graph->beside.module != GRAPH_NONE)
        f->beside = new_root(low, "reference_unshard", "reference_pre_unshard", urgent);
    f->all_reduce = is_hybrid(s) ? plan_add_lane(plan, "all_reduce", false) : LANE_COMPUTE;
    f->before = (float)divided_before(s->world);
    f->after = (float)s->world / f->before;
}

/* ---- flat parameters ---- */

static void add_part(struct handle *handle, uint32_t param, uint64_t elements)
{
    handle->parts[handle->part_count++] = (struct flat_part){param, elements};
    handle->elements += elements;
}

/* Padding up to a multiple. */
static void align(struct handle *handle, uint32_t to)
{
    if (handle->elements % to != 0)
        add_part(handle, NONE, to - handle->elements % to);
}

static void lay_out(struct lowering *low, struct handle *handle)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const struct plan *plan = low->plan;
    const struct plan_unit *unit = &plan->units[handle->unit];
    const bool aligned = low->strategy->use_orig_params;
    handle->parts = arena_alloc(&low->scratch, (2 * unit->params + 1) * sizeof *handle->parts);
    for (uint32_t i = 0; i < unit->params; i++) {
        const uint32_t p = plan->unit_params[unit->first_param + i];
        if (aligned)
            align(handle, 16 / dtype_bytes(low->strategy->compute));
        add_part(handle, p, shape_elements(&plan->params[p].shape));
        handle->trained |= plan->params[p].trainable;
        handle->stored = stored_dtype(low, p);
    }
    if (aligned)
        align(handle, f->ranks);
    handle->shard = f->sharded ? placement_chunk(handle->elements, f->ranks) : handle->elements;
}

/* Which tensor is the gradient in the end follows from the dtypes alone. */
static enum kept choose_kept(const struct lowering *low)
{
    const struct strategy *s = low->strategy;
    const bool low_precision = s->keep_low_precision_grads;
    if (s->offload)
        return KEPT_HOST;
    if (fsdp1_of(low)->sharded) {
        if (low_precision && s->compute != s->store)
            return KEPT_LOW;
        return s->reduce == s->store ? KEPT_REDUCED : KEPT_CAST;
    }
    if (s->reduce != s->store && !low_precision)
        return KEPT_CAST;
    return s->reduce == s->compute ? KEPT_CAT : KEPT_REDUCED;
}

/* init_flat_param_attributes (_flat_param.py) pins the shard and its gradient. */
static uint32_t pinned(struct lowering *low, uint32_t buffer)
{
    low->plan->buffers[buffer].pinned = true;
    return buffer;
}

static uint32_t declare_kept(struct lowering *low, const struct handle *handle)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const struct strategy *s = low->strategy;
    const bool hook = f->kept == KEPT_REDUCED || f->kept == KEPT_CAST;
    if (f->kept == KEPT_HOST)
        return pinned(low, new_resident(low, CATEGORY_GRADIENT, LANE_HOST, ATEN_ZEROS_LIKE,
                                        handle->stored, flat(handle->shard)));
    const enum dtype dtype = f->kept == KEPT_CAST      ? s->store
                             : f->kept == KEPT_REDUCED ? s->reduce
                                                       : s->compute;
    const enum aten label = f->kept == KEPT_CAT                     ? ATEN_CAT
                            : f->kept == KEPT_REDUCED && f->sharded ? ATEN_EMPTY_LIKE
                                                                    : ATEN_TO_COPY;
    uint8_t lane = LANE_COMPUTE;
    if (hook)
        lane = f->kept == KEPT_CAST && f->replicate_group != PLAN_NO_GROUP ? f->all_reduce
                                                                           : f->post_backward;
    const uint32_t buffer = new_buffer(low, hook ? CATEGORY_REDUCE_SCATTER : CATEGORY_BACKWARD,
                                       lane, label, dtype, flat(handle->shard));
    low->plan->buffers[buffer].carried = s->use_orig_params;
    return buffer;
}

/* Of another model, which no backward comes to: what needs none stays gathered; and on the host the
 * gradient that an unshard makes of what is exposed (fsdp1_restore_host) stays, too. */
static void keep_beside(struct lowering *low, const struct handle *handle)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const struct strategy *s = low->strategy;
    low->plan->buffers[handle->gathered].resident = !f->reshards || handle->unit == f->own_count;
    const uint64_t at = plan_group_rank(low->plan, f->group, s->rank) * handle->shard;
    if (s->offload && s->use_orig_params && f->reshards && at < handle->elements)
        new_resident(low, CATEGORY_GRADIENT, LANE_HOST, ATEN_ZEROS_LIKE, handle->stored,
                     flat(handle->shard));
}

static void declare_buffers(struct lowering *low, struct handle *handle)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const struct strategy *s = low->strategy;
    handle->store = new_resident(low, CATEGORY_SHARDED_PARAM, s->offload ? LANE_HOST : LANE_COMPUTE,
                                 ATEN_EMPTY, handle->stored, flat(handle->shard));
    if (s->offload)
        pinned(low, handle->store);
    if (s->compute != handle->stored)
        handle->cast = new_buffer(low, CATEGORY_CAST_SHARD, handle->root->pre_unshard,
                                  ATEN_EMPTY_LIKE, s->compute, flat(handle->shard));
    if (f->sharded)
        handle->gathered = new_buffer(low, CATEGORY_UNSHARDED_PARAM, handle->root->unshard,
                                      ATEN_EMPTY, s->compute, flat(handle->shard * f->ranks));
    if (f->sharded && fsdp1_is_beside(low, handle))
        keep_beside(low, handle);
    if (handle->trained || s->offload) /* the host has one for what is frozen, too */
        handle->kept = declare_kept(low, handle);
}

/* Of a vector that is the flat parameter, or a shard of it. */
static void declare_piece(struct lowering *low, const struct handle *handle, uint32_t param,
                          enum piece_role role, uint32_t buffer, uint64_t at)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const bool whole = !f->sharded || role == PIECE_GATHERED;
    const struct placement placement = {.kind = whole ? PLACEMENT_WHOLE : PLACEMENT_FLAT,
                                        .at = whole ? 0 : at,
                                        .total = whole ? 0 : handle->elements};
    new_piece(low, param, role, buffer, whole ? at : 0, placement, f->group);
}

static void declare_pieces(struct lowering *low, const struct handle *handle, enum piece_role role,
                           uint32_t buffer)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < handle->part_count; at += handle->parts[i++].elements)
        if (handle->parts[i].param != NONE && buffer != NONE)
            declare_piece(low, handle, handle->parts[i].param, role, buffer, at);
}

static void optimize_flat(struct lowering *low, const struct handle *handle)
{
    if (handle->part_count == 0)
        return;
    struct optimized *o = &low->optimized[low->optimized_count++];
    *o = (struct optimized){
        .param = NONE,
        .value = plan_whole_buffer(low->plan, handle->store),
        .gradient = no_operand(),
        .trained = handle->trained,
        .on_host = low->strategy->offload,
    };
    add_states(low, o);
    declare_pieces(low, handle, PIECE_EXP_AVG, state_piece(low, o, 0));
    declare_pieces(low, handle, PIECE_EXP_AVG_SQ, state_piece(low, o, 1));
    for (uint32_t i = 0; i < handle->part_count; i++)
        if (handle->parts[i].param != NONE)
            low->plan->params[handle->parts[i].param].step_buffer = o->step;
}

/* The optimizer's: flat parameters, each where its unit's first module is, and between them what is
 * in no unit; or the original ones. */
static void declare_optimized(struct lowering *low)
{
    const struct fsdp1 *f = fsdp1_of(low);
    const uint32_t most = f->own_count + low->plan->param_count;
    if (low->strategy->use_orig_params) {
        optimize_params(low, NULL, plan_own_params(low->plan));
        return;
    }
    bool *listed = arena_alloc(&low->scratch, f->own_count);
    low->optimized = arena_alloc(&low->scratch, most * sizeof *low->optimized);
    for (uint32_t p = 0; p < plan_own_params(low->plan) && f->wrapping.ignored; p++) {
        const uint32_t units[] = {0, unit_of_param(low->graph, &f->wrapping, p)};
        for (int i = 0; i < 2; i++)
            if (!listed[units[i]]) {
                listed[units[i]] = true;
                optimize_flat(low, &f->handles[units[i]]);
            }
        if (is_ignored(&f->wrapping, p))
            optimize_param(low, &low->optimized[low->optimized_count++], p);
    }
    for (uint32_t u = 0; u < f->own_count; u++)
        if (!listed[u])
            optimize_flat(low, &f->handles[u]);
}

/* The order of the first forward, by which later ones prefetch. */
static void find_forward_order(struct lowering *low)
{
    for (uint32_t i = 0; i < low->hook_count; i++) {
        const struct stream_step step = low->hooks[i];
        struct handle *handle =
            step.kind == STEP_PRE_FORWARD ? fsdp1_handle_at(low, step.arg) : NULL;
        if (!handle || handle->forward_index != NONE)
            continue;
        handle->forward_index = handle->root->forward_count;
        handle->root->forward_order[handle->root->forward_count++] = handle->unit;
    }
}

static void find_again(struct lowering *low)
{
    struct fsdp1 *f = low->state;
    const struct graph *graph = low->graph;
    f->again = arena_alloc(&low->scratch, (graph->module_count + 1) * sizeof *f->again);
    for (uint32_t i = 0; i < low->hook_count; i++)
        for (uint32_t m = 0; low->hooks[i].kind == STEP_NESTED && m < graph->module_count; m++)
            f->again[m] |= is_within(graph, m, low->hooks[i].arg);
}

/* Of each module, the root behind them, the one in it that is its last: both return the same
 * tensor. */
static void find_returned(struct lowering *low)
{
    struct fsdp1 *f = low->state;
    const struct graph *graph = low->graph;
    uint32_t module = NONE;
    f->returned = none_array(low, graph->module_count + 1);
    for (uint32_t i = 0; i < graph->item_count; i++) {
        const struct graph_item item = graph->items[i];
        const bool root = item.kind == ITEM_MARK && item.arg == MARK_ROOT_EXIT;
        if (item.kind == ITEM_EXIT || root)
            f->returned[root ? graph->module_count : item.arg] = module;
        if (item.kind == ITEM_EXIT)
            module = item.arg;
        else if (item.kind == ITEM_OP || item.kind == ITEM_ENTER)
            module = NONE;
    }
}

void fsdp1_set_up(struct lowering *low)
{
    struct fsdp1 *f = low->state;
    declare_mesh(low);
    f->kept = choose_kept(low);
    wrap_modules(low, NULL, &f->wrapping);
    f->handle_count = f->wrapping.units;
    f->own_count = low->graph->beside.module == GRAPH_NONE
                       ? f->handle_count
                       : f->wrapping.of_module[low->graph->beside.module];
    f->handles = arena_alloc(&low->scratch, f->handle_count * sizeof *f->handles);
    f->backward_order = none_array(low, 3 * f->handle_count); /* units in checkpoints twice,
                                                                     those called again */
    f->views = arena_alloc(&low->scratch, f->handle_count * sizeof *f->views);
    make_orders(low, &f->root);
    make_orders(low, &f->beside);
    for (uint32_t u = 0; u < f->handle_count; u++) {
        struct handle *handle = &f->handles[u];
        *handle = (struct handle){.unit = u, .root = u < f->own_count ? &f->root : &f->beside};
        handle->cast = handle->gathered = handle->kept = handle->flat = handle->gradient =
            handle->shown = handle->restored = NONE;
        handle->forward_index = handle->backward_index = NONE;
        lay_out(low, handle);
        if (handle->part_count == 0)
            continue;
        declare_buffers(low, handle);
        declare_pieces(low, handle, PIECE_STORE, handle->store);
        declare_pieces(low, handle, PIECE_GATHERED, f->sharded ? handle->gathered : handle->cast);
    }
    declare_ignored(low, &f->wrapping);
    find_forward_order(low);
    find_returned(low);
    find_again(low);
    f->zero = NONE;
    if (low->strategy->max_norm > 0 && torch_does(low->graph->torch, TORCH_CLIP_KEEPS_ZERO))
        f->zero = new_resident(low, CATEGORY_PERSISTENT, LANE_COMPUTE, ATEN_EMPTY, DTYPE_FP32,
                               (struct shape){.rank = 0});
    declare_optimized(low);
}
