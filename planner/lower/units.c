/* units.c - see units.h. */
#include "lower/units.h"

#include "base/names.h"
#include "graph/borders.h"
#include "graph/ops.h"

#include <assert.h>
#include <stdio.h>
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

static uint32_t new_unit(struct wrapping *w, uint32_t module)
{
    w->first_module[w->units] = w->last_module[w->units] = module;
    return w->units++;
}

/* A head without a weight of its own reads the embedding's: torch refuses one parameter in two
 * groups, and the embedding goes into the tail's (torchtitan's apply_fsdp). */
static bool shares_embedding(const struct graph *graph)
{
    bool head = false;
    for (uint32_t m = 0; m < graph->module_count; m++)
        head = head || graph->modules[m].role == ROLE_HEAD;
    for (uint32_t p = 0; p < graph->param_count; p++)
        if (graph->params[p].module != GRAPH_NONE &&
            graph->modules[graph->params[p].module].role == ROLE_HEAD)
            return false;
    return head;
}

/* Blocks are taken together until a unit is full; torchtitan's tail is one unit. Experts with
 * borders are units within their blocks, whatever the others are. */
static void choose_by_role(const struct graph *graph, const struct strategy *s, struct wrapping *w)
{
    const bool titan = s->units == UNITS_TORCHTITAN;
    const bool embeddings = s->units == UNITS_EMBEDDINGS;
    const uint32_t per_unit = embeddings ? 1 : s->per_unit;
    const bool tied = titan && shares_embedding(graph);
    uint32_t open = NONE, tail = NONE, blocks = 0;
    uint64_t bytes = 0;
    for (uint32_t m = 0; m < graph_own_modules(graph); m++) {
        const enum module_role role = graph->modules[m].role;
        uint32_t unit = NONE;
        if (s->units == UNITS_NONE && role != ROLE_EXPERTS)
            continue;
        if (role == ROLE_BLOCK) {
            const uint64_t more = s->units == UNITS_BYTES ? module_bytes(graph, m, s->store) : 0;
            const bool full =
                s->units == UNITS_BYTES ? bytes + more > s->unit_bytes : blocks == per_unit;
            if (open == NONE || full) {
                open = new_unit(w, m);
                blocks = 0;
                bytes = 0;
            }
            unit = open;
            blocks++;
            bytes += more;
        } else if (role == ROLE_EXPERTS || (titan && role == ROLE_EMBEDDING && !tied) ||
                   (embeddings && (role == ROLE_EMBEDDING || role == ROLE_TABLE))) {
            unit = new_unit(w, m);
        } else if (titan && (role == ROLE_EMBEDDING || role == ROLE_NORM || role == ROLE_HEAD)) {
            unit = tail = tail == NONE ? new_unit(w, m) : tail;
        }
        w->of_module[m] = unit;
        if (unit != NONE)
            w->last_module[unit] = m;
    }
}

/* ---- size_based_auto_wrap_policy (torch/distributed/fsdp/wrap.py) ---- */

struct named {
    const char *name;
    uint32_t module;
};

struct by_size {
    const struct graph *graph;
    const struct strategy *strategy;
    uint32_t tail;       /* the unit of torchtitan's; NONE: there is none yet */
    bool tied;           /* ... which has the embedding, too */
    uint64_t least;      /* 0: UNITS_TRAINED */
    bool *wrapped;       /* (modules) */
    struct named *named; /* (modules) in the order of their names, of the same name in their own */
    struct arena *arena;
    const char **borderless; /* (borderless_count) modules to wrap without borders, leaves first */
    uint32_t borderless_count, borderless_cap;
};

static int compare_names(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    return order ? order : (x->module > y->module) - (x->module < y->module);
}

static void sort_names(struct by_size *by)
{
    const uint32_t count = graph_own_modules(by->graph);
    by->named = arena_alloc(by->arena, (count + 1) * sizeof *by->named);
    for (uint32_t m = 0; m < count; m++)
        by->named[m] = (struct named){by->graph->modules[m].name, m};
    qsort(by->named, count, sizeof *by->named, compare_names);
}

static bool is_named(const struct by_size *by, uint32_t at, const char *path, size_t length)
{
    return at < graph_own_modules(by->graph) && strncmp(by->named[at].name, path, length) == 0 &&
           by->named[at].name[length] == '\0';
}

