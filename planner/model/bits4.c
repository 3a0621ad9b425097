/* bits4.c - see bits4.h. */
#include "model/bits4.h"

#include "graph/ops.h"

#include <stdio.h>

/* FalconLinear is a class of its own, which replace_with_bnb_linear leaves as it is, and kernels of
 * Mamba-2 read a weight as it is stored. Experts and routers are parameters of their modules, which
 * stay what they are. */
const char *bits4_unplanned(const struct model_config *config)
{
    return config->recording             ? "a recorded model"
           : config->arch == ARCH_FALCON ? "falcon"
           : model_has_mamba(config)     ? "Mamba-2"
                                         : NULL;
}

/* Of a whole model: what get_modules_to_not_convert leaves alone is the head. */
bool bits4_wants(const struct graph *graph)
{
    const uint32_t module = graph->current_module;
    return graph->bits4.kind != BITS4_NOT &&
           (module == GRAPH_NONE || graph->modules[module].role != ROLE_HEAD);
}

uint32_t bits4_declare(struct graph *graph, const char *prefix, const char *name, uint32_t out,
                       uint32_t in, bool biased, uint32_t *bias)
{
    char path[160];
    snprintf(path, sizeof path, "%s%s.weight", prefix, name);
    const uint32_t weight = graph_packed(graph, out, in, path);
    *bias = GRAPH_NONE;
    if (biased) {
        *bias = graph_param(graph, PARAM_BIAS, SHAPE(out), "%s%s.bias", prefix, name);
        graph_own_dtype(graph, *bias, graph->bits4.compute);
    }
    return weight;
}

bool bits4_is(const struct graph *graph, uint32_t weight)
{
    const struct graph_param *param = graph_param_of(graph, weight);
    return param && param->whole.rank > 0;
}

uint32_t bits4_apply(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias)
{
    const enum dtype dtype = (enum dtype)graph->tensors[x].dtype;
    const uint32_t cast = op_to(graph, x, graph->bits4.compute);
    const uint32_t y = op_linear_4bit(graph, cast, weight, bias);
    const uint32_t out = op_to(graph, y, dtype);
    if (out != y)
        graph_drop(graph, y);
    if (cast != x)
        graph_drop(graph, cast);
    return out;
}
