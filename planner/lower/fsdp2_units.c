/* fsdp2_units.c - the mesh, and what of each unit exists before the first step (see fsdp2.c). */
#include "lower/fsdp2.h"

#include "base/names.h"

#include <string.h>

static const char *module_of(const struct graph *graph, uint32_t param)
{
    const uint32_t module = graph->params[param].module;
    return module == GRAPH_NONE ? "" : graph->modules[module].name;
}

/* Backward can do without a module's parameters where no kernel of it reads them, as of an
 * embedding. */
static enum err_code check_not_in_backward(const char *globs, const struct graph *graph,
                                           const struct stream *stream, struct err *err)
{
    bool named = false;
    for (uint32_t m = 0; m < graph->module_count; m++)
        named |= names_match(globs, graph->modules[m].name);
    if (!named)
        return err_set(err, ERR_INVALID, "--not-in-backward %s: no module that is a unit matches",
                       globs);
    for (uint32_t k = 0; k < stream->kernels->kernel_count; k++) {
        const struct kernel *kernel = &stream->kernels->kernels[k];
        for (uint32_t i = 0; i < kernel->ins && kernel->backward; i++) {
            const uint32_t place = kernel->operands[i].place, param = place & ~PLACE_MASK;
            if ((place & PLACE_MASK) == PLACE_PARAM && names_match(globs, module_of(graph, param)))
                return err_set(err, ERR_INVALID, "--not-in-backward %s: backward reads %s", globs,
                               graph->params[param].name);
        }
    }
    return ERR_OK;
}

/* Where hooks find no tensor in what the model returns, nothing gathers a root again that forward
 * resharded. */
static enum err_code check_root(const struct strategy *s, const struct stream *stream,
                                struct err *err)
{
    if (s->reshard != RESHARD_ALWAYS && s->reshard != RESHARD_INT)
        return ERR_OK;
    for (uint32_t i = 0; i < stream->step_count; i++)
        if (stream->steps[i].kind == STEP_PRE_BACKWARD && stream->steps[i].arg == MODULE_ROOT)
            return ERR_OK;
    return err_set(err, ERR_INVALID,
                   "--reshard: fully_shard finds no tensor in what the model returns, and does not "
                   "gather its own parameters for backward: --reshard default, which leaves them "
                   "whole, or let it return a tensor, or tuples, dictionaries or dataclasses of "
                   "them");
}

/* A pattern that names no unit is a mistake: units of two blocks go by the first's name. */
static enum err_code check_keep_units(const struct strategy *s, const struct graph *graph,
                                      struct err *err)
{
    struct arena arena = {0};
    struct wrapping w;
    enum err_code rc = ERR_OK;
    choose_units(graph, s, &arena, &w, NULL);
    for (const char *at = s->keep_units; *at && rc == ERR_OK;) {
        const size_t length = strcspn(at, ",");
        const char *pattern = arena_printf(&arena, "%.*s", (int)length, at);
        bool named = false;
        for (uint32_t u = 1; u < w.units; u++)
            named = named || names_in(pattern, graph->modules[w.first_module[u]].name);
        if (!named && w.units > 1)
            rc = err_set(err, ERR_INVALID,
                         "--keep-units %s: no unit begins with such a module; units begin with %s "
                         "... %s",
                         pattern, graph->modules[w.first_module[1]].name,
                         graph->modules[w.first_module[w.units - 1]].name);
        else if (!named)
            rc = err_set(err, ERR_INVALID, "--keep-units %s: there is no unit but the root",
                         pattern);
        at += length + (at[length] == ',');
    }
    arena_free(&arena);
    return rc;
}