/* The first in by->named whose name is not before the path's first `length` characters. */
static uint32_t find_name(const struct by_size *by, const char *path, size_t length)
{
    uint32_t low = 0, high = graph_own_modules(by->graph);
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (strncmp(by->named[middle].name, path, length) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void add_borderless(struct by_size *by, const char *name)
{
    if (by->borderless_count > 0 && strcmp(by->borderless[by->borderless_count - 1], name) == 0)
        return; /* another parameter of it */
    ARRAY_GROW(by->borderless, by->borderless_count, by->borderless_cap);
    by->borderless[by->borderless_count++] = name;
}

static void wrap_path(struct by_size *by, const char *path, size_t length)
{
    const uint32_t at = find_name(by, path, length);
    if (is_named(by, at, path, length)) {
        by->wrapped[by->named[at].module] = true;
        return;
    }
    add_borderless(by, arena_printf(by->arena, "%.*s", (int)length, path));
}

static bool is_sequence(const struct by_size *by, const char *path, size_t length)
{
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)length, path);
    return by->graph->sequences && names_match(by->graph->sequences, name);
}

/* Parameters [first, end) are those below the module whose path is the first `length` characters of
 * their names, a dot behind it included. Returns how many of their elements are in units. What
 * has children with numbers for names is a list of modules, which is never a unit, or a sequence.
 */
static uint64_t wrap_below(struct by_size *by, uint32_t first, uint32_t end, size_t length)
{
    const struct graph_param *params = by->graph->params;
    uint64_t all = 0, taken = 0;
    bool list = true;
    for (uint32_t i = first; i < end; i++)
        all += shape_elements(&params[i].shape);
    if (all < by->least)
        return 0;
    for (uint32_t i = first, stop; i < end; i = stop) {
        const char *name = params[i].name, *dot = strchr(name + length, '.');
        stop = i + 1;
        list = list && dot && name[length] >= '0' && name[length] <= '9';
        if (!dot)
            continue;
        const size_t child = (size_t)(dot - name) + 1;
        while (stop < end && strncmp(params[stop].name, name, child) == 0)
            stop++;
        taken += wrap_below(by, i, stop, child);
    }
    if (length == 0 && by->graph->lora.rank && all - taken >= by->least) /* what peft has there */
        add_borderless(by, "base_model.model");
    if (length == 0 || all - taken < by->least ||
        (list && !is_sequence(by, params[first].name, length - 1)))
        return taken;
    wrap_path(by, params[first].name, length - 1);
    return all;
}

/* Whether a parameter is `weight` of a module that is trained: peft's have no modules in them. */
static bool is_trained_weight(const struct graph_param *param)
{
    static const char weight[] = ".weight";
    const size_t length = strlen(param->name), own = sizeof weight - 1;
    return param->trainable && length > own && strcmp(param->name + length - own, weight) == 0;
}

const char *units_instead(const struct graph *graph, const char *borderless, const char *otherwise)
{
    const size_t length = strlen(borderless);
    if (graph->lora.rank == 0 || !strstr(borderless, ".lora_"))
        return otherwise;
    for (uint32_t p = 0; p < graph->param_count; p++)
        if (graph->params[p].beside_text &&
            strncmp(graph->params[p].name, borderless, length) == 0 &&
            graph->params[p].name[length] == '.')
            return "--tower bare has no adapters there";
    return otherwise;
}

static bool is_in_tail(const struct by_size *by, uint32_t module)
{
    const enum module_role role = by->graph->modules[module].role;
    return by->strategy->units == UNITS_TORCHTITAN &&
           (role == ROLE_NORM || role == ROLE_HEAD || (by->tied && role == ROLE_EMBEDDING));
}

static bool is_wrapped_by_role(const struct by_size *by, uint32_t module)
{
    const enum module_role role = by->graph->modules[module].role;
    const enum units_kind kind = by->strategy->units;
    return role == ROLE_BLOCK || is_in_tail(by, module) ||
           (kind == UNITS_TORCHTITAN && role == ROLE_EMBEDDING) ||
           (kind == UNITS_EMBEDDINGS && (role == ROLE_EMBEDDING || role == ROLE_TABLE));
}

static void wrap_trained(struct by_size *by)
{
    const struct graph *graph = by->graph;
    for (uint32_t m = 0; m < graph_own_modules(graph); m++)
        by->wrapped[m] = is_wrapped_by_role(by, m);
    for (uint32_t p = 0; p < graph_own_params(graph); p++)
        if (is_trained_weight(&graph->params[p]))
            wrap_path(by, graph->params[p].name, strlen(graph->params[p].name) - strlen(".weight"));
}

static uint32_t unit_for(struct by_size *by, struct wrapping *w, uint32_t module)
{
    if (!is_in_tail(by, module))
        return new_unit(w, module);
    by->tail = by->tail == NONE ? new_unit(w, module) : by->tail;
    w->last_module[by->tail] = module;
    return by->tail;
}

