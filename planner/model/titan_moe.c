/* titan_moe.c - torchtitan's mixture of experts (titan.h), where no ranks share experts.
 *
 *     scores -> the k best of each token -> rows (n) sorted by expert, each expert's filled up
 *     -> w2(silu(w1 rows) · w3 rows), each expert its own -> back in order -> weighted sum of k
 *
 * Rows that an expert is given are filled up to a whole number of 8, an expert without any to 8, so
 * that there may be n + 8 E of them: so many are computed whatever the routing is, by indices that
 * a kernel of torchtitan's writes. Those of no token are a row of zeros behind the others. What is
 * put back from them goes into that row, and is cut off. Experts compute in bf16 wherever the rest
 * does. Python counts tokens twice; what expert_bias is moved by is counted in place. */
#include "model/titan.h"

#include "model/experts.h"

#include <float.h>
#include <stdio.h>

enum { ALIGNMENT = 8 }; /* TOKEN_GROUP_ALIGN_SIZE_M */

struct titan_moe titan_moe_declare(struct graph *graph, const struct model_config *c,
                                   const char *prefix, struct param_init last)
{
    const uint32_t e = c->experts, h = c->hidden, f = experts_width(c);
    const struct buffer_values zeros = {.kind = VALUES_ZEROS};
    struct titan_moe moe = {.shares = experts_shared_width(c) > 0};
    moe.w1 = graph_param(graph, PARAM_WEIGHT, SHAPE(e, f, h), "%sexperts.w1", prefix);
    moe.w2 = graph_param(graph, PARAM_WEIGHT, SHAPE(e, h, f), "%sexperts.w2", prefix);
    moe.w3 = graph_param(graph, PARAM_WEIGHT, SHAPE(e, f, h), "%sexperts.w3", prefix);
    moe.gate = build_weights(graph, prefix, "router.gate", SHAPE(e, h), 0);
    graph_init_param(graph, moe.w2, last);
    graph_init_param(graph, moe.w3, last);
    graph_init_param(graph, moe.gate.weight, last);
    if (moe.shares) {
        char shared[128];
        snprintf(shared, sizeof shared, "%sshared_experts.", prefix);
        moe.shared = titan_ffn_declare(graph, shared, h, experts_shared_width(c), false, last);
    }
    moe.bias = graph_buffer(graph, DTYPE_FP32, SHAPE(e), &zeros);
    graph_buffer(graph, DTYPE_FP32, SHAPE(e), &zeros); /* tokens_per_expert */
    return moe;
}

static uint32_t one(struct graph *graph, enum work_kind work, enum aten aten, enum dtype dtype,
                    struct shape shape, uint32_t x)
{
    return op_no_grad(graph, work, aten, dtype, shape, 1, &x);
}

static uint32_t two(struct graph *graph, enum work_kind work, enum aten aten, uint32_t x,
                    uint32_t y)
{
    return op_no_grad(graph, work, aten, (enum dtype)graph->tensors[x].dtype,
                      graph->tensors[x].shape, 2, (uint32_t[]){x, y});
}

/* x and a number, in the place of x. */
static uint32_t then(struct graph *graph, enum work_kind work, enum aten aten, uint32_t x,
                     float number)
{
    const struct graph_tensor t = graph->tensors[x];
    const uint32_t out = op_number(graph, work, aten, (enum dtype)t.dtype, t.shape, x, number);
    graph_drop(graph, x);
    return out;
}

/* ---- the router ---- */

struct routing {
    uint32_t weights, experts; /* (t, k): fp32, int64 */
    uint32_t counts;           /* (E) */
};

static uint32_t count_rows(struct graph *graph, const struct model_config *c, uint32_t experts)
{
    const uint32_t n = (uint32_t)shape_elements(&graph->tensors[experts].shape);
    return one(graph, WORK_HISTOGRAM, ATEN_HISTC, DTYPE_INT64, SHAPE(c->experts),
               graph_view(graph, experts, SHAPE(n)));
}

static uint32_t score(struct graph *graph, const struct titan_moe *moe, bool sigmoid, uint32_t rows)
{
    const uint32_t logits = apply_linear(graph, rows, moe->gate);
    const uint32_t wide = op_to(graph, logits, DTYPE_FP32);
    const uint32_t scores = sigmoid ? op_unary(graph, OP_SIGMOID, wide) : op_softmax(graph, wide);
    if (wide != logits)
        graph_drop(graph, wide);
    graph_drop(graph, logits);
    return scores;
}

/* _get_node_limited_routing_scores: `choice`, lowest for experts of other groups than the best, by
 * the two best of each. It takes the place of `choice`. *mask: what autograd keeps of it. */
