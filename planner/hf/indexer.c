/* indexer.c - see indexer.h. */
#include "hf/indexer.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#define KEY_EPS 1e-6F /* the norm's own */

struct hf_indexer hf_indexer_declare(struct graph *graph, const struct model_config *c,
                                     const char *prefix)
{
    const uint32_t a = c->index_heads, d = c->index_dim;
    char own[128];
    snprintf(own, sizeof own, "%sindexer.", prefix);
    struct hf_indexer indexer = {.q = build_linear(graph, own, "wq_b", a * d, c->q_lora, false)};
    indexer.k = build_linear(graph, own, "wk", d, c->hidden, false);
    indexer.k_norm = build_norm(graph, own, "k_norm", d, true, KEY_EPS);
    indexer.weights = build_linear(graph, own, "weights_proj", a, c->hidden, false);
    graph_read_by_outer(graph, indexer.weights.weight); /* its dtype */
    return indexer;
}

/* The first numbers of heads q and k (b, s, a or 1, d) turned, which RoPE turns by token: what
 * Python keeps of that goes to turned[2], what is joined takes the place of q and k. */
static void turn(struct graph *graph, const struct model_config *c, const struct hf_indexed *of,
                 uint32_t qk[2], uint32_t turned[2])
{
    uint32_t part[2][2];
    struct hf_rope rope = of->rope;
    rope.by_token = true;
    if (of->neighbours) { /* each angle is there twice: the first half of both tables */
        rope.cos = op_slice_last(graph, rope.cos, 0, c->rotary_dim / 2);
        rope.sin = op_slice_last(graph, rope.sin, 0, c->rotary_dim / 2);
    }
    for (int i = 0; i < 2; i++)
        op_split(graph, qk[i], c->rotary_dim, part[i]);
    for (int i = 0; i < 2; i++)
        turned[i] = of->neighbours
                        ? hf_rotate_pair(graph, op_stride_last(graph, part[i][0], 0, 2),
                                         op_stride_last(graph, part[i][0], 1, 2), rope, true)
                        : hf_rotate(graph, part[i][0], rope);
    for (int i = 0; i < 2; i++)
        qk[i] = op_cat_last(graph, turned[i], part[i][1]);
}

/* x in fp32; x itself, where it is. */
static uint32_t wide(struct graph *graph, uint32_t x)
{
    return op_to(graph, x, DTYPE_FP32);
}

static void drop_wide(struct graph *graph, uint32_t x, uint32_t of)
{
    if (graph->tensors[x].storage != graph->tensors[of].storage)
        graph_drop(graph, x);
}

/* relu(q · kᵀ / root of d): q (b, s, a, d), k (b, s, 1, d): (b, s, a, s). */
static uint32_t head_scores(struct graph *graph, const struct model_config *c, uint32_t q,
                            uint32_t k)
{
    const struct shape s = graph->tensors[q].shape;
    const uint32_t flat = graph_view(graph, k, SHAPE(s.dim[0], s.dim[1], s.dim[3]));
    const uint32_t wide_q = wide(graph, q),
                   wide_k = wide(graph, graph_transpose(graph, flat, 1, 2));
    /* a new dim in front of the last two: what has another order there keeps it */
    const struct shape before = graph->tensors[wide_k].shape;
    const struct strides strides = graph_strides(graph, wide_k);
    const uint32_t all =
        graph_view(graph, wide_k, SHAPE(before.dim[0], 1, before.dim[1], before.dim[2]));
    graph_set_strides(graph, all,
                      &(struct strides){{strides.of[0], 0, strides.of[1], strides.of[2]}});
    const uint32_t product = op_matmul(graph, wide_q, all);
    drop_wide(graph, wide_q, q);
    drop_wide(graph, wide_k, k);
    const uint32_t scaled =
        op_scalar(graph, OP_MUL_SCALAR, product, 1 / sqrtf((float)c->index_dim));
    graph_drop(graph, product);
    const uint32_t scores = op_unary(graph, OP_RELU, scaled);
    graph_drop(graph, scaled);
    return scores;
}

/* w (b, s, a) of y, in fp32. */
static uint32_t head_weights(struct graph *graph, const struct model_config *c,
                             const struct hf_indexer *indexer, uint32_t y)
{
    const enum dtype dtype = (enum dtype)graph->tensors[indexer->weights.weight].dtype;
    const uint32_t in = op_to(graph, y, dtype);
    const uint32_t product = apply_linear(graph, in, indexer->weights);
    if (in != y)
        graph_drop(graph, in);
    const uint32_t upcast = wide(graph, product);
    drop_wide(graph, product, upcast);
    const uint32_t weights =
        op_scalar(graph, OP_MUL_SCALAR, upcast, 1 / sqrtf((float)c->index_heads));
    graph_drop(graph, upcast);
    return weights;
}

