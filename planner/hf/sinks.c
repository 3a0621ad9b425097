/* sinks.c - eager attention with sinks (hf.h), as GPT-OSS has it: transformers has no other that is
 * PyTorch's own. The scores (b, a, s, s) are there, several times. */
#include "hf/hf.h"

#include <math.h>

/* q kᵀ / sqrt(d), masked, and the sinks beside it, less each row's largest: (b, a, s, s + 1). */
static uint32_t make_logits(struct graph *graph, const struct hf_sinks *a, uint32_t k,
                            uint32_t *scores)
{
    const struct shape shape = graph->tensors[a->q].shape;
    const uint32_t b = shape.dim[0], s = shape.dim[1], heads = shape.dim[2], d = shape.dim[3];
    const uint32_t product =
        op_bmm(graph, graph_view(graph, graph_transpose(graph, a->q, 1, 2), SHAPE(b * heads, s, d)),
               graph_transpose(graph, graph_view(graph, k, SHAPE(b * heads, s, d)), 1, 2));
    const uint32_t scaled =
        op_scalar(graph, OP_MUL_SCALAR, graph_view(graph, product, SHAPE(b, heads, s, s)),
                  1 / sqrtf((float)d));
    graph_drop(graph, product);
    *scores = op_add(graph, scaled, a->mask);
    graph_drop(graph, scaled);
    const uint32_t sinks =
        op_expand(graph, graph_view(graph, a->sinks, SHAPE(1, heads, 1, 1)), SHAPE(b, heads, s, 1));
    const uint32_t combined = op_cat_last(graph, *scores, sinks);
    const uint32_t largest = op_max_last(graph, combined);
    const uint32_t logits = op_sub(graph, combined, largest);
    graph_drop(graph, largest);
    graph_drop(graph, combined);
    return logits;
}

uint32_t hf_sink_attention(struct graph *graph, const struct hf_sinks *a, uint32_t *weights)
{
    const struct shape shape = graph->tensors[a->q].shape;
    const uint32_t b = shape.dim[0], s = shape.dim[1], heads = shape.dim[2], d = shape.dim[3];
    const uint32_t k = hf_repeat_heads(graph, a->k, heads), v = hf_repeat_heads(graph, a->v, heads);
    uint32_t scores;
    const uint32_t logits = make_logits(graph, a, k, &scores);
    const uint32_t p = op_softmax_as_is(graph, logits);
    const uint32_t cut = op_slice_last(graph, p, 0, s); /* Python's, as p, until this returns */
    const uint32_t kept = op_dropout(graph, cut, a->dropout);
    *weights = op_to(graph, kept, (enum dtype)graph->tensors[v].dtype);
    if (kept != cut && kept != *weights)
        graph_drop(graph, kept);
    graph_drop(graph, scores);
    const uint32_t mixed = op_bmm(graph, graph_view(graph, *weights, SHAPE(b * heads, s, s)),
                                  graph_view(graph, v, SHAPE(b * heads, s, d)));
    /* of one sequence (b, s, a, d) can be viewed as the product's gradient */
    const struct shape in_heads = SHAPE(b, heads, s, d);
    const uint32_t split =
        b > 1 ? op_view_copied(graph, mixed, in_heads) : graph_view(graph, mixed, in_heads);
    const uint32_t out = op_unary(graph, OP_CLONE, graph_transpose(graph, split, 1, 2));
    graph_drop(graph, mixed);
    graph_drop(graph, k);
    graph_drop(graph, v);
    graph_drop(graph, logits);
    if (graph->tensors[*weights].storage != graph->tensors[p].storage)
        graph_drop(graph, p);
    return graph_view(graph, out, SHAPE(b, s, heads * d));
}
