/* build.c - see build.h. */
#include "model/build.h"

struct linear build_linear(struct graph *graph, const char *prefix, const char *name, uint32_t out,
                           uint32_t in, bool biased)
{
    struct linear linear = {.bias = GRAPH_NONE};
    linear.weight = graph_param(graph, SHAPE(out, in), "%s%s.weight", prefix, name);
    if (biased)
        linear.bias = graph_param(graph, SHAPE(out), "%s%s.bias", prefix, name);
    return linear;
}

struct norm build_norm(struct graph *graph, const char *prefix, const char *name, uint32_t h,
                       bool biased)
{
    struct norm norm = {.bias = GRAPH_NONE};
    norm.weight = graph_param(graph, SHAPE(h), "%s%s.weight", prefix, name);
    if (biased)
        norm.bias = graph_param(graph, SHAPE(h), "%s%s.bias", prefix, name);
    return norm;
}

uint32_t apply_linear(struct graph *graph, uint32_t x, struct linear linear)
{
    return op_linear(graph, x, linear.weight, linear.bias);
}

uint32_t apply_norm(struct graph *graph, uint32_t x, struct norm norm)
{
    return norm.bias == GRAPH_NONE ? op_rms_norm(graph, x, norm.weight)
                                   : op_layer_norm(graph, x, norm.weight, norm.bias);
}

void build_loss(struct graph *graph, uint32_t logits, uint32_t targets)
{
    const struct shape shape = graph->tensors[logits].shape;
    const uint32_t rows = (uint32_t)(shape_elements(&shape) / shape.dim[shape.rank - 1]);
    const uint32_t flat = graph_view(graph, logits, SHAPE(rows, shape.dim[shape.rank - 1]));
    const uint32_t upcast = op_to(graph, flat, DTYPE_FP32);
    const uint32_t log_probabilities = op_log_softmax(graph, upcast);
    graph->loss = op_nll_loss(graph, log_probabilities, targets);
    graph_drop(graph, log_probabilities);
    graph_drop(graph, upcast);
    if (upcast != flat)
        graph_drop(graph, logits);
    graph_mark(graph, MARK_LOSS);
}