static uint32_t limit(struct graph *graph, const struct model_config *c, uint32_t scores,
                      uint32_t choice, uint32_t *mask)
{
    const uint32_t t = graph->tensors[choice].shape.dim[0], each = c->experts / c->groups;
    uint32_t places, groups;
    const uint32_t grouped = graph_view(graph, choice, SHAPE(t, c->groups, each));
    const uint32_t two_best = op_topk_no_grad(graph, grouped, 2, &places);
    const uint32_t sums = op_sum_last_no_grad(graph, two_best);
    graph_keeps(graph, sums, places, scores);
    const uint32_t best = op_topk_no_grad(graph, sums, c->topk_groups, &groups);
    graph_drop(graph, places);
    *mask = op_fill(graph, ATEN_ONES_LIKE, DTYPE_BOOL, SHAPE(t, c->groups), 1.0F);
    op_put_number(graph, *mask, groups, 0.0F);
    const uint32_t lowered = op_masked_no_grad(
        graph, grouped, graph_view(graph, *mask, SHAPE(t, c->groups, 1)), -FLT_MAX);
    graph_drop(graph, two_best);
    graph_drop(graph, best);
    graph_drop(graph, sums);
    graph_drop(graph, groups);
    graph_drop(graph, *mask);
    graph_drop(graph, choice);
    return graph_view(graph, lowered, SHAPE(t, c->experts));
}

static struct routing route(struct graph *graph, const struct model_config *c,
                            const struct titan_moe *moe, struct titan_scores way, uint32_t rows)
{
    struct routing r;
    uint32_t mask = GRAPH_NONE;
    const uint32_t scores = score(graph, moe, way.sigmoid, rows);
    uint32_t choice = two(graph, WORK_ADD, ATEN_ADD, scores, moe->bias);
    if (way.limited)
        choice = limit(graph, c, scores, choice, &mask);
    const uint32_t best = op_topk_no_grad(graph, choice, c->experts_per_token, &r.experts);
    if (way.limited) /* its node goes behind what was lowered, and that before the best */
        graph_keeps(graph, best, mask, scores);
    uint32_t weights = op_gather(graph, scores, r.experts), sum = GRAPH_NONE;
    if (c->norm_topk) {
        const uint32_t bare = op_sum_last(graph, weights);
        sum = op_scalar(graph, OP_ADD_SCALAR, bare, 1e-20F);
        graph_drop(graph, bare);
        const uint32_t shares = op_div(graph, weights, sum);
        graph_rebind(graph, weights, shares);
        weights = shares;
    }
    const float scale = c->routed_scaling > 0 ? c->routed_scaling : 1;
    r.weights = op_scalar(graph, OP_MUL_SCALAR, weights, scale);
    graph_rebind(graph, weights, r.weights);
    r.counts = count_rows(graph, c, r.experts);
    graph_drop(graph, scores);
    graph_drop(graph, choice);
    graph_drop(graph, best);
    if (sum != GRAPH_NONE)
        graph_drop(graph, sum);
    return r;
}

/* ---- rows, filled up ---- */

struct filling {
    uint32_t rows;   /* (m) int32: which row each is; -1: the one of zeros */
    uint32_t counts; /* (E) int32: as many as an expert has of these */
    uint32_t ends;   /* (E) int32: where they end, which _permute asks for and has no use of */
};

/* generate_permute_indices */
static struct filling fill_up(struct graph *graph, const struct model_config *c, uint32_t counts,
                              uint32_t n)
{
    struct filling f;
    const struct shape experts = SHAPE(c->experts);
    const uint32_t most = n + c->experts * ALIGNMENT, a = ALIGNMENT;
    const uint32_t ends =
        one(graph, WORK_CUMULATIVE_SUM, ATEN_CUMSUM, DTYPE_INT64, experts, counts);
    const uint32_t starts = two(graph, WORK_SUB, ATEN_SUB, ends, counts);
    graph_drop(graph, ends);
    const uint32_t summed = op_no_grad(graph, WORK_SUM, ATEN_SUM_DIM, DTYPE_INT64, experts, 1,
                                       (uint32_t[]){counts}); /* over one rank */
    const uint32_t all = then(graph, WORK_AT_LEAST, ATEN_CLAMP_MIN, summed, (float)a);
    const uint32_t above =
        op_number(graph, WORK_ADD_NUMBER, ATEN_ADD, DTYPE_INT64, experts, all, (float)a);
    const uint32_t below = then(graph, WORK_ADD_NUMBER, ATEN_SUB, above, -1.0F);
    const uint32_t parts = then(graph, WORK_FLOOR_DIV_NUMBER, ATEN_FLOOR_DIVIDE, below, (float)a);
    const uint32_t whole = then(graph, WORK_MUL_NUMBER, ATEN_MUL, parts, (float)a);
    f.counts = one(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_INT32, experts, whole);
    graph_drop(graph, whole);
    const uint32_t borders =
        one(graph, WORK_CUMULATIVE_SUM, ATEN_CUMSUM, DTYPE_INT64, experts, f.counts);
    const uint32_t begins = op_no_grad(graph, WORK_SUB, ATEN_SUB, DTYPE_INT64, experts, 2,
                                       (uint32_t[]){borders, f.counts});
    f.rows = op_no_grad(graph, WORK_OTHER, ATEN_FULL, DTYPE_INT32, SHAPE((most + a - 1) / a * a), 3,
                        (uint32_t[]){counts, starts, begins});
    f.ends = one(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_INT32, experts, borders);
    graph_drop(graph, starts);
    graph_drop(graph, all);
    graph_drop(graph, borders);
    graph_drop(graph, begins);
    return f;
}

