/* build_hf_moe.c - Mixtral's mixture of experts, as Hugging Face transformers writes it; the rest
 * of the block is Llama's (build_hf_llama.c).
 *
 *     p = softmax(router y); the k best of E, weighted by p / sum of the k
 *     rows (t·k) sorted by expert -> silu(gate) · up -> down -> weighted -> back in order, summed
 *
 * All experts of a block are two parameters, (E, 2f, h) and (E, h, f). What runs is transformers'
 * own default, `grouped_mm`: one call multiplies t·k sorted rows, each group with its expert's
 * matrix, so every tensor's shape is the same however the tokens are routed. Balanced routing,
 * t·k/E rows an expert, is assumed nowhere but in the time of that call. `batched_mm` (the config's
 * experts_implementation) copies an expert's matrices for each of the t·k rows instead.
 *
 * Weights of the k best are fp32, so what they multiply is, and the sum over k is cast back. */
#include "model/build_hf.h"

struct hf_moe hf_moe_declare(struct graph *graph, const struct model_config *c, const char *prefix)
{
    struct hf_moe moe;
    moe.router =
        graph_param(graph, PARAM_WEIGHT, SHAPE(c->experts, c->hidden), "%sgate.weight", prefix);
    moe.gate_up = graph_param(graph, PARAM_WEIGHT, SHAPE(c->experts, 2 * c->ffn, c->hidden),
                              "%sexperts.gate_up_proj", prefix);
    moe.down = graph_param(graph, PARAM_WEIGHT, SHAPE(c->experts, c->hidden, c->ffn),
                           "%sexperts.down_proj", prefix);
    return moe;
}

struct routing {
    uint32_t logits;  /* (t, E): Python's until the block returns */
    uint32_t weights; /* (t, k) */
    uint32_t experts; /* (t, k) int64 */
};

static struct routing route(struct graph *graph, const struct model_config *c, uint32_t rows,
                            uint32_t router)
{
    struct routing r;
    /* The router flattens its input once more: a node between the product's and the sum of the
     * gradients of `rows`. */
    r.logits = op_linear(graph, op_alias(graph, rows), router, GRAPH_NONE);
    const uint32_t upcast = op_to(graph, r.logits, DTYPE_FP32);
    const uint32_t probabilities = op_softmax(graph, upcast);
    if (upcast != r.logits)
        graph_drop(graph, upcast);
    const uint32_t best = op_topk(graph, probabilities, c->experts_per_token, &r.experts);
    const uint32_t sum = op_sum_last(graph, best);
    r.weights = op_div_inplace(graph, best, sum);
    graph_drop(graph, sum);
    graph_drop(graph, probabilities);
    return r;
}

/* silu(gate) · up of (n, 2f): (n, f); the input dies when the name is given to the result. */
static uint32_t apply_gate(struct graph *graph, const struct model_config *c, uint32_t gate_up)
{
    uint32_t part[2];
    op_chunk(graph, gate_up, 2, part);
    const uint32_t active = hf_activation(graph, c->activation, part[0]);
    const uint32_t product = op_mul(graph, active, part[1]);
    graph_drop(graph, active);
    graph_drop(graph, gate_up);
    return product;
}

/* y times its rows' weights (n), in fp32. */
static uint32_t weigh(struct graph *graph, uint32_t y, uint32_t weights)
{
    const uint32_t rows = graph->tensors[y].shape.dim[0];
    return op_mul(graph, y, graph_view(graph, weights, SHAPE(rows, 1)));
}

static uint32_t one(struct graph *graph, enum work_kind work, enum aten aten, enum dtype dtype,
                    struct shape shape, uint32_t x)
{
    return op_no_grad(graph, work, aten, dtype, shape, 1, &x);
}

