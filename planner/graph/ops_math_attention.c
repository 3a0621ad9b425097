/* ops_math_attention.c - attention in single ops, as ATen composes it where no fused kernel is to
 * be had (pytorch native/transformers/attention.cpp, _scaled_dot_product_attention_math).
 *
 * Shapes in here are ATen's, (b, a, s, d). Both factors of q·kᵀ are scaled by the root of the
 * scale; of 16 bits q, k and v are computed with in fp32, and the weights are cast back, too,
 * though nobody asks for them. matmul makes batches of matrices: a copy where no strides say that.
 * All of it is one call: autocast has cast its arguments, and casts nothing inside. */
#include "graph/autocast.h"
#include "graph/op_class.h"

#include <math.h>

/* What the call holds until it returns, in the order of its going. */
struct held {
    uint32_t tensor[10];
    uint32_t count;
};

static void hold(struct held *held, uint32_t tensor)
{
    held->tensor[held->count++] = tensor;
}

/* 0 where `condition` (bools), -inf elsewhere. */
static uint32_t lowest_outside(struct graph *graph, uint32_t condition, struct shape shape,
                               enum dtype dtype)
{
    const struct shape scalar = {.rank = 0};
    const uint32_t minus = op_fill(graph, ATEN_SCALAR_TENSOR, dtype, scalar, -INFINITY);
    const uint32_t zero = op_fill(graph, ATEN_SCALAR_TENSOR, dtype, scalar, 0.0F);
    const uint32_t added = op_no_grad(graph, WORK_WHERE, ATEN_WHERE, dtype, shape, 3,
                                      (uint32_t[]){condition, zero, minus});
    graph_drop(graph, zero);
    graph_drop(graph, minus);
    return added;
}

/* -inf above the diagonal: (s, s_k). */
static uint32_t causal_mask(struct graph *graph, uint32_t rows, uint32_t columns, enum dtype dtype)
{
    const struct shape shape = SHAPE(rows, columns);
    const uint32_t ones = op_fill(graph, ATEN_ONES, DTYPE_BOOL, shape, 1.0F);
    const uint32_t lower =
        op_no_grad(graph, WORK_LOWER_TRIANGLE, ATEN_TRIL, DTYPE_BOOL, shape, 1, &ones);
    graph_drop(graph, ones);
    const uint32_t mask = lowest_outside(graph, lower, shape, dtype);
    graph_drop(graph, lower);
    return mask;
}

/* k or v (b, a', s, d) for `heads` heads: repeat_interleave, a copy. */
static uint32_t repeated(struct graph *graph, uint32_t x, uint32_t heads)
{
    const struct shape s = *shape_of(graph, x);
    const struct shape split = SHAPE(s.dim[0], s.dim[1], heads / s.dim[1], s.dim[2], s.dim[3]);
    return graph_view(graph, op_repeat_copied(graph, x, split, 2),
                      SHAPE(s.dim[0], heads, s.dim[2], s.dim[3]));
}

/* softmax(scaled · kᵀ + mask), dropped out. */
static uint32_t weights_of(struct graph *graph, const struct math_attention *a, uint32_t scaled,
                           uint32_t k, uint32_t mask, float root)
{
    const uint32_t scaled_k = op_scale(graph, graph_transpose(graph, k, 2, 3), root);
    const uint32_t product = op_matmul(graph, scaled, scaled_k);
    graph_drop(graph, scaled_k);
    const uint32_t scores = mask == GRAPH_NONE ? product : op_add_to(graph, product, mask);
    if (graph->tensors[scores].storage != graph->tensors[product].storage)
        graph_drop(graph, product);
    const uint32_t weights = op_safe_softmax(graph, scores);
    graph_drop(graph, scores);
    const uint32_t dropped = op_dropout(graph, weights, a->dropout);
    if (dropped != weights)
        graph_drop(graph, weights);
    return dropped;
}

/* The call, of q, k and v as it is given them: (b, a, s, d_v). */
static uint32_t composed(struct graph *graph, const struct math_attention *a, const uint32_t *in)
{
    const enum dtype dtype = dtype_of(graph, in[0]);
    const uint32_t heads = shape_of(graph, in[0])->dim[2], d = shape_of(graph, in[0])->dim[3];
    const float root = a->scale > 0 ? sqrtf(a->scale) : powf((float)d, -0.25F);
    struct held held = {.count = 0}, casts = {.count = 0};
    uint32_t wide[3];
    for (uint32_t i = 0; i < 3; i++)
        wide[i] = op_to(graph, graph_transpose(graph, in[i], 1, 2), DTYPE_FP32);
    for (uint32_t i = 3; i-- > 0 && dtype != DTYPE_FP32;)
        hold(&casts, wide[i]);
    const uint32_t scaled = op_scale(graph, wide[0], root);
    uint32_t mask = a->mask;
    if (a->causal)
        mask = causal_mask(graph, shape_of(graph, in[0])->dim[1], shape_of(graph, in[1])->dim[1],
                           DTYPE_FP32);
    uint32_t k = wide[1], v = wide[2];
    if (shape_of(graph, k)->dim[1] != heads && !a->broadcast) {
        hold(&held, k = repeated(graph, k, heads));
        hold(&held, v = repeated(graph, v, heads));
    }
    hold(&held, scaled);
    if (a->causal)
        hold(&held, mask);
    const uint32_t weights = weights_of(graph, a, scaled, k, mask, root);
    const uint32_t returned = op_to(graph, weights, dtype);
    const uint32_t mixed = op_matmul(graph, weights, v);
    const uint32_t out = op_to(graph, mixed, dtype);
    if (out != mixed)
        graph_drop(graph, mixed);
    if (returned != weights)
        graph_drop(graph, weights);
    for (uint32_t i = 0; i < held.count; i++)
        graph_drop(graph, held.tensor[i]);
    for (uint32_t i = 0; i < casts.count; i++)
        graph_drop(graph, casts.tensor[i]);
    graph_drop(graph, returned);
    return out;
}

uint32_t op_math_attention(struct graph *graph, const struct math_attention *a)
{
    uint32_t in[3] = {a->q, a->k, a->v};
    autocast_attention_arguments(graph, OP_FLASH_ATTENTION, 3, in);
    const bool casts = graph->autocast.on;
    graph->autocast.on = false;
    const bool allowed = a->mask != GRAPH_NONE && dtype_of(graph, a->mask) == DTYPE_BOOL;
    struct math_attention added = *a;
    if (allowed) {
        const struct shape *s = shape_of(graph, a->mask);
        added.mask = lowest_outside(graph, a->mask,
                                    SHAPE(shape_of(graph, a->q)->dim[0], 1, s->dim[2], s->dim[3]),
                                    dtype_of(graph, in[0]));
    }
    const uint32_t out = composed(graph, &added, in);
    if (allowed)
        graph_drop(graph, added.mask);
    graph->autocast.on = casts;
    graph_call_done(graph, OP_FLASH_ATTENTION);
    /* .transpose(1, 2).contiguous(), as who calls it goes on */
    const struct shape s = *shape_of(graph, out);
    const uint32_t turned = graph_transpose(graph, out, 1, 2);
    if (s.dim[1] == 1 || s.dim[2] == 1)
        return turned;
    const uint32_t copy = op_unary(graph, OP_CLONE, turned);
    graph_drop(graph, out);
    return copy;
}