/* FSDPParam._init_sharded_param. */
static enum err_code check_columns(const struct strategy *s, const struct graph *graph,
                                   struct err *err)
{
    uint32_t ranks = s->world / s->replicate;
    if (s->reshard == RESHARD_INT && s->reshard_ranks > 1 && s->reshard_ranks < ranks)
        return err_set(err, ERR_UNSUPPORTED,
                       "--reshard %u with --placement columns is not planned by this version",
                       s->reshard_ranks);
    for (uint32_t p = 0; p < graph->param_count; p++) {
        const struct graph_param *param = &graph->params[p];
        if (param->shape.rank > 1 && param->shape.dim[1] % ranks != 0)
            return err_set(err, ERR_INVALID,
                           "--placement columns: fully_shard needs %s's %u columns to be a "
                           "multiple of the %u ranks of the shard group",
                           param->name, param->shape.dim[1], ranks);
    }
    return ERR_OK;
}

/* What of fully_shard a version of PyTorch does not have. */
static enum err_code check_options(const struct strategy *s, uint32_t torch, struct err *err)
{
    const struct {
        bool used;
        enum torch_change change;
        const char *option;
    } options[] = {
        {s->reduce_buffers > 1, TORCH_REDUCE_BUFFERS, "--reduce-buffers"},
        {s->columns, TORCH_SHARD_PLACEMENT, "--placement columns (shard_placement_fn)"},
        {s->not_in_backward != NULL, TORCH_UNSHARD_IN_BACKWARD,
         "--not-in-backward (set_unshard_in_backward)"},
        {s->forward_prefetch > 0, TORCH_EXPLICIT_PREFETCH,
         "--forward-prefetch (set_modules_to_forward_prefetch)"},
        {s->backward_prefetch > 0, TORCH_EXPLICIT_PREFETCH,
         "--backward-prefetch (set_modules_to_backward_prefetch)"},
        {s->units == UNITS_TORCHTITAN || s->units == UNITS_BYTES || s->per_unit > 1,
         TORCH_MODULE_LISTS, "--units (fully_shard of several modules)"},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].used && !torch_does(torch, options[i].change))
            return err_set(err, ERR_INVALID, "%s: torch 2.%u does not have it; 2.%u does",
                           options[i].option, torch, torch_row(options[i].change)->until);
    return ERR_OK;
}

/* Whether a module is run forward and backward does not come to it: all before it is frozen. */
static bool is_not_in_backward(const struct stream *stream, uint32_t module)
{
    bool forward = false;
    for (uint32_t i = 0; i < stream->step_count; i++) {
        const struct stream_step *step = &stream->steps[i];
        if (step->arg == module && step->kind == STEP_PRE_BACKWARD)
            return false;
        forward = forward || (step->arg == module && step->kind == STEP_PRE_FORWARD);
    }
    return forward;
}

/* Up to 2.5 such a unit is gathered in vain behind the one after it, and stays whole. */
static enum err_code check_frozen(const struct strategy *s, const struct graph *graph,
                                  const struct stream *stream, struct err *err)
{
    const enum torch_change change = TORCH_UNUSED_GATHER_GOES;
    const bool titan = s->units == UNITS_TORCHTITAN;
    for (uint32_t m = 0; m < graph->module_count && !torch_does(graph->torch, change); m++) {
        const enum module_role role = graph->modules[m].role;
        const bool unit = role == ROLE_BLOCK || (titan && role == ROLE_EMBEDDING);
        if (unit && is_not_in_backward(stream, m))
            return err_set(err, ERR_UNSUPPORTED,
                           "--freeze: backward does not come to %s. Of torch 2.%u that is not "
                           "planned: %s (until 2.%u)",
                           graph->modules[m].name, graph->torch, torch_row(change)->then,
                           torch_row(change)->until);
    }
    return ERR_OK;
}

/* What HSDP reduced is cast, or added to what is there, on the all-reduce's stream, and goes; up to
 * 2.5 its memory is the reduce-scatter's again before that stream is done. */
static bool races(const struct strategy *s, uint32_t torch)
{
    const bool adds = s->accumulate > 1 && s->accumulate_sync && !s->all_reduce_last;
    return s->replicate > 1 && (adds || s->reduce != s->store) &&
           !torch_does(torch, TORCH_ALL_REDUCE_HELD);
}