/* Units in the order of the modules' tree: a module goes before what is in it. */
static void list_units(struct by_size *by, uint32_t first, uint32_t end, size_t length,
                       struct wrapping *w)
{
    const struct graph_param *params = by->graph->params;
    uint32_t at = length > 0 ? find_name(by, params[first].name, length - 1) : 0;
    for (; length > 0 && is_named(by, at, params[first].name, length - 1); at++)
        if (by->wrapped[by->named[at].module])
            w->of_module[by->named[at].module] = unit_for(by, w, by->named[at].module);
    for (uint32_t i = first, stop; i < end; i = stop) {
        const char *name = params[i].name, *dot = strchr(name + length, '.');
        stop = i + 1;
        if (!dot)
            continue;
        const size_t child = (size_t)(dot - name) + 1;
        while (stop < end && strncmp(params[stop].name, name, child) == 0)
            stop++;
        list_units(by, i, stop, child, w);
    }
}

/* The unit of the innermost wrapped module that one that is not is in; NONE: the root's. */
static uint32_t unit_around(const struct by_size *by, const struct wrapping *w, uint32_t module)
{
    const char *name = by->graph->modules[module].name;
    for (size_t length = strlen(name); length-- > 0;) {
        if (name[length] != '.')
            continue;
        for (uint32_t at = find_name(by, name, length); is_named(by, at, name, length); at++)
            if (by->wrapped[by->named[at].module])
                return w->of_module[by->named[at].module];
    }
    return NONE;
}

static void choose_by_size(struct by_size *by, struct wrapping *w)
{
    sort_names(by);
    if (by->least)
        wrap_below(by, 0, graph_own_params(by->graph), 0);
    else
        wrap_trained(by);
    list_units(by, 0, graph_own_params(by->graph), 0, w);
    for (uint32_t m = 0; m < graph_own_modules(by->graph); m++)
        if (!by->wrapped[m])
            w->of_module[m] = unit_around(by, w, m);
}

/* Of another model, as TRL's prepare_fsdp has it: FSDP1 with the auto_wrap_policy of the first, so
 * units like its; fully_shard is called of the whole. */
static void choose_beside(const struct graph *graph, const struct strategy *s, struct wrapping *w)
{
    const uint32_t root = graph_own_modules(graph), own = w->units;
    if (root == graph->module_count)
        return;
    const uint32_t unit = new_unit(w, root);
    for (uint32_t m = root; m < graph->module_count; m++) {
        const uint32_t like = graph->modules[m].like;
        const uint32_t its = like == GRAPH_NONE ? NONE : w->of_module[like];
        w->of_module[m] = unit;
        if (its == NONE || s->system != SYSTEM_FSDP1)
            continue;
        w->of_module[m] = w->first_module[its] == like
                              ? new_unit(w, m)
                              : w->of_module[root + 1 + w->first_module[its]];
        w->last_module[w->of_module[m]] = m;
    }
    assert(s->system == SYSTEM_FSDP1 ? w->units <= 2 * own : w->units == own + 1);
}

static uint32_t *none_of(struct arena *arena, uint32_t count)
{
    uint32_t *array = arena_lend(arena, (count + 1) * sizeof *array);
    return memset(array, 0xff, (count + 1) * sizeof *array);
}

/* by->borderless is the caller's to free. */
static void choose(struct by_size *by, struct wrapping *out)
{
    const struct graph *graph = by->graph;
    const struct strategy *s = by->strategy;
    by->tail = NONE;
    by->tied = shares_embedding(graph);
    by->least = s->units == UNITS_ELEMENTS ? s->unit_elements : 0;
    *out = (struct wrapping){
        .of_module = none_of(by->arena, graph->module_count),
        .first_module = none_of(by->arena, graph->module_count + 1),
        .last_module = none_of(by->arena, graph->module_count + 1),
    };
    new_unit(out, MODULE_ROOT);
    if (strategy_wraps_inside(s)) {
        by->wrapped = arena_alloc(by->arena, graph->module_count + 1);
        choose_by_size(by, out);
    } else {
        choose_by_role(graph, s, out);
    }
    choose_beside(graph, s, out);
    if (!s->ignore)
        return;
    out->ignored = arena_alloc(by->arena, graph->param_count + 1);
    for (uint32_t p = 0; p < graph_own_params(graph); p++)
        out->ignored[p] = names_match(s->ignore, graph->params[p].name);
}

