/* frame_parts.c - see frame_parts.h. */
#include "graph/frame_parts.h"

#include "graph/calls.h"

#include <stdlib.h>
#include <string.h>

struct name { /* of a module: so many bytes */
    const char *text;
    size_t length;
};

struct spans {
    const struct graph *graph;
    const struct graph_calls *calls;
    struct name block;
    uint32_t first, end; /* items */
};

/* Whether it is `outer`, or of something within it. */
static bool is_within(struct name name, struct name outer)
{
    return name.length >= outer.length && strncmp(name.text, outer.text, outer.length) == 0 &&
           (name.length == outer.length || name.text[outer.length] == '.');
}

static struct name name_of(const char *text)
{
    return (struct name){text, strlen(text)};
}

/* The layer that has an adapter's unit: what its name says before. */
static struct name layer_of(const struct graph *graph, uint32_t module)
{
    const char *name = graph->modules[module].name, *own = strstr(name, ".lora_");
    return own ? (struct name){name, (size_t)(own - name)} : name_of(name);
}

/* The module around it; nothing where that is the block. */
static struct name around(const struct spans *spans, struct name name)
{
    do
        name.length--;
    while (name.text[name.length] != '.');
    if (name.length <= spans->block.length)
        name.length = 0;
    return name;
}

/* The call that an item is of: casts are of the one that they are for. */
static struct name call_of(const struct spans *spans, uint32_t item)
{
    const struct graph *graph = spans->graph;
    while (item < spans->end &&
           (graph->items[item].kind != ITEM_OP || graph->ops[graph->items[item].arg].of_autocast))
        item++;
    const uint32_t call =
        item < spans->end ? spans->calls->of_op[graph->items[item].arg] : GRAPH_NONE;
    return call == GRAPH_NONE ? (struct name){"", 0} : name_of(spans->calls->at[call].name);
}

typedef bool in_name(struct name name, struct name outer);

/* Whether it is an adapted layer, or what that calls: names of what is called beside it are made of
 * its weight's, and may lie within its own. */
static bool is_of_layer(struct name name, struct name layer)
{
    static const char own[] = ".lora_";
    return is_within(name, layer) && (name.length == layer.length ||
                                      strncmp(name.text + layer.length, own, sizeof own - 1) == 0);
}

/* From the first of a module's operators to behind the last; empty: it has none. */
static struct frame_part span_of(const struct spans *spans, struct name name, in_name *is_in)
{
    struct frame_part span = {0};
    for (uint32_t i = spans->first; i < spans->end; i++) {
        if (spans->graph->items[i].kind != ITEM_OP || !is_in(call_of(spans, i), name))
            continue;
        span.first = span.end ? span.first : i;
        span.end = i + 1;
    }
    return span;
}

/* Names go with what is before. */
static uint32_t behind_drops(const struct graph *graph, uint32_t item)
{
    while (graph->items[item].kind == ITEM_DROP)
        item++;
    return item;
}

static void mark(const struct graph *graph, struct frame_part span, bool *eager, bool *cuts)
{
    if (span.end == 0)
        return;
    for (uint32_t i = span.first; i < span.end && eager; i++)
        eager[i] = true;
    cuts[span.first] = true;
    cuts[behind_drops(graph, span.end)] = true;
}

/* Where the innermost function that was cut returns that has an item. */
static uint32_t frame_end(const struct spans *spans, uint32_t item)
{
    const struct graph *graph = spans->graph;
    struct name name = {"", 0};
    uint32_t end = spans->end;
    for (uint32_t m = 0; m < graph->module_count; m++) {
        if (graph->modules[m].role != ROLE_INNER ||
            !is_within(name_of(graph->modules[m].name), spans->block))
            continue;
        for (struct name outer = around(spans, layer_of(graph, m)); outer.length;
             outer = around(spans, outer)) {
            const struct frame_part span = span_of(spans, outer, is_within);
            if (item < span.first || item >= span.end || outer.length <= name.length)
                continue;
            name = outer;
            end = span.end;
        }
    }
    return behind_drops(graph, end);
}

bool frame_parts_any(const struct graph *graph, uint32_t block)
{
    for (uint32_t m = 0; m < graph->module_count; m++)
        if (graph->modules[m].role == ROLE_INNER &&
            is_within(name_of(graph->modules[m].name), name_of(graph->modules[block].name)))
            return true;
    return false;
}

static void find_cuts(const struct spans *spans, bool *eager, bool *cuts)
{
    const struct graph *graph = spans->graph;
    for (uint32_t m = 0; m < graph->module_count; m++) {
        if (graph->modules[m].role != ROLE_INNER ||
            !is_within(name_of(graph->modules[m].name), spans->block))
            continue;
        const struct name layer = layer_of(graph, m);
        mark(graph, span_of(spans, layer, is_of_layer), eager, cuts);
        for (struct name outer = around(spans, layer); outer.length; outer = around(spans, outer))
            mark(graph, span_of(spans, outer, is_within), NULL, cuts);
    }
}

/* Whether its results are its argument under other shapes. */
static bool is_view(const struct graph *graph, const struct graph_op *op)
{
    return op->outs == 0 ||
           (op->ins > 0 && op->in[0] != GRAPH_NONE &&
            graph->tensors[op->in[0]].storage == graph->tensors[op->out[0]].storage);
}

/* What is a view of an argument AOTAutograd makes outside of its graph, with a node of its own. */
static uint32_t behind_views(const struct graph *graph, struct frame_part part)
{
    while (part.first < part.end && (graph->items[part.first].kind != ITEM_OP ||
                                     is_view(graph, &graph->ops[graph->items[part.first].arg])))
        part.first++;
    return part.first;
}

static uint32_t without_views(const struct graph *graph, uint32_t count, struct frame_part *parts)
{
    uint32_t kept = 0;
    for (uint32_t p = 0; p < count; p++) {
        parts[p].first = behind_views(graph, parts[p]);
        if (parts[p].first < parts[p].end)
            parts[kept++] = parts[p];
    }
    return kept;
}

uint32_t frame_parts(const struct graph *graph, uint32_t block, uint32_t first, uint32_t end,
                     struct frame_part *out)
{
    struct graph_calls *calls = graph_calls_new(graph);
    const struct spans spans = {.graph = graph,
                                .calls = calls,
                                .block = name_of(graph->modules[block].name),
                                .first = first,
                                .end = end};
    bool *eager = xcalloc(graph->item_count + 1UL, sizeof *eager),
         *cuts = xcalloc(graph->item_count + 1UL, sizeof *cuts);
    uint32_t count = 0;
    bool begun = false;
    find_cuts(&spans, eager, cuts);
    for (uint32_t i = first; i < end; i++) {
        begun = begun && !cuts[i];
        if (graph->items[i].kind != ITEM_OP || eager[i])
            continue;
        if (!begun)
            out[count++] = (struct frame_part){.first = i, .frame_end = frame_end(&spans, i)};
        begun = true;
        out[count - 1].end = behind_drops(graph, i + 1);
    }
    free(eager);
    free(cuts);
    graph_calls_free(calls);
    return without_views(graph, count, out);
}