static enum err_code check_offload(const struct strategy *s, uint32_t torch, struct err *err)
{
    if (!s->offload || torch == 0)
        return ERR_OK;
    if (s->replicate > 1 && !torch_does(torch, TORCH_OFFLOAD_WAITS))
        return err_set(err, ERR_UNSUPPORTED,
                       "--offload with --replicate: of torch 2.%u it is not planned: %s (until "
                       "2.%u)",
                       torch, torch_row(TORCH_OFFLOAD_WAITS)->then,
                       torch_row(TORCH_OFFLOAD_WAITS)->until);
    return ERR_OK;
}

/* What a version of PyTorch does not have, or is not known to do as newer ones. */
static enum err_code check_version(const struct strategy *s, uint32_t torch, struct err *err)
{
    TRY(check_options(s, torch, err));
    if (races(s, torch))
        return err_set(err, ERR_UNSUPPORTED,
                       "--replicate: torch 2.%u gives the memory of what is all-reduced to the "
                       "next reduce-scatter while it is still read (until 2.%u); planned with "
                       "gradients reduced in the stored dtype, once a step",
                       torch, torch_row(TORCH_ALL_REDUCE_HELD)->until);
    if (s->columns && s->world == s->replicate && !torch_does(torch, TORCH_ALONE_REDUCES))
        return err_set(err, ERR_UNSUPPORTED,
                       "--placement columns of one rank: not planned as torch 2.%u does it", torch);
    return check_offload(s, torch, err);
}

/* Two meshes: torch's clip_grad_norm_ stacks norms, and "all operands in aten.stack.default must
 * have the same mesh". */
static enum err_code check_experts(const struct strategy *s, const struct graph *graph,
                                   struct err *err)
{
    const bool meshes = s->experts_replicate != s->replicate;
    bool any = false;
    for (uint32_t m = 0; m < graph->module_count; m++)
        any |= graph->modules[m].role == ROLE_EXPERTS;
    if (!any)
        return err_set(err, ERR_INVALID,
                       "--experts-replicate: the model has no module of experts to wrap");
    if (s->world % s->experts_replicate != 0)
        return err_set(err, ERR_INVALID, "--experts-replicate %u does not divide --gpus %u",
                       s->experts_replicate, s->world);
    if (meshes && s->max_norm > 0)
        return err_set(err, ERR_INVALID,
                       "--clip: torch's clip_grad_norm_ takes no gradients of two meshes, which "
                       "--replicate %u and --experts-replicate %u are; --clip off",
                       s->replicate, s->experts_replicate);
    if (meshes && s->reshard == RESHARD_INT)
        return err_set(err, ERR_UNSUPPORTED,
                       "--reshard %u with --experts-replicate %u on another mesh is not planned",
                       s->reshard_ranks, s->experts_replicate);
    return ERR_OK;
}

void fsdp2_prepare(const struct strategy *s, struct graph *graph)
{
    struct arena arena = {0};
    struct wrapping w;
    if (s->adapter_units)
        choose_units_inside(graph, s, &arena, &w);
    arena_free(&arena);
}

