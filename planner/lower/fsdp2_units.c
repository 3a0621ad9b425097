/* fsdp2_units.c - which parameters make a unit, and what exists before the first step. */
#include "graph/ops.h"
#include "lower/fsdp2.h"

#include <stdlib.h>
#include <string.h>

static uint64_t module_bytes(const struct graph *graph, uint32_t module, enum dtype dtype)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < graph->param_count; p++)
        if (graph->params[p].module == module)
            bytes += shape_bytes(&graph->params[p].shape, dtype);
    return bytes;
}

static struct unit *new_unit(struct fsdp2 *f, uint32_t module)
{
    struct unit *unit = &f->units[f->unit_count++];
    *unit = (struct unit){
        .first_module = module,
        .last_module = module,
        .gather = NONE,
        .sharded_grad = NONE,
        .last_trainable = NONE,
        .all_reduce_held = NONE,
    };
    return unit;
}

/* Which modules a unit wraps. The root is units[0] and takes what is left. */
static void choose_units(struct fsdp2 *f)
{
    const struct graph *graph = f->graph;
    const struct strategy *s = f->low.strategy;
    const bool titan = s->units == UNITS_TORCHTITAN;
    new_unit(f, MODULE_ROOT);
    struct unit *open = NULL, *tail = NULL;
    uint32_t blocks = 0;
    uint64_t bytes = 0;
    for (uint32_t m = 0; m < graph->module_count; m++) {
        const enum module_role role = graph->modules[m].role;
        struct unit *unit = NULL;
        if (role == ROLE_BLOCK) {
            const uint64_t more = s->units == UNITS_BYTES ? module_bytes(graph, m, s->store) : 0;
            const bool full =
                s->units == UNITS_BYTES ? bytes + more > s->unit_bytes : blocks == s->per_unit;
            if (!open || full) {
                open = new_unit(f, m);
                blocks = 0;
                bytes = 0;
            }
            unit = open;
            blocks++;
            bytes += more;
        } else if (titan && role == ROLE_EMBEDDING) {
            unit = new_unit(f, m);
        } else if (titan && (role == ROLE_NORM || role == ROLE_HEAD)) {
            unit = tail ? tail : (tail = new_unit(f, m));
        }
        f->module_unit[m] = unit ? unit_index(f, unit) : NONE;
        if (unit)
            unit->last_module = m;
    }
}

static uint32_t post_ranks(const struct fsdp2 *f, const struct unit *unit)
{
    const struct strategy *s = f->low.strategy;
    const bool is_root = unit->first_module == MODULE_ROOT;
    const bool is_tail = !is_root && s->units == UNITS_TORCHTITAN &&
                         (f->graph->modules[unit->last_module].role == ROLE_HEAD ||
                          f->graph->modules[unit->last_module].role == ROLE_NORM);
    switch (s->reshard) {
    case RESHARD_NEVER:
        return 0;
    case RESHARD_INT: /* 1 means False */
        return s->reshard_ranks == 1 ? 0 : s->reshard_ranks;
    case RESHARD_DEFAULT:
        return is_root || is_tail ? 0 : f->shard_ranks;
    default:
        return f->shard_ranks;
    }
}

static const char *unit_title(struct fsdp2 *f, const struct unit *unit)
{
    struct arena *arena = &f->low.plan->arena;
    if (unit->first_module == MODULE_ROOT)
        return "";
    const char *title = NULL;
    for (uint32_t m = unit->first_module; m <= unit->last_module; m++)
        if (f->module_unit[m] == unit_index(f, unit))
            title = title ? arena_printf(arena, "%s, %s", title, f->graph->modules[m].name)
                          : arena_strdup(arena, f->graph->modules[m].name);
    return title;
}

static struct shape local_shape(const struct shape *shape, uint32_t ranks, uint32_t rank)
{
    const uint64_t rows = shape->dim[0], chunk = (rows + ranks - 1) / ranks;
    const uint64_t first = chunk * rank;
    struct shape local = *shape;
    local.dim[0] = (uint32_t)(first >= rows ? 0 : rows - first < chunk ? rows - first : chunk);
    return local;
}