void choose_units(const struct graph *graph, const struct strategy *s, struct arena *arena,
                  struct wrapping *out, const char **borderless)
{
    struct by_size by = {.graph = graph, .strategy = s, .arena = arena};
    choose(&by, out);
    if (borderless)
        *borderless = by.borderless_count > 0 ? by.borderless[0] : NULL;
    free(by.borderless);
}

void choose_units_inside(struct graph *graph, const struct strategy *s, struct arena *arena,
                         struct wrapping *out)
{
    bool given = true;
    while (given) {
        struct by_size by = {.graph = graph, .strategy = s, .arena = arena};
        choose(&by, out);
        given = by.borderless_count > 0 &&
                graph_give_borders(graph, by.borderless, by.borderless_count) > 0;
        free(by.borderless);
    }
}

uint32_t unit_of_param(const struct graph *graph, const struct wrapping *wrapping, uint32_t param)
{
    const uint32_t module = graph->params[param].module;
    const uint32_t unit = module == GRAPH_NONE ? NONE : wrapping->of_module[module];
    return unit == NONE ? 0 : unit;
}

static const char *unit_name(struct lowering *low, const struct wrapping *w, uint32_t unit)
{
    struct arena *arena = &low->plan->arena;
    const char *name = NULL;
    if (unit == 0 || low->nameless)
        return "";
    for (uint32_t m = w->first_module[unit]; m <= w->last_module[unit]; m++)
        if (w->of_module[m] == unit)
            name = name ? arena_printf(arena, "%s, %s", name, low->graph->modules[m].name)
                        : arena_strdup(arena, low->graph->modules[m].name);
    return name;
}

/* Sorts the parameters by unit. */
static void fill_units(struct lowering *low, const uint32_t *order, const struct wrapping *w)
{
    struct plan *plan = low->plan;
    for (uint32_t p = 0; p < plan->param_count; p++) {
        plan->params[p].unit = is_ignored(w, p) ? w->units : unit_of_param(low->graph, w, p);
        plan->units[plan->params[p].unit].params++;
    }
    for (uint32_t u = 0, next = 0; u < plan->unit_count; u++) {
        plan->units[u].first_param = next;
        plan->units[u].name = u == w->units ? PLAN_UNIT_IGNORED : unit_name(low, w, u);
        next += plan->units[u].params;
        plan->units[u].params = 0;
    }
    for (uint32_t i = 0; i < plan->param_count; i++) {
        const uint32_t p = order ? order[i] : i;
        struct plan_unit *unit = &plan->units[plan->params[p].unit];
        plan->unit_params[unit->first_param + unit->params++] = p;
    }
}

void wrap_modules(struct lowering *low, const uint32_t *order, struct wrapping *out)
{
    struct plan *plan = low->plan;
    choose_units(low->graph, low->strategy, &low->scratch, out, NULL);
    plan->unit_count = out->units + (out->ignored ? 1 : 0);
    plan->units = arena_alloc(&plan->arena, plan->unit_count * sizeof *plan->units);
    plan->unit_params = arena_alloc(&plan->arena, plan->param_count * sizeof(uint32_t));
    fill_units(low, order, out);
}

uint32_t hooked_unit(const struct wrapping *wrapping, uint32_t module, bool first)
{
    if (module == MODULE_ROOT)
        return 0;
    const uint32_t unit = wrapping->of_module[module];
    if (unit == NONE)
        return NONE;
    return (first ? wrapping->first_module : wrapping->last_module)[unit] == module ? unit : NONE;
}

bool is_tail_unit(const struct lowering *low, const struct wrapping *wrapping, uint32_t unit)
{
    if (unit == 0 || low->strategy->units != UNITS_TORCHTITAN)
        return false;
    const enum module_role role = low->graph->modules[wrapping->last_module[unit]].role;
    return role == ROLE_HEAD || role == ROLE_NORM;
}

static bool is_called(const struct stream *stream, uint32_t module)
{
    for (uint32_t i = 0; i < stream->step_count; i++)
        if (stream->steps[i].kind == STEP_PRE_FORWARD && stream->steps[i].arg == module)
            return true;
    return false;
}

enum err_code check_called(const struct strategy *strategy, const struct graph *graph,
                           const struct stream *stream, struct err *err)
{
    struct arena arena = {0};
    struct wrapping w;
    enum err_code rc = ERR_OK;
    if (!loss_has_head(graph->cross_entropy))
        return ERR_OK;
    choose_units(graph, strategy, &arena, &w, NULL);
    for (uint32_t u = 1; u < w.units && rc == ERR_OK; u++)
        if (!is_called(stream, w.first_module[u]))
            rc = err_set(err, ERR_UNSUPPORTED,
                         "--loss %s reads the weight of %s, which is a unit of its own here and "
                         "is not called: that is not planned; --units blocks leaves it to the root",
                         cross_entropy_name(graph->cross_entropy),
                         graph->modules[w.first_module[u]].name);
    arena_free(&arena);
    return rc;
}