static enum err_code check_adapters(const struct strategy *s, const struct graph *graph,
                                    struct err *err)
{
    struct arena arena = {0};
    struct wrapping w;
    const char *borderless;
    enum err_code rc = ERR_OK;
    if (graph->lora.rank == 0)
        return err_set(err, ERR_INVALID, "--adapter-units on is of models with adapters: --lora");
    if (s->experts_replicate || s->units == UNITS_BYTES || s->per_unit > 1)
        return err_set(err, ERR_UNSUPPORTED,
                       "--adapter-units on is planned with --units blocks, embeddings or "
                       "torchtitan, and without --experts-replicate");
    if (s->store == s->compute && graph->lora.dropout == 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "--adapter-units on is planned where adapters are cast to --param-dtype, or "
                       "something is dropped of what they are given: else what a layer is called "
                       "with is its adapter's, too, whose hook adds up gradients in another order");
    if (graph->lora.mlp || graph->lora.qkv || graph->lora.o)
        return err_set(err, ERR_UNSUPPORTED,
                       "--adapter-units on with --lora-kernels, which call no module of adapters: "
                       "not planned");
    choose_units(graph, s, &arena, &w, &borderless);
    if (borderless)
        rc = err_set(err, ERR_UNSUPPORTED,
                     "--adapter-units would wrap %s, of which it is not known where it begins and "
                     "ends; %s",
                     borderless, units_instead(graph, borderless, "--adapter-units off"));
    arena_free(&arena);
    return rc;
}

/* A unit of the table's own is resharded before who shares it computes. */
static enum err_code check_embeddings(const struct graph *graph, struct err *err)
{
    struct arena arena = {0};
    const uint32_t shared = units_shared_table(graph, &arena);
    arena_free(&arena);
    return shared == NONE
               ? ERR_OK
               : err_set(err, ERR_INVALID,
                         "--units embeddings: %s is shared with a module outside of its unit, "
                         "which would not be gathered for it; --units blocks",
                         graph->params[shared].name);
}

enum err_code fsdp2_check(const struct strategy *s, const struct graph *graph,
                          const struct stream *stream, struct err *err)
{
    if (s->units == UNITS_EMBEDDINGS)
        TRY(check_embeddings(graph, err));
    if (s->not_in_backward)
        TRY(check_not_in_backward(s->not_in_backward, graph, stream, err));
    if (s->keep_units)
        TRY(check_keep_units(s, graph, err));
    if (s->world % s->replicate != 0)
        return err_set(err, ERR_INVALID, "--replicate %u does not divide --gpus %u", s->replicate,
                       s->world);
    const uint32_t shard = s->world / s->replicate;
    if (s->reshard == RESHARD_INT && (s->reshard_ranks == 0 || shard % s->reshard_ranks != 0))
        return err_set(err, ERR_INVALID,
                       "--reshard %u does not divide the %u ranks of the shard group",
                       s->reshard_ranks, shard);
    TRY(check_root(s, stream, err));
    TRY(check_version(s, graph->torch, err));
    TRY(check_scalars(s, graph, err));
    TRY(check_called(s, graph, stream, err));
    TRY(check_ignored(s, graph, err));
    TRY(check_frozen(s, graph, stream, err));
    if (s->adapter_units)
        TRY(check_adapters(s, graph, err));
    if (s->experts_replicate)
        TRY(check_experts(s, graph, err));
    if (s->columns)
        TRY(check_columns(s, graph, err));
    if (graph->float8_gather)
        TRY(fsdp2_check_float8(s, graph, err));
    if (s->forward_prefetch > PREFETCH_MOST || s->backward_prefetch > PREFETCH_MOST)
        return err_set(err, ERR_INVALID, "explicit prefetch lists hold at most %d units",
                       PREFETCH_MOST);
    return ERR_OK;
}

static struct mesh make_mesh(struct lowering *low, uint32_t replicas, const char *shard,
                             const char *replicate)
{
    struct mesh mesh = {low->strategy->world / replicas, replicas, PLAN_NO_GROUP, PLAN_NO_GROUP};
    if (mesh.shard_ranks > 1 || !torch_does(low->graph->torch, TORCH_ALONE_REDUCES))
        mesh.shard_group = plan_add_group(low->plan, shard, GROUP_SHARD, mesh.shard_ranks, 1);
    if (replicas > 1)
        mesh.replicate_group =
            plan_add_group(low->plan, replicate, GROUP_REPLICATE, replicas, mesh.shard_ranks);
    return mesh;
}

