/* units.c - see units.h. */
#include "lower/units.h"

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

/* Blocks are taken together until a unit is full; torchtitan's tail is one unit. */
static void choose_units(const struct lowering *low, struct wrapping *w)
{
    const struct graph *graph = low->graph;
    const struct strategy *s = low->strategy;
    const bool titan = s->units == UNITS_TORCHTITAN;
    const bool tied = titan && shares_embedding(graph);
    uint32_t open = NONE, tail = NONE, blocks = 0;
    uint64_t bytes = 0;
    new_unit(w, MODULE_ROOT);
    for (uint32_t m = 0; m < graph->module_count; m++) {
        const enum module_role role = graph->modules[m].role;
        uint32_t unit = NONE;
        if (role == ROLE_BLOCK) {
            const uint64_t more = s->units == UNITS_BYTES ? module_bytes(graph, m, s->store) : 0;
            const bool full =
                s->units == UNITS_BYTES ? bytes + more > s->unit_bytes : blocks == s->per_unit;
            if (open == NONE || full) {
                open = new_unit(w, m);
                blocks = 0;
                bytes = 0;
            }
            unit = open;
            blocks++;
            bytes += more;
        } else if (titan && role == ROLE_EMBEDDING && !tied) {
            unit = new_unit(w, m);
        } else if (titan && (role == ROLE_EMBEDDING || role == ROLE_NORM || role == ROLE_HEAD)) {
            unit = tail = tail == NONE ? new_unit(w, m) : tail;
        }
        w->of_module[m] = unit;
        if (unit != NONE)
            w->last_module[unit] = m;
    }
}

static const char *unit_name(struct lowering *low, const struct wrapping *w, uint32_t unit)
{
    struct arena *arena = &low->plan->arena;
    const char *name = NULL;
    if (unit == 0)
        return "";
    for (uint32_t m = w->first_module[unit]; m <= w->last_module[unit]; m++)
        if (w->of_module[m] == unit)
            name = name ? arena_printf(arena, "%s, %s", name, low->graph->modules[m].name)
                        : arena_strdup(arena, low->graph->modules[m].name);
    return name;
}

/* Sorts the parameters by unit, in fully_shard's order. */
static void fill_units(struct lowering *low, const struct wrapping *w)
{
    struct plan *plan = low->plan;
    const struct graph *graph = low->graph;
    for (uint32_t p = 0; p < plan->param_count; p++) {
        const uint32_t module = graph->params[p].module;
        const uint32_t unit = module == GRAPH_NONE ? NONE : w->of_module[module];
        plan->params[p].unit = unit == NONE ? 0 : unit;
        plan->units[plan->params[p].unit].params++;
    }
    for (uint32_t u = 0, next = 0; u < w->units; u++) {
        plan->units[u].first_param = next;
        plan->units[u].name = unit_name(low, w, u);
        next += plan->units[u].params;
        plan->units[u].params = 0;
    }
    for (uint32_t i = 0; i < plan->param_count; i++) {
        const uint32_t p = graph->group_order ? graph->group_order[i] : i;
        struct plan_unit *unit = &plan->units[plan->params[p].unit];
        plan->unit_params[unit->first_param + unit->params++] = p;
    }
}

void wrap_modules(struct lowering *low, struct wrapping *out)
{
    struct plan *plan = low->plan;
    *out = (struct wrapping){
        .of_module = none_array(low, low->graph->module_count),
        .first_module = none_array(low, low->graph->module_count + 1),
        .last_module = none_array(low, low->graph->module_count + 1),
    };
    choose_units(low, out);
    plan->unit_count = out->units;
    plan->units = arena_alloc(&plan->arena, out->units * sizeof *plan->units);
    plan->unit_params = arena_alloc(&plan->arena, plan->param_count * sizeof(uint32_t));
    fill_units(low, out);
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
