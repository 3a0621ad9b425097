/* borders.c - see borders.h. */
#include "graph/borders.h"

#include "graph/calls.h"

#include <stdlib.h>
#include <string.h>

struct span { /* of items; `end` is behind the last */
    const char *name;
    uint32_t first, end;
    const bool *inside; /* (calls) whether one is the module's, or of a module in it */
    const bool *born;   /* (storages) within it */
    uint32_t output;
};

/* Whether `name` is `outer`, or of something within it. */
static bool is_within(const char *name, const char *outer)
{
    const size_t length = strlen(outer);
    return strncmp(name, outer, length) == 0 && (name[length] == '\0' || name[length] == '.');
}

/* The call that an item's operator is of: autocast's casts are of the one that they are for. */
static uint32_t call_of(const struct graph *graph, const struct graph_calls *calls, uint32_t item)
{
    while (item < graph->item_count && graph->items[item].kind == ITEM_OP &&
           graph->ops[graph->items[item].arg].of_autocast)
        item++;
    const bool op = item < graph->item_count && graph->items[item].kind == ITEM_OP;
    return op ? calls->of_op[graph->items[item].arg] : GRAPH_NONE;
}

/* Operators from the first to the last that are the module's, or of modules in it. */
static bool find_ops(const struct graph *graph, const struct graph_calls *calls, struct span *span)
{
    span->first = span->end = GRAPH_NONE;
    for (uint32_t i = 0; i < graph->item_count; i++) {
        const struct graph_item item = graph->items[i];
        const uint32_t call = item.kind == ITEM_OP ? call_of(graph, calls, i) : GRAPH_NONE;
        if (call == GRAPH_NONE || !span->inside[call])
            continue;
        span->first = span->first == GRAPH_NONE ? i : span->first;
        span->end = i + 1;
        span->output = graph->ops[item.arg].out[0];
    }
    return span->first != GRAPH_NONE;
}

static void mark_born(const struct graph *graph, const struct span *span, bool *born)
{
    for (uint32_t i = span->first; i < span->end; i++) {
        const struct graph_op *op = &graph->ops[graph->items[i].arg];
        for (uint32_t o = 0; graph->items[i].kind == ITEM_OP && o < op->outs; o++)
            born[graph->tensors[op->out[o]].storage] = true;
    }
}

/* What goes with the module's frame: modules in it return, and its own tensors die. What it was
 * called with is its caller's. */
static bool goes_with(const struct graph *graph, const struct span *span, struct graph_item item)
{
    const struct graph_tensor *t = &graph->tensors[item.arg];
    if (item.kind == ITEM_MARK)
        return item.arg == MARK_FRAME_END;
    if (item.kind == ITEM_EXIT)
        return is_within(graph->modules[item.arg].name, span->name);
    return item.kind == ITEM_DROP && span->born[t->storage] &&
           t->storage != graph->tensors[span->output].storage;
}

static void widen(const struct graph *graph, struct span *span)
{
    while (span->first > 0 && graph->items[span->first - 1].kind == ITEM_ENTER &&
           is_within(graph->modules[graph->items[span->first - 1].arg].name, span->name))
        span->first--;
    while (span->end < graph->item_count && goes_with(graph, span, graph->items[span->end]))
        span->end++;
}

/* Whether modules that are entered in it are left in it, and no others. */
static bool is_balanced(const struct graph *graph, const struct span *span)
{
    uint32_t depth = 0;
    for (uint32_t i = span->first; i < span->end; i++) {
        if (graph->items[i].kind == ITEM_EXIT && depth-- == 0)
            return false;
        depth += graph->items[i].kind == ITEM_ENTER;
    }
    return depth == 0;
}

/* Activations of before that operators in it take. */
static void find_inputs(struct graph *graph, const struct span *span, uint32_t module)
{
    for (uint32_t i = span->first; i < span->end; i++) {
        const struct graph_op *op = &graph->ops[graph->items[i].arg];
        for (uint32_t in = 0; graph->items[i].kind == ITEM_OP && in < op->ins; in++) {
            if (op->in[in] == GRAPH_NONE)
                continue;
            const uint32_t storage = graph->tensors[op->in[in]].storage;
            if (graph->storages[storage].kind == STORAGE_ACTIVATION && !span->born[storage])
                graph_also_input(graph, module, op->in[in]);
        }
    }
}

static void take_params(struct graph *graph, uint32_t module)
{
    const char *name = graph->modules[module].name;
    for (uint32_t p = 0; p < graph->param_count; p++) {
        struct graph_param *param = &graph->params[p];
        const bool further =
            param->module != GRAPH_NONE && is_within(graph->modules[param->module].name, name);
        if (is_within(param->name, name) && !further)
            param->module = module;
    }
}

static void put_items(struct graph *graph, const struct span *span, uint32_t module)
{
    const uint32_t count = graph->item_count;
    graph->item_cap = count + 2;
    struct graph_item *items = xmalloc(graph->item_cap * sizeof *items), *next = items;
    for (uint32_t i = 0; i <= count; i++) {
        if (i == span->end || i == span->first)
            *next++ = (struct graph_item){.kind = i == span->first ? ITEM_ENTER : ITEM_EXIT,
                                          .arg = module & 0xfffffff};
        if (i < count)
            *next++ = graph->items[i];
    }
    free(graph->items);
    graph->items = items;
    graph->item_count = count + 2;
}

static bool give(struct graph *graph, const struct graph_calls *calls, const char *name)
{
    bool *born = xcalloc(graph->storage_count + 1, sizeof *born);
    bool *inside = xcalloc(calls->count + 1, sizeof *inside);
    struct span span = {.name = name, .inside = inside, .born = born};
    for (uint32_t c = 0; c < calls->count; c++)
        inside[c] = is_within(calls->at[c].name, name);
    bool given = find_ops(graph, calls, &span);
    if (given) {
        mark_born(graph, &span, born);
        widen(graph, &span);
        given = is_balanced(graph, &span);
    }
    if (given) {
        const uint32_t module = graph_module(graph, ROLE_INNER, "%s", name);
        graph->current_module = GRAPH_NONE;
        graph->modules[module].output = span.output;
        find_inputs(graph, &span, module);
        take_params(graph, module);
        put_items(graph, &span, module);
    }
    free(inside);
    free(born);
    return given;
}

uint32_t graph_give_borders(struct graph *graph, const char *const *names, uint32_t count)
{
    struct graph_calls *calls = graph_calls_new(graph); /* of names alone, which stay as they are */
    uint32_t given = 0;
    while (given < count && give(graph, calls, names[given]))
        given++;
    graph_calls_free(calls);
    return given;
}