static struct comm new_comm(struct plan *plan, const char *copy_in, const char *all_gather)
{
    return (struct comm){
        .copy_in = plan_add_lane(plan, copy_in, true),
        .all_gather = plan_add_lane(plan, all_gather, true),
        .previous_gather = NONE,
    };
}

static void declare_mesh(struct lowering *low)
{
    struct fsdp2 *f = low->state;
    const struct strategy *s = low->strategy;
    struct plan *plan = low->plan;
    f->mesh = f->experts = make_mesh(low, s->replicate, "shard", "replicate");
    if (s->experts_replicate && s->experts_replicate != s->replicate)
        f->experts = make_mesh(low, s->experts_replicate, "experts_shard", "experts_replicate");
    f->post_group = PLAN_NO_GROUP;
    if (s->reshard == RESHARD_INT && s->reshard_ranks > 1 && s->reshard_ranks < f->mesh.shard_ranks)
        f->post_group = plan_add_group(plan, "post_forward", GROUP_RESHARD, s->reshard_ranks, 1);
    const bool reduces =
        f->mesh.shard_ranks > 1 || !torch_does(low->graph->torch, TORCH_ALONE_KEEPS_NORM);
    low->norm_group = reduces ? f->mesh.shard_group : PLAN_NO_GROUP;
    f->comm = new_comm(plan, "copy_in", "all_gather");
    if (low->graph->beside.module != GRAPH_NONE)
        f->beside = new_comm(plan, "reference_copy_in", "reference_all_gather");
    f->reduce_scatter = plan_add_lane(plan, "reduce_scatter", true);
    f->all_reduce = plan_add_lane(plan, "all_reduce", false);
}

static const struct mesh *mesh_of_unit(const struct lowering *low, uint32_t unit)
{
    const struct fsdp2 *f = fsdp2_of(low);
    const uint32_t module = f->wrapping.first_module[unit];
    const bool experts = unit > 0 && low->graph->modules[module].role == ROLE_EXPERTS;
    return experts ? &f->experts : &f->mesh;
}

static bool is_of_blocks(const struct lowering *low, uint32_t unit)
{
    const struct wrapping *w = &fsdp2_of(low)->wrapping;
    return unit > 0 && low->graph->modules[w->first_module[unit]].role == ROLE_BLOCK;
}

static void find_blocks(struct lowering *low)
{
    struct fsdp2 *f = low->state;
    f->blocks = arena_lend(&low->scratch, (f->wrapping.units + 1) * sizeof *f->blocks);
    for (uint32_t u = 1; u < f->wrapping.units; u++)
        if (is_of_blocks(low, u))
            f->blocks[f->block_count++] = u;
}

/* Whether fewer than keep_last units of blocks come after it. */
static bool is_kept(const struct lowering *low, uint32_t unit)
{
    const struct fsdp2 *f = fsdp2_of(low);
    const uint32_t last =
        low->strategy->keep_last < f->block_count ? low->strategy->keep_last : f->block_count;
    return last > 0 && unit >= f->blocks[f->block_count - last] && is_of_blocks(low, unit);
}

static bool is_of_beside(const struct lowering *low, uint32_t unit)
{
    return unit > 0 && fsdp2_of(low)->wrapping.first_module[unit] == low->graph->beside.module;
}

static const char *first_module(const struct lowering *low, uint32_t unit)
{
    return low->graph->modules[fsdp2_of(low)->wrapping.first_module[unit]].name;
}

static uint32_t post_ranks(const struct lowering *low, uint32_t unit)
{
    const struct fsdp2 *f = fsdp2_of(low);
    const struct strategy *s = low->strategy;
    const bool obeys = torch_does(low->graph->torch, TORCH_ROOT_RESHARDS);
    const uint32_t ranks = mesh_of_unit(low, unit)->shard_ranks;
    if (is_of_beside(low, unit)) /* a root that is told so: TRL's prepare_fsdp */
        return s->reshard == RESHARD_NEVER ? 0 : ranks;
    if (is_kept(low, unit) || (unit > 0 && names_in(s->keep_units, first_module(low, unit))))
        return 0;
    switch (s->reshard) {
    case RESHARD_NEVER:
        return 0;
    case RESHARD_INT: /* 1 means False */
        return unit == 0 && !obeys ? 0 : s->reshard_ranks == 1 ? 0 : s->reshard_ranks;
    case RESHARD_DEFAULT:
        return unit == 0 || is_tail_unit(low, &f->wrapping, unit) ? 0 : ranks;
    default:
        return unit == 0 && !obeys ? 0 : ranks;
    }
}

