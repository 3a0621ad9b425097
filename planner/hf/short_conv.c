/* short_conv.c - see short_conv.h. */
#include "hf/short_conv.h"

#include "model/count.h"

double hf_short_conv_count(const struct model_config *c)
{
    const double h = c->hidden;
    return count_linear(3 * h, h, c->conv_bias) + count_linear(h, h, c->conv_bias) +
           count_linear(h, c->conv_width, c->conv_bias);
}

struct hf_short_conv hf_short_conv_declare(struct graph *graph, const struct model_config *c,
                                           const char *prefix)
{
    const uint32_t h = c->hidden;
    struct hf_short_conv conv;
    conv.conv = build_short_filter(graph, prefix, "conv", h, c->conv_width, c->conv_bias);
    conv.in = build_linear(graph, prefix, "in_proj", 3 * h, h, c->conv_bias);
    conv.out = build_linear(graph, prefix, "out_proj", h, h, c->conv_bias);
    return conv;
}

/* x · y as PyTorch sees them, (b, h, s). */
static uint32_t product_across(struct graph *graph, uint32_t x, uint32_t y)
{
    const uint32_t product =
        op_mul(graph, graph_transpose(graph, x, 1, 2), graph_transpose(graph, y, 1, 2));
    return graph_transpose(graph, product, 1, 2);
}

uint32_t hf_short_conv(struct graph *graph, const struct hf_short_conv *conv, uint32_t given)
{
    uint32_t part[3];
    const uint32_t y = hf_unpadded(graph, given);
    hf_call_outer(graph, conv->out.weight);
    const uint32_t projected = apply_linear(graph, y, conv->in);
    if (graph->bits4.kind != BITS4_NOT)
        op_4bit_across(graph, conv->in.weight);
    op_chunk_across(graph, op_reshape(graph, projected, graph->tensors[projected].shape), 3, part);
    const uint32_t gated = product_across(graph, part[0], part[2]);
    hf_drop_unpadded(graph, given, y); /* which it takes the name of */
    const uint32_t mixed = op_causal_conv(graph, gated, conv->conv.weight, conv->conv.bias, false);
    graph_drop(graph, gated);
    const uint32_t product = product_across(graph, part[1], mixed);
    const uint32_t out = apply_linear(graph, product, conv->out);
    graph_drop(graph, product);
    graph_drop(graph, mixed);
    graph_drop(graph, projected);
    graph_call_end(graph);
    return out;
}
