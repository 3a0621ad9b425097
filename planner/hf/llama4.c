/* llama4.c - what Llama 4 has and no other decoder of Llama's kind (hf.h, moe.h; its mask of chunks
 * is in masks.c): RoPE of q and k as complex numbers, queries that grow with their position, and a
 * mixture of experts that all read all tokens.
 *
 *     s = sigmoid(router y), for the k best of each token; 0 for the others
 *     out = shared(y) + sum over experts e of down_e(up_e(s_e y) · act(gate_e(s_e y)))
 *
 * So transformers trains it: no token is spared an expert, and every tensor's shape is the same
 * however the tokens are routed. */
#include "hf/hf.h"
#include "hf/moe.h"
#include "model/bits4.h"
#include "model/experts.h"

#include <math.h>

/* One step of arithmetic on fp32 numbers, which take the place of x. */
static uint32_t next(struct graph *graph, enum work_kind work, enum aten aten, uint32_t x,
                     float number)
{
    const uint32_t out =
        op_number(graph, work, aten, DTYPE_FP32, graph->tensors[x].shape, x, number);
    graph_drop(graph, x);
    return out;
}

uint32_t hf_scale_by_own_position(struct graph *graph, uint32_t q, float beta, uint32_t step,
                                  uint32_t held[2])
{
    const uint32_t s = graph->tensors[q].shape.dim[1];
    const uint32_t range = op_arange(graph, s);
    held[0] = op_number(graph, WORK_ADD_NUMBER, ATEN_ADD, DTYPE_INT64, SHAPE(s), range, 0.0F);
    graph_drop(graph, range);
    uint32_t x = op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_FP32, SHAPE(s), 1, &held[0]);
    x = next(graph, WORK_ADD_NUMBER, ATEN_ADD, x, 1.0F);
    x = next(graph, WORK_DIV_NUMBER, ATEN_DIV, x, (float)step);
    x = next(graph, WORK_FLOOR_DIV_NUMBER, ATEN_FLOOR, x, 1.0F);
    x = next(graph, WORK_LOG, ATEN_LOG1P, x, 1.0F);
    x = next(graph, WORK_MUL_NUMBER, ATEN_MUL, x, beta);
    held[1] = next(graph, WORK_ADD_NUMBER, ATEN_ADD, x, 1.0F);
    const uint32_t product = op_mul(graph, q, graph_view(graph, held[1], SHAPE(1, s, 1, 1)));
    const uint32_t out = op_to(graph, product, (enum dtype)graph->tensors[q].dtype);
    if (out != product)
        graph_drop(graph, product);
    return out;
}

void hf_turn_complex(struct graph *graph, uint32_t table, uint32_t qk[2])
{
    const enum dtype dtype = (enum dtype)graph->tensors[qk[0]].dtype;
    uint32_t wide[2], product[2], real[2];
    for (int i = 0; i < 2; i++)
        wide[i] = op_to(graph, qk[i], DTYPE_FP32);
    for (int i = 0; i < 2; i++) {
        const struct shape s = graph->tensors[qk[i]].shape;
        const uint32_t b = s.dim[0], n = s.dim[1], a = s.dim[2], pairs = s.dim[3] / 2;
        product[i] = op_mul_constant(
            graph, graph_view_dtype(graph, wide[i], DTYPE_COMPLEX64, SHAPE(b, n, a, pairs)),
            graph_view(graph, table, SHAPE(1, n, 1, pairs)));
        const uint32_t parts =
            graph_view_dtype(graph, product[i], DTYPE_FP32, SHAPE(b, n, a, pairs, 2));
        real[i] = graph_view(graph, op_real(graph, parts), s);
    }
    for (int i = 0; i < 2; i++) {
        const uint32_t before = wide[i] == qk[i] ? GRAPH_NONE : wide[i];
        qk[i] = op_to(graph, real[i], dtype);
        wide[i] = before;
    }
    for (int i = 0; i < 2; i++)
        if (wide[i] != GRAPH_NONE)
            graph_drop(graph, wide[i]);
    for (int i = 0; i < 2 && dtype != DTYPE_FP32; i++)
        graph_drop(graph, product[i]);
}