static bool is_same_shape(const struct shape *a, const struct shape *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Whether two units have the same parameters, but for their names. */
static bool is_like(const struct lowering *low, const struct unit *a, const struct unit *b)
{
    const struct plan_param *params = low->plan->params;
    if (a->mesh != b->mesh || a->count != b->count || has_float8(low, a) || has_float8(low, b))
        return false;
    for (uint32_t i = 0; i < a->count; i++) {
        const struct plan_param *x = &params[a->params[i]], *y = &params[b->params[i]];
        if (x->trainable != y->trainable || !is_same_shape(&x->shape, &y->shape))
            return false;
    }
    return true;
}

static const struct unit_kernels no_kernels = {
    .gather = {{NONE, NONE, NONE, 0}, {NONE, NONE, NONE, 0}},
    .copy_out = NONE,
    .reduce_scatter = NONE,
    .all_reduce = NONE,
    .cast = NONE,
    .chunk_cat = NONE,
};

/* The nearest unit before it that is alike: blocks of two kinds may take turns. NULL: none. */
static const struct unit *find_like(struct lowering *low, struct unit *unit)
{
    enum { LOOKED_BACK = 4 };
    const struct unit *units = fsdp2_of(low)->units, *like = NULL;
    for (uint32_t u = unit->index; u-- > 0 && u + LOOKED_BACK >= unit->index && !like;)
        if (is_like(low, &units[u], unit))
            like = &units[u];
    unit->kernels = like ? like->kernels : arena_alloc(&low->scratch, sizeof *unit->kernels);
    if (!like)
        *unit->kernels = no_kernels;
    for (uint32_t i = 0; i < unit->count && like && low->like; i++)
        if (like->params[i] < unit->params[i])
            low->like[unit->params[i]] = low->like[like->params[i]];
    return like;
}

/* Shards of the unit's parameters; those of a unit like it are as large. */
static void add_shards(struct lowering *low, struct unit *unit)
{
    struct fsdp2 *f = low->state;
    const struct unit *like = unit->like;
    const struct plan_param *params = low->plan->params;
    for (uint32_t i = 0; i < unit->count; i++) {
        const uint32_t p = unit->params[i];
        f->padded[p] = like ? f->padded[like->params[i]]
                            : placement_padded(fsdp2_placement(low, p), &params[p].shape,
                                               unit->mesh->shard_ranks);
        const uint64_t shard = padded_shard(low, p);
        unit->shard_elements += shard;
        if (!params[p].trainable)
            continue;
        unit->trained_elements += shard;
        /* a module's own are listed behind its children's, and come before them as a model has them
         */
        if (unit->last_trainable == NONE || p > unit->last_trainable)
            unit->last_trainable = p;
    }
}

/* Each stands for itself, so far. */
static void begin_likes(struct lowering *low)
{
    if (!outline_is_short(low))
        return;
    low->like = arena_lend(&low->scratch, (low->plan->param_count + 1) * sizeof *low->like);
    for (uint32_t p = 0; p < low->plan->param_count; p++)
        low->like[p] = p;
}

static void declare_units(struct lowering *low)
{
    struct fsdp2 *f = low->state;
    const struct plan *plan = low->plan;
    const struct strategy *s = low->strategy;
    find_blocks(low);
    f->units = arena_alloc(&low->scratch, f->wrapping.units * sizeof *f->units);
    f->padded = arena_lend(&low->scratch, (plan->param_count + 1) * sizeof *f->padded);
    begin_likes(low);
    f->order = none_array(low, f->wrapping.units * USES_MOST * s->accumulate);
    for (uint32_t u = 0; u < f->wrapping.units; u++) {
        struct unit *unit = &f->units[u];
        *unit = (struct unit){
            .index = u,
            .mesh = mesh_of_unit(low, u),
            .comm = is_of_beside(low, u) ? &f->beside : &f->comm,
            .params = plan->unit_params + plan->units[u].first_param,
            .count = plan->units[u].params,
            .post_ranks = post_ranks(low, u),
            .gather = NONE,
            .sharded_grad = NONE,
            .last_trainable = NONE,
            .all_reduce_held = NONE,
            .partial = NONE,
            .reduce_event = NONE,
            .scales_event = NONE,
            .not_in_backward = u > 0 && names_match(s->not_in_backward, first_module(low, u)),
        };
        unit->like = find_like(low, unit);
        add_shards(low, unit);
    }
}

/* Only secondary shards ask. */
static void find_in_backward(struct lowering *low)
{
    struct fsdp2 *f = low->state;
    for (uint32_t i = 0; i < low->hook_count && f->post_group != PLAN_NO_GROUP; i++) {
        const struct stream_step step = low->hooks[i];
        const uint32_t unit =
            step.kind == STEP_PRE_BACKWARD ? hooked_unit(&f->wrapping, step.arg, false) : NONE;
        if (unit != NONE)
            f->units[unit].in_backward = true;
    }
}

/* Of an outline: those of the parameter that stands for this one. */
static void declare_again(struct lowering *low, uint32_t param)
{
    const struct fsdp2 *f = fsdp2_of(low);
    const uint32_t like = low->like[param];
    struct plan_param *params = low->plan->params;
    f->store[param] = f->store[like];
    f->unsharded[param] = f->unsharded[like];
    params[param].piece[PIECE_STORE] = params[like].piece[PIECE_STORE];
    params[param].piece[PIECE_GATHERED] = params[like].piece[PIECE_GATHERED];
    again_resident(low, f->store[like], 1);
}

/* Whether a parameter stays gathered from the first step on: of another model, which no backward
 * reshards. */
static bool is_kept_whole(const struct lowering *low, uint32_t param)
{
    const uint32_t unit = low->plan->params[param].unit;
    return is_of_beside(low, unit) && fsdp2_of(low)->units[unit].post_ranks == 0;
}

/* The sharded and the unsharded storage of each parameter. */
static void declare_storages(struct lowering *low)
{
    struct fsdp2 *f = low->state;
    const struct strategy *s = low->strategy;
    const uint8_t pool = s->offload ? LANE_HOST : LANE_COMPUTE;
    const struct placement whole = {.kind = PLACEMENT_WHOLE};
    f->store = none_array(low, low->plan->param_count);
    f->unsharded = none_array(low, low->plan->param_count);
    f->secondary = none_array(low, low->plan->param_count);
    f->accumulated = none_array(low, low->plan->param_count);
    f->host_grad = none_array(low, low->plan->param_count);
    f->offload_event = none_array(low, low->plan->param_count);
    for (uint32_t p = 0; p < low->plan->param_count; p++) {
        if (low->like && low->like[p] != p) {
            declare_again(low, p);
            continue;
        }
        if (is_ignored(&f->wrapping, p))
            continue;
        const uint64_t shard = padded_shard(low, p);
        f->store[p] = new_resident(low, CATEGORY_SHARDED_PARAM, pool, ATEN_NEW_ZEROS,
                                   stored_dtype(low, p), flat(shard));
        f->unsharded[p] = new_buffer(low, CATEGORY_UNSHARDED_PARAM, LANE_COMPUTE, ATEN_EMPTY,
                                     is_in_float8(low, p) ? DTYPE_FLOAT8_E4M3 : s->compute,
                                     flat(shard * mesh_of(low, p)->shard_ranks));
        low->plan->buffers[f->store[p]].pinned = s->offload; /* CPUOffloadPolicy's default */
        low->plan->buffers[f->unsharded[p]].resident = is_kept_whole(low, p);
        new_piece(low, p, PIECE_STORE, f->store[p], 0, fsdp2_placement(low, p),
                  mesh_of(low, p)->shard_group);
        new_piece(low, p, PIECE_GATHERED, f->unsharded[p], 0, whole, PLAN_NO_GROUP);
    }
}

/* What of each unit comes and goes together. */
static void bundle_units(struct lowering *low)
{
    struct fsdp2 *f = low->state;
    uint32_t *next = arena_lend(&low->scratch, (low->plan->param_count + 1) * sizeof *next);
    for (uint32_t u = 0; u < f->wrapping.units; u++) {
        struct unit *unit = &f->units[u];
        for (uint32_t i = 0; i < unit->count; i++)
            next[i] = f->unsharded[unit->params[i]];
        if (unit->like)
            unit->unsharded = (struct bundle){unit->count, next, unit->like->unsharded.bytes};
        else
            unit->unsharded = bundle_of(low, unit->count, next);
        next += unit->count;
    }
}

/* Room for what post_backward lists of a unit. */
static void make_lists(struct lowering *low)
{
    struct fsdp2 *f = low->state;
    const uint32_t most = low->plan->param_count + 1;
    f->reduced = arena_lend(&low->scratch, most * sizeof *f->reduced);
    f->reduced_params = arena_lend(&low->scratch, most * sizeof *f->reduced_params);
    f->reduced_buffers = arena_lend(&low->scratch, most * sizeof *f->reduced_buffers);
}

/* set_modules_to_forward_prefetch / set_modules_to_backward_prefetch on the units of blocks. */
static void choose_prefetch(struct lowering *low)
{
    struct fsdp2 *f = low->state;
    const struct strategy *s = low->strategy;
    const uint32_t *blocks = f->blocks, count = f->block_count;
    for (uint32_t i = 0; i < count; i++) {
        struct unit *unit = &f->units[blocks[i]];
        for (uint32_t n = 1; n <= s->forward_prefetch && i + n < count; n++)
            unit->forward_list[unit->forward_list_count++] = blocks[i + n];
        for (uint32_t n = 1; n <= s->backward_prefetch && n <= i; n++)
            unit->backward_list[unit->backward_list_count++] = blocks[i - n];
    }
}

/* torch's foreach functions take no DTensors together with tensors: what is ignored is a group of
 * the optimizer's by itself. */
static void optimize_ignored_last(struct lowering *low)
{
    const struct wrapping *w = &fsdp2_of(low)->wrapping;
    uint32_t *order = none_array(low, low->plan->param_count), count = 0;
    for (int ignored = 0; ignored < 2; ignored++) {
        low->second_group = count;
        for (uint32_t p = 0; p < low->plan->param_count; p++)
            if (is_ignored(w, p) == (ignored == 1))
                order[count++] = p;
    }
    optimize_params(low, order, count);
}

void fsdp2_set_up(struct lowering *low)
{
    struct fsdp2 *f = low->state;
    leave_out_unused(low);
    f->last_reduced[0] = f->last_reduced[1] = NONE;
    f->retained_most = low->strategy->reduce_buffers ? low->strategy->reduce_buffers : 1;
    f->retained = arena_alloc(&low->scratch, (f->retained_most + 1) * sizeof *f->retained);
    declare_mesh(low);
    wrap_modules(low, low->graph->group_order, &f->wrapping);
    declare_units(low);
    find_in_backward(low);
    declare_storages(low);
    declare_ignored(low, &f->wrapping);
    if (f->wrapping.ignored)
        optimize_ignored_last(low);
    bundle_units(low);
    make_lists(low);
    choose_prefetch(low);
}