/* Sorts the parameters by unit, in fully_shard's order, and sums up each unit. */
static void fill_units(struct fsdp2 *f)
{
    struct plan *plan = f->low.plan;
    for (uint32_t p = 0; p < plan->param_count; p++)
        f->units[plan->params[p].unit].params++;
    uint32_t next = 0;
    for (uint32_t u = 0; u < f->unit_count; u++) {
        struct unit *unit = &f->units[u];
        unit->first = next;
        next += unit->params;
        unit->exists = unit->params > 0;
        unit->post_ranks = post_ranks(f, unit);
        unit->params = 0;
        if (!f->low.tally)
            plan->units[u].name = unit_title(f, unit);
    }
    const uint32_t *order = f->graph->group_order;
    for (uint32_t i = 0; i < plan->param_count; i++) {
        const uint32_t p = order ? order[i] : i;
        const struct plan_param *param = &plan->params[p];
        struct unit *unit = &f->units[param->unit];
        const uint64_t shard = padded_elements(&param->shape, f->shard_ranks) / f->shard_ranks;
        plan->unit_params[unit->first + unit->params++] = p;
        unit->shard_elements += shard;
        unit->trainable_shard_elements += param->trainable ? shard : 0;
        if (param->trainable)
            unit->last_trainable = p;
    }
    for (uint32_t u = 0; u < f->unit_count; u++) {
        plan->units[u].first_param = f->units[u].first;
        plan->units[u].params = f->units[u].params;
    }
}

/* Parameters, their unit, their sharded and unsharded storages. */
static void declare_params(struct fsdp2 *f)
{
    const struct graph *graph = f->graph;
    const struct strategy *s = f->low.strategy;
    struct plan *plan = f->low.plan;
    plan->param_count = graph->param_count;
    plan->params = arena_alloc(&plan->arena, graph->param_count * sizeof *plan->params);
    plan->unit_params = arena_alloc(&plan->arena, graph->param_count * sizeof(uint32_t));
    plan->unit_count = f->unit_count;
    plan->units = arena_alloc(&plan->arena, f->unit_count * sizeof *plan->units);
    for (uint32_t p = 0; p < graph->param_count; p++) {
        const struct graph_param *from = &graph->params[p];
        struct plan_param *param = &plan->params[p];
        const uint32_t wrapper = from->module == GRAPH_NONE ? NONE : f->module_unit[from->module];
        *param = (struct plan_param){
            .name = f->low.tally ? from->name : arena_strdup(&plan->arena, from->name),
            .shape = from->shape,
            .trainable = from->trainable,
            .unit = wrapper == NONE ? 0 : wrapper,
            .local = local_shape(&from->shape, f->shard_ranks, f->shard_rank),
            .init = from->init,
        };
        const uint64_t padded = padded_elements(&from->shape, f->shard_ranks);
        param->shard_buffer =
            new_buffer(&f->low, CATEGORY_SHARDED_PARAM, s->offload ? STREAM_HOST : STREAM_COMPUTE,
                       ATEN_NEW_ZEROS, s->store, flat(padded / f->shard_ranks));
        plan->buffers[param->shard_buffer].resident = true;
        param->unsharded_buffer = new_buffer(&f->low, CATEGORY_UNSHARDED_PARAM, STREAM_COMPUTE,
                                             ATEN_EMPTY, s->compute, flat(padded));
    }
    fill_units(f);
}

/* set_modules_to_forward_prefetch / set_modules_to_backward_prefetch on the units of blocks. */
static void choose_prefetch(struct fsdp2 *f)
{
    const struct strategy *s = f->low.strategy;
    uint32_t *blocks = xmalloc(f->unit_count * sizeof *blocks), count = 0;
    for (uint32_t u = 1; u < f->unit_count; u++)
        if (f->graph->modules[f->units[u].first_module].role == ROLE_BLOCK)
            blocks[count++] = u;
    for (uint32_t i = 0; i < count; i++) {
        struct unit *unit = &f->units[blocks[i]];
        for (uint32_t n = 1; n <= s->forward_prefetch && i + n < count; n++)
            unit->forward_list[unit->forward_list_count++] = blocks[i + n];
        for (uint32_t n = 1; n <= s->backward_prefetch && n <= i; n++)
            unit->backward_list[unit->backward_list_count++] = blocks[i - n];
        unit->has_backward_list = unit->backward_list_count > 0;
    }
    free(blocks);
}