enum err_code check_scalars(const struct strategy *s, const struct graph *graph, struct err *err)
{
    for (uint32_t p = 0; p < graph->param_count; p++) {
        const struct graph_param *param = &graph->params[p];
        const bool ignored = s->ignore && names_match(s->ignore, param->name);
        if (param->shape.rank == 0 && !ignored)
            return err_set(err, ERR_INVALID,
                           "%s takes no scalar parameters, and %s is one: make it a tensor of one "
                           "dim with one element",
                           s->system == SYSTEM_FSDP1 ? "FullyShardedDataParallel" : "fully_shard",
                           param->name);
    }
    return ERR_OK;
}

/* ---- what is in no unit ---- */

enum err_code check_ignored(const struct strategy *s, const struct graph *graph, struct err *err)
{
    uint32_t ignored = 0;
    for (uint32_t p = 0; s->ignore && p < graph->param_count; p++)
        ignored += names_match(s->ignore, graph->params[p].name);
    if (!s->ignore)
        return ERR_OK;
    if (ignored == 0 || ignored == graph->param_count)
        return err_set(err, ERR_INVALID, "--ignore %s: %s; the first parameter is %s, the last %s",
                       s->ignore,
                       ignored ? "no parameter is left to shard" : "no parameter has such a name",
                       graph->params[0].name, graph->params[graph->param_count - 1].name);
    if (s->compute != s->store)
        return err_set(err, ERR_UNSUPPORTED,
                       "--ignore: what is ignored stays in --store-dtype, and operators of two "
                       "dtypes are not planned: --param-dtype same");
    if (s->max_norm > 0 && s->system == SYSTEM_FSDP2)
        return err_set(err, ERR_INVALID,
                       "--clip with --ignore: clip_grad_norm_ takes no DTensors together with "
                       "tensors");
    const char *option = s->max_norm > 0              ? "--clip"
                         : s->offload                 ? "--offload cpu"
                         : s->experts_replicate       ? "--experts-replicate"
                         : s->units == UNITS_ELEMENTS ? "--units by size"
                         : graph->float8              ? "--float8"
                                                      : NULL;
    return option ? err_set(err, ERR_UNSUPPORTED, "--ignore with %s is not planned", option)
                  : ERR_OK;
}

void declare_ignored(struct lowering *low, const struct wrapping *w)
{
    for (uint32_t p = 0; p < low->plan->param_count; p++)
        if (is_ignored(w, p))
            new_piece(low, p, PIECE_STORE,
                      new_resident(low, CATEGORY_PARAM, LANE_COMPUTE, ATEN_EMPTY,
                                   low->strategy->store, low->plan->params[p].shape),
                      0, (struct placement){.kind = PLACEMENT_WHOLE}, PLAN_NO_GROUP);
}

void place_ignored_gradients(struct lowering *low, const struct wrapping *w)
{
    for (uint32_t p = 0; p < low->plan->param_count; p++)
        if (is_ignored(w, p) && low->grad[p].place != NONE)
            set_gradient(low, p, low->grad[p].place, low->grad[p].offset, true);
}

void drop_gradient(struct lowering *low, uint32_t param)
{
    if (low->grad[param].place != NONE)
        emit_free(low, low->grad[param].place);
    low->grad[param] = no_operand();
}

uint32_t units_shared_table(const struct graph *graph, struct arena *arena)
{
    uint8_t *uses = arena_alloc(arena, 2 * (size_t)graph->param_count + 1);
    for (uint32_t i = 0; i < graph->op_count; i++) {
        const struct graph_op *op = &graph->ops[i];
        for (uint32_t in = 0; in < op->ins && !op->no_grad; in++) {
            if (op->in[in] == GRAPH_NONE)
                continue;
            const struct graph_storage *s = &graph->storages[graph->tensors[op->in[in]].storage];
            if (s->kind != STORAGE_PARAM)
                continue;
            uint8_t *of = uses + 2 * (size_t)s->index;
            of[0] = of[0] || op->kind == OP_EMBEDDING;
            of[1] = of[1] < 2 ? of[1] + 1 : 2;
            if (of[0] && of[1] == 2)
                return s->index;
        }
    }
    return NONE;
}
