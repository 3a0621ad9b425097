/* eager.c - attention as Hugging Face's models write it in Python, for those that have what no
 * kernel has (hf.h). Shapes as in attention.c. */
#include "hf/hf.h"

#include <math.h>

uint32_t hf_eager_mask(struct graph *graph, const struct model_job *job, uint32_t mask)
{
    const struct shape scalar = {.rank = 0}, shape = graph->tensors[mask].shape;
    const enum dtype dtype = graph->compute;
    const uint32_t zero = op_fill(graph, ATEN_ZEROS, dtype, scalar, 0.0F);
    const uint32_t least = op_fill(graph, ATEN_SCALAR_TENSOR, dtype, scalar, hf_least(dtype));
    const uint32_t added = op_no_grad(graph, WORK_WHERE, ATEN_WHERE, dtype,
                                      SHAPE(job->batch, 1, shape.dim[2], shape.dim[3]), 3,
                                      (uint32_t[]){mask, zero, least});
    graph_drop(graph, least);
    graph_drop(graph, zero);
    graph_drop(graph, mask);
    return added;
}

uint32_t hf_softcap(struct graph *graph, uint32_t x, float cap)
{
    const uint32_t shrunk = op_scalar(graph, OP_DIV_SCALAR, x, cap);
    graph_drop(graph, x);
    const uint32_t bounded = op_unary(graph, OP_TANH, shrunk);
    graph_drop(graph, shrunk);
    const uint32_t out = op_scalar(graph, OP_MUL_SCALAR, bounded, cap);
    graph_drop(graph, bounded);
    return out;
}

/* softmax(q kᵀ · scale, capped, masked), in fp32 and back. */
static uint32_t weigh(struct graph *graph, const struct hf_attention *a, uint32_t q, uint32_t k,
                      float softcap)
{
    const uint32_t d = graph->tensors[q].shape.dim[3]; /* (b, a, s, d) */
    const uint32_t product = op_matmul(graph, q, graph_transpose(graph, k, 2, 3));
    const float scale = a->scale > 0 ? a->scale : 1 / sqrtf((float)d);
    uint32_t scores = op_scalar(graph, OP_MUL_SCALAR, product, scale);
    graph_drop(graph, product);
    if (softcap > 0)
        scores = hf_softcap(graph, scores, softcap);
    const uint32_t masked = op_add(graph, scores, a->mask);
    graph_drop(graph, scores);
    const uint32_t upcast = op_to(graph, masked, DTYPE_FP32);
    const uint32_t wide = op_softmax(graph, upcast);
    if (upcast != masked)
        graph_drop(graph, upcast);
    const uint32_t weights = op_to(graph, wide, (enum dtype)graph->tensors[a->q].dtype);
    if (weights != wide)
        graph_drop(graph, wide);
    graph_drop(graph, masked);
    return hf_dropout(graph, weights, a->dropout);
}

uint32_t hf_eager_attention(struct graph *graph, const struct hf_attention *a, float softcap,
                            uint32_t *weights)
{
    const struct shape s = graph->tensors[a->q].shape; /* (b, s, a, d) */
    const uint32_t b = s.dim[0], n = s.dim[1], heads = s.dim[2], d = s.dim[3];
    const uint32_t k = hf_repeat_heads(graph, a->k, heads), v = hf_repeat_heads(graph, a->v, heads);
    *weights = weigh(graph, a, graph_transpose(graph, a->q, 1, 2), k, softcap);
    const uint32_t mixed = op_matmul(graph, *weights, v);
    const uint32_t turned = graph_transpose(graph, mixed, 1, 2);
    uint32_t out = turned;
    if (heads > 1 && n > 1) { /* contiguous() */
        out = op_unary(graph, OP_CLONE, turned);
        graph_drop(graph, mixed);
    }
    if (graph->tensors[k].storage != graph->tensors[a->k].storage) { /* one head is a view */
        graph_drop(graph, k);
        graph_drop(graph, v);
    }
    return graph_view(graph, out, SHAPE(b, n, heads * d));
}