/* Module buffers and the batch: there from the start. Micro-batches reuse one batch. */
static void declare_inputs(struct fsdp2 *f)
{
    const struct graph *graph = f->graph;
    struct plan *plan = f->low.plan;
    plan->inputs = arena_alloc(&plan->arena, graph->input_count * sizeof *plan->inputs);
    plan->module_buffers =
        arena_alloc(&plan->arena, graph->buffer_count * sizeof *plan->module_buffers);
    plan->input_count = graph->input_count;
    plan->module_buffer_count = graph->buffer_count;
    for (uint32_t i = 0; i < graph->storage_count; i++) {
        const struct graph_storage *storage = &graph->storages[i];
        if (storage->kind != STORAGE_INPUT && storage->kind != STORAGE_BUFFER)
            continue;
        const bool is_input = storage->kind == STORAGE_INPUT;
        const uint32_t buffer =
            new_buffer(&f->low, is_input ? CATEGORY_INPUT : CATEGORY_BUFFER, STREAM_COMPUTE,
                       ATEN_EMPTY, (enum dtype)storage->dtype, storage->shape);
        plan->buffers[buffer].resident = true;
        if (is_input)
            plan->inputs[storage->index] =
                (struct plan_input){buffer, graph->inputs[storage->index]};
        else
            plan->module_buffers[storage->index] =
                (struct plan_module_buffer){buffer, graph->buffers[storage->index]};
    }
}

static uint8_t add_group(struct plan *plan, const char *name, uint32_t ranks, uint32_t stride)
{
    plan->groups[plan->group_count] = (struct plan_group){name, ranks, stride};
    return (uint8_t)plan->group_count++;
}

enum err_code fsdp2_check(const struct strategy *s, struct err *err)
{
    if (s->world % s->replicate != 0)
        return err_set(err, ERR_INVALID, "--replicate %u does not divide --gpus %u", s->replicate,
                       s->world);
    const uint32_t shard = s->world / s->replicate;
    if (s->reshard == RESHARD_INT && (s->reshard_ranks == 0 || shard % s->reshard_ranks != 0))
        return err_set(err, ERR_INVALID,
                       "--reshard %u does not divide the %u ranks of the shard group",
                       s->reshard_ranks, shard);
    if (s->rank >= s->world)
        return err_set(err, ERR_INVALID, "--rank %u: allowed are 0 ... %u", s->rank, s->world - 1);
    if (s->forward_prefetch > 16 || s->backward_prefetch > 16)
        return err_set(err, ERR_INVALID, "explicit prefetch lists hold at most 16 units");
    return ERR_OK;
}

/* The names that the numbers in kernels and buffers stand for. */
static void name_numbers(struct plan *plan)
{
    static const char *const labels[] = {
#define X(name, text) text,
        ATEN_MAP(X)
#undef X
    };
    const char **kinds = arena_alloc(&plan->arena, OP_KIND_COUNT * sizeof *kinds);
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        const char *name = op_class(&(struct graph_op){.kind = (uint16_t)kind})->name;
        kinds[kind] = name ? name : "";
    }
    plan->labels = labels;
    plan->label_count = ATEN_COUNT;
    plan->kinds = kinds;
    plan->kind_count = OP_KIND_COUNT;
}

void fsdp2_set_up(struct fsdp2 *f)
{
    const struct strategy *s = f->low.strategy;
    struct plan *plan = f->low.plan;
    name_numbers(plan);
    plan->world = s->world;
    plan->rank = s->rank;
    plan->loss_scale = 1.0F / (float)s->accumulate;
    f->shard_ranks = s->world / s->replicate;
    f->shard_rank = s->rank % f->shard_ranks;
    f->replicas = s->replicate;
    f->shard_group = f->replicate_group = f->post_group = PLAN_NO_GROUP;
    if (f->shard_ranks > 1)
        f->shard_group = add_group(plan, "shard", f->shard_ranks, 1);
    if (f->replicas > 1)
        f->replicate_group = add_group(plan, "replicate", f->replicas, f->shard_ranks);
    if (s->reshard == RESHARD_INT && s->reshard_ranks > 1 && s->reshard_ranks < f->shard_ranks)
        f->post_group = add_group(plan, "post_forward", s->reshard_ranks, 1);

    choose_units(f);
    declare_params(f);
    choose_prefetch(f);
    declare_inputs(f);
    declare_optimizer_states(&f->low);
}