/* Scores (b, s, s), which go, of what the mask lets be seen: it is expanded to all sequences. */
static uint32_t masked(struct graph *graph, uint32_t scores, uint32_t mask)
{
    const struct shape m = graph->tensors[mask].shape, all = graph->tensors[scores].shape;
    const uint32_t seen = graph_view(graph, mask, SHAPE(m.dim[0], m.dim[2], m.dim[3]));
    uint32_t out;
    if (graph->tensors[mask].dtype == DTYPE_BOOL) {
        const uint32_t hidden =
            op_number(graph, WORK_EQUAL_NUMBER, ATEN_BITWISE_NOT, DTYPE_BOOL, all, seen, 0.0F);
        /* minus infinity in Python: no score is below this one either */
        out = op_masked_no_grad(graph, scores, hidden, -FLT_MAX);
        graph_drop(graph, hidden);
    } else {
        out = op_add(graph, scores, seen);
    }
    graph_drop(graph, scores);
    return out;
}

uint32_t hf_indexer(struct graph *graph, const struct model_config *c,
                    const struct hf_indexer *indexer, const struct hf_indexed *of)
{
    const struct shape shape = graph->tensors[of->y].shape;
    const uint32_t b = shape.dim[0], s = shape.dim[1], a = c->index_heads, d = c->index_dim;
    uint32_t qk[2], turned[2], places;
    hf_call_outer(graph, indexer->q.weight);
    graph->without_grad = true;
    const uint32_t q = apply_linear(graph, of->latent, indexer->q);
    const uint32_t key = apply_linear(graph, of->y, indexer->k);
    const uint32_t k = apply_norm(graph, key, indexer->k_norm);
    graph_drop(graph, key);
    qk[0] = graph_view(graph, q, SHAPE(b, s, a, d));
    qk[1] = graph_view(graph, k, SHAPE(b, s, 1, d));
    turn(graph, c, of, qk, turned);
    const uint32_t scores = head_scores(graph, c, qk[0], qk[1]);
    const uint32_t weights = head_weights(graph, c, indexer, of->y);
    const uint32_t sum = op_matmul(graph, graph_view(graph, weights, SHAPE(b, s, 1, a)), scores);
    const uint32_t best = masked(graph, graph_view(graph, sum, SHAPE(b, s, s)), of->mask);
    const uint32_t most = c->index_topk < s ? c->index_topk : s;
    graph_drop(graph, op_topk_no_grad(graph, best, most, &places));
    const uint32_t out = op_to(graph, places, DTYPE_INT32);
    graph_drop(graph, places);
    const uint32_t locals[] = {qk[0], turned[0], q, qk[1], turned[1], k, scores, weights, best};
    for (size_t i = 0; i < sizeof locals / sizeof *locals; i++)
        graph_drop(graph, locals[i]);
    graph->without_grad = false;
    graph_call_end(graph);
    return out;
}

uint32_t hf_indexed_mask(struct graph *graph, uint32_t mask, uint32_t places, uint32_t *others)
{
    const struct shape p = graph->tensors[places].shape; /* (b, s, k) */
    const uint32_t b = p.dim[0], s = p.dim[1];
    const struct shape square = SHAPE(b, 1, s, s);
    const uint32_t ones = op_fill(graph, ATEN_NEW_ONES, DTYPE_BOOL, SHAPE(b, s, s), 1.0F);
    const uint32_t ids = op_to(graph, places, DTYPE_INT64);
    const uint32_t hidden = op_scatter_number(graph, ones, ids, 0.0F);
    graph_drop(graph, ones);
    graph_drop(graph, ids);
    *others = graph_view(graph, hidden, square);
    if (graph->tensors[mask].dtype != DTYPE_BOOL)
        return op_masked_no_grad(graph, mask, *others,
                                 hf_least((enum dtype)graph->tensors[mask].dtype));
    const uint32_t seen =
        op_number(graph, WORK_EQUAL_NUMBER, ATEN_BITWISE_NOT, DTYPE_BOOL, square, *others, 0.0F);
    const uint32_t out = op_no_grad(graph, WORK_AND, ATEN_BITWISE_AND, DTYPE_BOOL, square, 2,
                                    (uint32_t[]){mask, seen});
    graph_drop(graph, seen);
    return out;
}