/* x[indices], filled up. */
static uint32_t filled(struct graph *graph, uint32_t x, uint32_t indices)
{
    const struct graph_tensor t = graph->tensors[x];
    const uint32_t zeros =
        op_fill(graph, ATEN_NEW_ZEROS, (enum dtype)t.dtype, SHAPE(t.shape.dim[1]), 0.0F);
    const uint32_t stacked = op_cat_row(graph, x, zeros);
    graph_drop(graph, zeros);
    const uint32_t out = op_index(graph, stacked, indices);
    graph_drop(graph, stacked);
    return out;
}

/* ---- experts ---- */

/* One product of each expert with its rows, in bf16. */
static uint32_t grouped(struct graph *graph, uint32_t x, uint32_t weight, uint32_t offsets)
{
    const uint32_t in = op_to(graph, x, DTYPE_BF16), w = op_to(graph, weight, DTYPE_BF16);
    const uint32_t out = op_grouped_mm(graph, in, w, offsets);
    if (in != x)
        graph_drop(graph, in);
    if (w != weight)
        graph_drop(graph, w);
    return out;
}

/* _run_experts_grouped_mm */
static uint32_t run_experts(struct graph *graph, const struct titan_moe *moe, uint32_t x,
                            uint32_t counts)
{
    const uint32_t offsets = one(graph, WORK_CUMULATIVE_SUM, ATEN_CUMSUM, DTYPE_INT32,
                                 graph->tensors[counts].shape, counts);
    const uint32_t gate = grouped(graph, x, moe->w1, offsets);
    const uint32_t active = op_unary(graph, OP_SILU, gate);
    graph_drop(graph, gate);
    const uint32_t up = grouped(graph, x, moe->w3, offsets);
    const uint32_t product = op_mul(graph, active, up);
    graph_drop(graph, up);
    graph_rebind(graph, active, product);
    const uint32_t down = grouped(graph, product, moe->w2, offsets);
    const uint32_t out = op_to(graph, down, (enum dtype)graph->tensors[x].dtype);
    if (out != down)
        graph_drop(graph, down);
    graph_drop(graph, offsets);
    graph_drop(graph, product);
    return out;
}

/* GroupedExperts by indices_padding_wrapper: `routed` (n, h), sorted, to (n, h). */
static uint32_t experts(struct graph *graph, const struct model_config *c,
                        const struct titan_moe *moe, uint32_t routed, uint32_t counts)
{
    const struct graph_tensor t = graph->tensors[routed];
    const uint32_t n = t.shape.dim[0];
    const struct filling f = fill_up(graph, c, counts, n);
    const uint32_t x = filled(graph, routed, f.rows);
    graph_drop(graph, f.ends);
    graph_mark(graph, MARK_CALLED);
    const uint32_t out = run_experts(graph, moe, x, f.counts);
    graph_mark(graph, MARK_CALLED_END);
    const uint32_t back = op_put_rows(graph, GRAPH_NONE, n + 1, f.rows, out);
    graph_drop(graph, out);
    const uint32_t cut = op_slice_dim(graph, back, 0, 0, n);
    graph_drop(graph, x);
    graph_drop(graph, f.counts);
    graph_drop(graph, f.rows);
    return cut;
}

/* ---- back to tokens ---- */

