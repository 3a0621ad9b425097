/* graph_lists.c - what a graph has: counts, parameters in the order of modules, and who reads them
 * (graph.h). */
#include "graph/graph.h"

#include <string.h>

uint32_t graph_count_blocks(const struct graph *graph)
{
    uint32_t blocks = 0;
    for (uint32_t m = 0; m < graph->module_count; m++)
        blocks += graph->modules[m].role == ROLE_BLOCK;
    return blocks;
}

uint32_t graph_own_params(const struct graph *graph)
{
    return graph->beside.param == GRAPH_NONE ? graph->param_count : graph->beside.param;
}

uint32_t graph_own_modules(const struct graph *graph)
{
    return graph->beside.module == GRAPH_NONE ? graph->module_count : graph->beside.module;
}

/* Lists params [first, end), all inside the module whose path is the first `length` characters of
 * their names; returns the next free place of `order`. */
static uint32_t list_module(const struct graph *graph, uint32_t first, uint32_t end, size_t length,
                            uint32_t *order, uint32_t next)
{
    for (uint32_t i = first, stop; i < end; i = stop) {
        const char *name = graph->params[i].name, *dot = strchr(name + length, '.');
        stop = i + 1;
        if (!dot)
            continue;
        const size_t child = (size_t)(dot - name) + 1;
        while (stop < end && strncmp(graph->params[stop].name, name, child) == 0)
            stop++;
        next = list_module(graph, i, stop, child, order, next);
    }
    for (uint32_t i = first; i < end; i++)
        if (!strchr(graph->params[i].name + length, '.'))
            order[next++] = i;
    return next;
}

void graph_list_groups(struct graph *graph)
{
    uint32_t *order = arena_alloc(&graph->arena, (graph->param_count + 1) * sizeof *order);
    list_module(graph, 0, graph->param_count, 0, order, 0);
    graph->group_order = order;
}

uint64_t graph_parameter_elements(const struct graph *graph)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < graph_own_params(graph); i++)
        elements += shape_elements(graph->params[i].whole.rank ? &graph->params[i].whole
                                                               : &graph->params[i].shape);
    return elements;
}

/* ---- who reads a parameter besides the module that it is of ---- */

/* A parameter as it is declared; NULL: it is declared again, and known. */
static struct graph_param *declared(struct graph *graph, uint32_t tensor)
{
    const bool repeated = graph->again.on && !graph->again.other;
    return repeated ? NULL : &graph->params[graph->storages[graph->tensors[tensor].storage].index];
}

void graph_read_around(struct graph *graph, uint32_t tensor)
{
    struct graph_param *param = declared(graph, tensor);
    if (param)
        param->read_around = true;
}

void graph_read_by_outer(struct graph *graph, uint32_t tensor)
{
    struct graph_param *param = declared(graph, tensor);
    if (param)
        param->read_by_outer = true;
}

void graph_read_by_model(struct graph *graph, uint32_t tensor)
{
    struct graph_param *param = declared(graph, tensor);
    if (param)
        param->read_by_model = true;
    graph->ops[graph->op_count - 1].of_model = true;
}
