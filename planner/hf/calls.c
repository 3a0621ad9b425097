/* calls.c - where modules of transformers' code are called (hf.h). */
#include "hf/hf.h"

#include <string.h>

/* The length of a name without its last `parts` parts. */
static size_t outer_length(const char *name, uint32_t parts)
{
    size_t length = strlen(name);
    for (uint32_t i = 0; i < parts; i++) {
        while (length > 0 && name[length - 1] != '.')
            length--;
        length -= length > 0;
    }
    return length;
}

static const char *name_of(const struct graph *graph, uint32_t param)
{
    return graph->params[graph->storages[graph->tensors[param].storage].index].name;
}

/* The length of the name of what a parameter's module is in: of one with an adapter, what the layer
 * is in that has both. */
static size_t around_length(const char *name)
{
    static const char base[] = ".base_layer";
    const size_t own = outer_length(name, 1), tail = sizeof base - 1;
    const bool adapted = own > tail && strncmp(name + own - tail, base, tail) == 0;
    return outer_length(name, adapted ? 3 : 2);
}

void hf_call(struct graph *graph, uint32_t param)
{
    const char *name = name_of(graph, param);
    graph_call_begin(graph, "%.*s", (int)outer_length(name, 1), name);
}

void hf_call_outer(struct graph *graph, uint32_t param)
{
    const char *name = name_of(graph, param);
    graph_call_begin(graph, "%.*s", (int)around_length(name), name);
}

void hf_call_beside(struct graph *graph, uint32_t param, const char *module)
{
    const char *name = name_of(graph, param);
    graph_call_begin(graph, "%.*s.%s", (int)around_length(name), name, module);
}

uint32_t hf_activation_beside(struct graph *graph, const char *name, uint32_t x, uint32_t param,
                              const char *module)
{
    hf_call_beside(graph, param, module);
    const uint32_t active = hf_activation(graph, name, x);
    graph_call_end(graph);
    return active;
}

uint32_t hf_activation_within(struct graph *graph, const char *name, uint32_t x, const char *module)
{
    graph_call_begin(graph, "%s.%s", graph->calling[graph->calling_depth - 1], module);
    const uint32_t active = hf_activation(graph, name, x);
    graph_call_end(graph);
    return active;
}

uint32_t hf_dropout_beside(struct graph *graph, uint32_t x, float p, uint32_t param,
                           const char *module)
{
    hf_call_beside(graph, param, module);
    const uint32_t out = p > 0 ? hf_dropout(graph, x, p) : op_called_alone(graph, x);
    graph_call_end(graph);
    return out;
}