/* grouped_mm_experts_forward */
static uint32_t grouped(struct graph *graph, const struct model_config *c, const struct hf_moe *moe,
                        uint32_t rows, const struct routing *r)
{
    const uint32_t k = c->experts_per_token, n = graph->tensors[rows].shape.dim[0] * k;
    const struct shape flat = SHAPE(n), experts = SHAPE(c->experts);
    uint32_t order;
    const uint32_t ids = op_sort(graph, graph_view(graph, r->experts, flat), &order);
    const uint32_t tokens = op_number(graph, WORK_FLOOR_DIV_NUMBER, ATEN_FLOOR_DIVIDE, DTYPE_INT64,
                                      flat, order, (float)k);
    const uint32_t chosen = op_index(graph, rows, tokens);
    graph_drop(graph, tokens);
    const uint32_t weights = op_index(graph, graph_view(graph, r->weights, flat), order);
    /* int32 on CUDA: as many bytes */
    const uint32_t numbers = one(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_FP32, flat, ids);
    const uint32_t counts = one(graph, WORK_HISTOGRAM, ATEN_HISTC, DTYPE_FP32, experts, numbers);
    const uint32_t offsets =
        one(graph, WORK_CUMULATIVE_SUM, ATEN_CUMSUM, DTYPE_INT32, experts, counts);

    const uint32_t gate_up = op_grouped_mm(graph, chosen, moe->gate_up, offsets);
    const uint32_t product = apply_gate(graph, c, gate_up);
    const uint32_t out = op_grouped_mm(graph, product, moe->down, offsets);
    graph_drop(graph, product);

    const uint32_t weighted = weigh(graph, out, weights);
    const uint32_t inverse =
        one(graph, WORK_INVERT_PERMUTATION, ATEN_EMPTY_LIKE, DTYPE_INT64, flat, order);
    const uint32_t range = op_arange(graph, n);
    graph_drop(graph, range); /* put into inverse */
    const uint32_t restored = op_index(graph, weighted, inverse);
    graph_rebind(graph, weighted, restored);
    const uint32_t sum = op_sum_groups(graph, restored, k);
    const uint32_t cast = op_to(graph, sum, graph->compute);
    graph_drop(graph, ids);
    graph_drop(graph, order);
    graph_drop(graph, chosen);
    graph_drop(graph, weights);
    graph_drop(graph, numbers);
    graph_drop(graph, counts);
    graph_drop(graph, offsets);
    graph_drop(graph, out);
    graph_drop(graph, restored);
    graph_drop(graph, inverse);
    if (cast != sum)
        graph_drop(graph, sum);
    return cast;
}

/* A matrix for each row: (n, o, i) times y (n, i): (n, o). */
static uint32_t batched_linear(struct graph *graph, uint32_t y, uint32_t matrices)
{
    const struct shape in = graph->tensors[y].shape;
    const uint32_t out =
        op_bmm(graph, matrices, graph_view(graph, y, SHAPE(in.dim[0], in.dim[1], 1)));
    return graph_view(graph, out, SHAPE(in.dim[0], graph->tensors[out].shape.dim[1]));
}

/* batched_mm_experts_forward */
static uint32_t batched(struct graph *graph, const struct model_config *c, const struct hf_moe *moe,
                        uint32_t rows, const struct routing *r)
{
    const uint32_t k = c->experts_per_token, t = graph->tensors[rows].shape.dim[0], n = t * k;
    const uint32_t experts = graph_view(graph, r->experts, SHAPE(n));
    const uint32_t repeated = op_repeat(graph, rows, SHAPE(t, k, c->hidden), 1);
    const uint32_t chosen = graph_view(graph, repeated, SHAPE(n, c->hidden));
    const uint32_t wide = op_index(graph, moe->gate_up, experts);
    const uint32_t product = apply_gate(graph, c, batched_linear(graph, chosen, wide));
    const uint32_t narrow = op_index(graph, moe->down, experts);
    graph_rebind(graph, wide, narrow);
    const uint32_t out = batched_linear(graph, product, narrow);
    graph_drop(graph, product);
    const uint32_t weighted = weigh(graph, out, r->weights);
    const uint32_t sum = op_sum_groups(graph, weighted, k);
    const uint32_t cast = op_to(graph, sum, graph->compute);
    graph_drop(graph, repeated);
    graph_drop(graph, narrow);
    graph_drop(graph, out);
    graph_drop(graph, weighted);
    if (cast != sum)
        graph_drop(graph, sum);
    return cast;
}

uint32_t hf_moe(struct graph *graph, const struct model_config *c, const struct hf_moe *moe,
                uint32_t y)
{
    const struct shape shape = graph->tensors[y].shape;
    const uint32_t rows = graph_view(graph, y, SHAPE(shape.dim[0] * shape.dim[1], shape.dim[2]));
    const struct routing r = route(graph, c, rows, moe->router);
    const uint32_t out =
        c->batched_experts ? batched(graph, c, moe, rows, &r) : grouped(graph, c, moe, rows, &r);
    graph_drop(graph, r.logits);
    graph_drop(graph, r.weights);
    graph_drop(graph, r.experts);
    return graph_view(graph, out, shape);
}