/* Each token's k rows (t, k, h) by their weights (t, k), summed in fp32: (t, h). */
static uint32_t combine(struct graph *graph, uint32_t weights, uint32_t rows, enum dtype dtype)
{
    const struct shape s = graph->tensors[rows].shape;
    const uint32_t wide = op_to(graph, rows, DTYPE_FP32);
    const uint32_t sum =
        op_bmm(graph, graph_view(graph, weights, SHAPE(s.dim[0], 1, s.dim[1])), wide);
    if (wide != rows)
        graph_drop(graph, wide);
    const uint32_t cast = op_to(graph, sum, dtype);
    if (cast != sum)
        graph_drop(graph, sum);
    return graph_view(graph, cast, SHAPE(s.dim[0], s.dim[2]));
}

/* Each row (n, h) by its weight (n), in fp32 and back; takes its name. */
static uint32_t weigh(struct graph *graph, uint32_t rows, uint32_t weights)
{
    const struct graph_tensor t = graph->tensors[rows];
    const uint32_t wide = op_to(graph, rows, DTYPE_FP32);
    const uint32_t product =
        op_mul(graph, wide, graph_view(graph, weights, SHAPE(t.shape.dim[0], 1)));
    if (wide != rows)
        graph_drop(graph, wide);
    const uint32_t out = op_to(graph, product, (enum dtype)t.dtype);
    if (out != product)
        graph_drop(graph, product);
    graph_rebind(graph, rows, out);
    return out;
}

/* The weights in the order of rows: nobody uses them where rows are weighted behind. */
static uint32_t sort_weights(struct graph *graph, uint32_t weights, uint32_t order, bool before)
{
    const struct shape n = graph->tensors[order].shape;
    const uint32_t flat = graph_view(graph, weights, n);
    return before ? op_index(graph, flat, order)
                  : op_no_grad(graph, WORK_INDEX, ATEN_INDEX, DTYPE_FP32, n, 2,
                               (uint32_t[]){flat, order});
}

static uint32_t share(struct graph *graph, const struct model_config *c,
                      const struct titan_moe *moe, uint32_t rows)
{
    graph_mark(graph, MARK_CALLED);
    const uint32_t out = titan_ffn(graph, c->activation, &moe->shared, rows);
    graph_mark(graph, MARK_CALLED_END);
    return out;
}

uint32_t titan_moe(struct graph *graph, const struct model_config *c, const struct titan_moe *moe,
                   struct titan_scores scores, uint32_t y)
{
    const struct shape shape = graph->tensors[y].shape;
    const uint32_t t = shape.dim[0] * shape.dim[1], k = c->experts_per_token, n = t * k;
    const enum dtype dtype = (enum dtype)graph->tensors[y].dtype;
    const uint32_t rows = op_view_node(graph, y, SHAPE(t, c->hidden));
    graph_mark(graph, MARK_CALLED);
    const struct routing r = route(graph, c, moe, scores, rows);
    graph_mark(graph, MARK_CALLED_END);

    uint32_t order;
    graph_mark(graph, MARK_CALLED); /* TokenReorderer */
    const uint32_t counts = count_rows(graph, c, r.experts);
    graph_drop(graph, op_sort_stable(graph, graph_view(graph, r.experts, SHAPE(n)), &order));
    const uint32_t sorted = sort_weights(graph, r.weights, order, scores.before);
    graph_mark(graph, MARK_CALLED_END);
    graph_drop(graph, r.counts);

    const uint32_t tokens = op_number(graph, WORK_FLOOR_DIV_NUMBER, ATEN_FLOOR_DIVIDE, DTYPE_INT64,
                                      SHAPE(n), order, (float)k);
    uint32_t routed = op_index(graph, rows, tokens);
    graph_drop(graph, tokens);
    if (scores.before)
        routed = weigh(graph, routed, sorted);
    const uint32_t computed = experts(graph, c, moe, routed, counts);
    const uint32_t shared = moe->shares ? share(graph, c, moe, rows) : GRAPH_NONE;
    const uint32_t zeros = op_fill(graph, ATEN_ZEROS, dtype, SHAPE(n, c->hidden), 0.0F);
    const uint32_t put = op_put_rows(graph, zeros, n, order, computed);
    uint32_t out = scores.before ? op_sum_groups(graph, put, k)
                                 : combine(graph, r.weights,
                                           graph_view(graph, put, SHAPE(t, k, c->hidden)), dtype);
    const uint32_t combined = out;
    if (shared != GRAPH_NONE)
        out = op_add(graph, shared, combined);
    graph_drop(graph, r.weights);
    graph_drop(graph, r.experts);
    graph_drop(graph, counts);
    graph_drop(graph, sorted);
    graph_drop(graph, order);
    graph_drop(graph, routed);
    graph_drop(graph, computed);
    if (shared != GRAPH_NONE)
        graph_drop(graph, shared);
    graph_drop(graph, put);
    if (shared != GRAPH_NONE)
        graph_drop(graph, combined);
    return graph_view(graph, out, shape);
}
