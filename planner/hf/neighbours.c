/* neighbours.c - RoPE that turns whole heads by pairs of neighbours (hf.h). */
#include "hf/hf.h"

/* A table (1, s, d) as it is broadcast over heads. */
static uint32_t over_heads(struct graph *graph, uint32_t table, uint32_t x)
{
    const struct shape shape = graph->tensors[x].shape; /* (b, a, s, d) */
    return graph_view(graph, table, SHAPE(1, 1, shape.dim[2], shape.dim[3]));
}

/* x in fp32 times a table; the cast is gone behind it. */
static uint32_t wide_product(struct graph *graph, uint32_t x, uint32_t table)
{
    const uint32_t wide = op_to(graph, x, DTYPE_FP32);
    const uint32_t product = op_mul(graph, wide, over_heads(graph, table, x));
    if (wide != x)
        graph_drop(graph, wide);
    return product;
}

/* (-odd, even) of x, in turn */
static uint32_t rotate_half(struct graph *graph, uint32_t x)
{
    const uint32_t even = op_stride_last(graph, x, 0, 2);
    const uint32_t odd = op_stride_last(graph, x, 1, 2);
    const uint32_t minus = op_unary(graph, OP_NEG, odd);
    const uint32_t turned = op_interleave(graph, minus, even);
    graph_drop(graph, minus);
    return turned;
}

static uint32_t turned_wide(struct graph *graph, uint32_t x, struct hf_rope rope)
{
    const uint32_t straight = wide_product(graph, x, rope.cos);
    const uint32_t turned = rotate_half(graph, x);
    const uint32_t wide = op_to(graph, turned, DTYPE_FP32);
    if (wide != turned)
        graph_drop(graph, turned);
    const uint32_t crossed = op_mul(graph, wide, over_heads(graph, rope.sin, x));
    graph_drop(graph, wide);
    const uint32_t out = op_add(graph, straight, crossed);
    graph_drop(graph, straight);
    graph_drop(graph, crossed);
    return out;
}

/* Both in another dtype again; what they were is let go when both are. */
static void cast_back(struct graph *graph, enum dtype dtype, const uint32_t before[2],
                      const uint32_t wide[2], uint32_t qk[2])
{
    for (int i = 0; i < 2; i++)
        qk[i] = op_to(graph, wide[i], dtype);
    for (int i = 0; i < 2; i++)
        if (before[i] != GRAPH_NONE)
            graph_drop(graph, before[i]);
    for (int i = 0; i < 2; i++)
        if (qk[i] != wide[i])
            graph_drop(graph, wide[i]);
}

void hf_turn_neighbours(struct graph *graph, struct hf_rope rope, uint32_t qk[2])
{
    const struct hf_rope pairs = hf_rope_interleaved(graph, rope);
    for (int i = 0; i < 2; i++)
        qk[i] = hf_rotate_pairs(graph, qk[i], pairs);
    graph_drop(graph, pairs.cos);
    graph_drop(graph, pairs.sin);
}

void hf_turn_neighbours_wide(struct graph *graph, struct hf_rope rope, uint32_t qk[2])
{
    const enum dtype dtype = (enum dtype)graph->tensors[qk[0]].dtype;
    const struct hf_rope pairs = hf_rope_interleaved(graph, rope);
    uint32_t wide[2];
    for (int i = 0; i < 2; i++)
        wide[i] = turned_wide(graph, qk[i], pairs);
    cast_back(graph, dtype, (uint32_t[]){pairs.cos, pairs.sin}, wide, qk);
}

void hf_turn_neighbours_cast(struct graph *graph, struct hf_rope rope, uint32_t qk[2])
{
    const enum dtype dtype = (enum dtype)graph->tensors[qk[0]].dtype;
    uint32_t upcast[2], cast[2], turned[2];
    for (int i = 0; i < 2; i++) {
        upcast[i] = op_to(graph, qk[i], DTYPE_FP32);
        cast[i] = upcast[i] == qk[i] ? GRAPH_NONE : upcast[i];
    }
    for (int i = 0; i < 2; i++)
        turned[i] = hf_rotate_pairs(graph, upcast[i], rope);
    cast_back(graph, dtype, cast, turned, qk);
}