/* Weights (t, E) of rows (t, h) for all experts, and the logits that they are of. */
static uint32_t weights_of_all(struct graph *graph, const struct model_config *c,
                               const struct hf_moe *moe, uint32_t rows, uint32_t *logits)
{
    uint32_t places;
    hf_call(graph, moe->router.weight);
    *logits = apply_linear(graph, rows, moe->router);
    const enum dtype dtype = (enum dtype)graph->tensors[*logits].dtype;
    const uint32_t best = op_topk(graph, *logits, c->experts_per_token, &places);
    const uint32_t lowest =
        op_fill(graph, ATEN_FULL_LIKE, dtype, graph->tensors[*logits].shape, -INFINITY);
    const uint32_t chosen = op_put(graph, lowest, places, best);
    const uint32_t wide = op_to(graph, chosen, DTYPE_FP32);
    const uint32_t share = op_unary(graph, OP_SIGMOID, wide);
    if (wide != chosen)
        graph_drop(graph, wide);
    const uint32_t weights = op_to(graph, share, dtype);
    if (weights != share)
        graph_drop(graph, share);
    graph_drop(graph, chosen);
    graph_drop(graph, best);
    graph_drop(graph, places);
    graph_call_end(graph);
    return weights;
}

/* Rows (E·t, h), t of them to each expert. */
static uint32_t run_experts(struct graph *graph, const struct model_config *c,
                            const struct hf_moe *moe, uint32_t rows)
{
    const uint32_t e = c->experts, t = graph->tensors[rows].shape.dim[0] / e;
    uint32_t half[2];
    const uint32_t first = bits4_whole(graph, moe->gate_up);
    const uint32_t gate_up = op_bmm(graph, graph_view(graph, rows, SHAPE(e, t, c->hidden)), first);
    op_chunk(graph, gate_up, 2, half);
    const uint32_t active = hf_activation_within(graph, c->activation, half[0], "act_fn");
    const uint32_t product = op_mul(graph, half[1], active);
    graph_drop(graph, active);
    const uint32_t second = bits4_whole(graph, moe->down);
    const uint32_t out = op_bmm(graph, product, second);
    graph_drop(graph, product);
    graph_drop(graph, gate_up);
    bits4_drop(graph, moe->gate_up, first);
    bits4_drop(graph, moe->down, second);
    return out;
}

/* The same as a module, which may be wrapped. */
static uint32_t call_experts(struct graph *graph, const struct model_config *c,
                             const struct hf_moe *moe, uint32_t rows)
{
    uint32_t out;
    hf_call(graph, moe->gate_up);
    if (moe->module == GRAPH_NONE) {
        out = run_experts(graph, c, moe, rows);
    } else {
        rows = op_module_input(graph, rows);
        graph_enter(graph, moe->module, rows);
        out = run_experts(graph, c, moe, rows);
        graph_exit(graph, moe->module, out);
    }
    graph_call_end(graph);
    return out;
}

uint32_t hf_every(struct graph *graph, const struct model_config *c, const struct hf_moe *moe,
                  uint32_t y, uint32_t *logits)
{
    const struct shape shape = graph->tensors[y].shape;
    const uint32_t e = c->experts, t = shape.dim[0] * shape.dim[1], h = c->hidden;
    const uint32_t rows = op_view_node(graph, y, SHAPE(t, h));
    const uint32_t weights = weights_of_all(graph, c, moe, rows, logits);
    const uint32_t tiled = op_tile(graph, rows, e);
    uint32_t by_expert = graph_transpose(graph, weights, 0, 1);
    if (e > 1 && t > 1)
        by_expert = op_unary(graph, OP_CLONE, by_expert);
    const uint32_t weighted = op_mul(graph, tiled, graph_view(graph, by_expert, SHAPE(e * t, 1)));
    if (e > 1 && t > 1)
        graph_drop(graph, by_expert);
    graph_drop(graph, tiled);
    graph_dies_before(graph, *logits, weighted);
    const uint32_t routed = call_experts(graph, c, moe, weighted);
    hf_call_outer(graph, moe->shared.gate.weight);
    const uint32_t shared = hf_mlp(graph, c, &moe->shared, rows);
    graph_call_end(graph);
    const uint32_t sum = op_sum_first(graph, graph_view(graph, routed, SHAPE(e, t, h)));
    const uint32_t out = op_add_in_place(graph, shared, sum);
    graph_drop(graph, sum);
    graph_drop(graph, weights);
    graph_drop(graph, weighted);
    graph_drop(graph, routed);
    return graph_view(graph, out, shape);
}
