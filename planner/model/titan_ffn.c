/* titan_ffn.c - torchtitan's feed-forward, and how it draws weights (titan.h). */
#include "model/titan.h"

#include <math.h>

struct param_init titan_drawn(double std)
{
    return init_normal(std, 2);
}

struct param_init titan_drawn_last(uint32_t index)
{
    return titan_drawn(0.02 / sqrt(2.0 * (index + 1)));
}

struct titan_ffn titan_ffn_declare(struct graph *graph, const char *prefix, uint32_t hidden,
                                   uint32_t width, bool biased, struct param_init last)
{
    const struct titan_ffn ffn = {
        .w1 = build_linear(graph, prefix, "w1", width, hidden, biased),
        .w2 = build_linear(graph, prefix, "w2", hidden, width, biased),
        .w3 = build_linear(graph, prefix, "w3", width, hidden, biased),
    };
    graph_init_param(graph, ffn.w2.weight, last);
    graph_init_param(graph, ffn.w3.weight, last);
    return ffn;
}

uint32_t titan_ffn(struct graph *graph, const char *activation, const struct titan_ffn *ffn,
                   uint32_t y)
{
    const uint32_t gate = apply_linear(graph, y, ffn->w1);
    const uint32_t active = apply_activation(graph, activation, gate);
    graph_drop(graph, gate);
    const uint32_t up = apply_linear(graph, y, ffn->w3);
    const uint32_t product = op_mul(graph, active, up);
    graph_drop(graph, active);
    graph_drop(graph, up);
    const uint32_t out = apply_linear(graph, product, ffn->w2);
    graph_drop(graph, product);
    return out;
}
