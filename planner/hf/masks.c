/* masks.c - masks as transformers makes them, by index comparisons that broadcast (hf.h;
 * masking_utils.py, sdpa_mask). A mask of several things is True, and the first, and the second:
 * each `and` takes the place of what was before it.
 *
 *     causal    key <= query                                        (1, 1, s, s)
 *     window    key > query - window, and that                      (1, 1, s, s)
 *     chunks    both are in one chunk, and that                     (b, 1, s, s)
 *     both ways query >= 0, which all are                           (1, 1, s, 1)
 *     near      |query - key| <= distance, and that                 (1, 1, s, s)
 *     padded    any of these, and the key is no padding             (b, 1, s, s)
 *
 * Of a mask of ones (graph.attention_mask, nothing padded) what asks whether all are is told so.
 */
#include "hf/hf.h"

/* Where queries, keys, sequences and heads are counted. */
struct places {
    uint32_t batches, heads, q, k; /* (b), (1), (1, 1, s, 1), (1, 1, 1, s) */
};

static struct places count_places(struct graph *graph, const struct model_job *job)
{
    const uint32_t s = job->seq;
    struct places at = {.batches = op_arange(graph, job->batch), .heads = op_arange(graph, 1)};
    const uint32_t q = hf_positions(graph, job), k = hf_positions(graph, job);
    at.q = graph_view(graph, q, SHAPE(1, 1, s, 1));
    at.k = graph_view(graph, k, SHAPE(1, 1, 1, s));
    return at;
}

static void drop_places(struct graph *graph, struct places at)
{
    graph_drop(graph, at.batches);
    graph_drop(graph, at.heads);
    graph_drop(graph, at.q);
    graph_drop(graph, at.k);
}

static uint32_t yes(struct graph *graph)
{
    return op_fill(graph, ATEN_NEW_ONES, DTYPE_BOOL, (struct shape){.rank = 0}, 1.0F);
}

/* x and y, which go. */
static uint32_t both(struct graph *graph, struct shape shape, uint32_t x, uint32_t y)
{
    const uint32_t out =
        op_no_grad(graph, WORK_AND, ATEN_BITWISE_AND, DTYPE_BOOL, shape, 2, (uint32_t[]){x, y});
    graph_drop(graph, y);
    graph_drop(graph, x);
    return out;
}

static uint32_t is_causal(struct graph *graph, struct shape square, struct places at)
{
    return op_no_grad(graph, WORK_LESS_EQUAL, ATEN_LE, DTYPE_BOOL, square, 2,
                      (uint32_t[]){at.k, at.q});
}

/* Whether k is within the window that ends at q. */
static uint32_t is_near(struct graph *graph, struct shape square, struct places at, uint32_t window)
{
    const uint32_t first = op_number(graph, WORK_ADD_NUMBER, ATEN_SUB, DTYPE_INT64,
                                     SHAPE(1, 1, square.dim[2], 1), at.q, -(float)window);
    const uint32_t after = op_no_grad(graph, WORK_GREATER, ATEN_GT_TENSOR, DTYPE_BOOL, square, 2,
                                      (uint32_t[]){at.k, first});
    graph_drop(graph, first);
    return after;
}

/* Whether k is no farther than that from q. */
static uint32_t is_within(struct graph *graph, struct shape square, struct places at,
                          uint32_t distance)
{
    const uint32_t apart =
        op_no_grad(graph, WORK_SUB, ATEN_SUB, DTYPE_INT64, square, 2, (uint32_t[]){at.q, at.k});
    const uint32_t size = op_no_grad(graph, WORK_ABS, ATEN_ABS, DTYPE_INT64, square, 1, &apart);
    graph_drop(graph, apart);
    const uint32_t within = op_number(graph, WORK_LESS_NUMBER, ATEN_LE_SCALAR, DTYPE_BOOL, square,
                                      size, (float)distance + 1);
    graph_drop(graph, size);
    return within;
}

/* What every query does. */
static uint32_t is_any(struct graph *graph, const struct model_job *job, struct places at)
{
    return op_number(graph, WORK_GREATER_NUMBER, ATEN_GE_SCALAR, DTYPE_BOOL,
                     SHAPE(1, 1, job->seq, 1), at.q, -1.0F);
}

/* What is not padding, of all queries: (b, 1, 1, s); an index that takes every place. */
static uint32_t is_there(struct graph *graph, uint32_t there)
{
    const struct shape shape = graph->tensors[there].shape,
                       row = SHAPE(shape.dim[0], 1, 1, shape.dim[1]);
    const uint32_t keys = graph_view(graph, there, row);
    return op_no_grad(graph, WORK_COPY, ATEN_INDEX, DTYPE_BOOL, row, 1, &keys);
}

/* Causal, within a window or not. */
static uint32_t before(struct graph *graph, struct shape square, struct places at, uint32_t window)
{
    if (window == HF_NO_WINDOW)
        return is_causal(graph, square, at);
    const uint32_t start = yes(graph), after = is_near(graph, square, at, window),
                   near = both(graph, square, start, after);
    return both(graph, square, near, is_causal(graph, square, at));
}

/* Both ways, within a distance or not. */
static uint32_t around(struct graph *graph, const struct model_job *job, struct shape square,
                       struct places at, uint32_t distance)
{
    if (distance == HF_NO_WINDOW)
        return is_any(graph, job, at);
    const uint32_t start = yes(graph), within = is_within(graph, square, at, distance),
                   near = both(graph, square, start, within);
    return both(graph, square, near, is_any(graph, job, at));
}

uint32_t hf_window_mask(struct graph *graph, const struct model_job *job, uint32_t window)
{
    const struct shape square = SHAPE(1, 1, job->seq, job->seq);
    const struct places at = count_places(graph, job);
    const uint32_t mask = before(graph, square, at, window);
    drop_places(graph, at);
    return graph_view(graph, mask, square);
}

/* ---- in chunks ---- */

/* Which chunk tokens (b, 1, s or 1, 1 or s) of sequences are in that begin behind padding. */
static uint32_t chunk_of(struct graph *graph, uint32_t padding, uint32_t batches, uint32_t places,
                         struct shape shape, uint32_t chunk)
{
    const uint32_t b = shape.dim[0];
    const uint32_t column = graph_view(graph, padding, SHAPE(b, 1, 1, 1));
    const uint32_t begins = op_no_grad(graph, WORK_INDEX, ATEN_INDEX, DTYPE_INT64,
                                       SHAPE(b, 1, 1, 1), 2, (uint32_t[]){column, batches});
    const uint32_t place =
        op_no_grad(graph, WORK_SUB, ATEN_SUB, DTYPE_INT64, shape, 2, (uint32_t[]){places, begins});
    graph_drop(graph, begins);
    const uint32_t of = op_number(graph, WORK_FLOOR_DIV_NUMBER, ATEN_FLOOR_DIVIDE, DTYPE_INT64,
                                  shape, place, (float)chunk);
    graph_drop(graph, place);
    return of;
}

uint32_t hf_chunk_mask(struct graph *graph, const struct model_job *job, uint32_t chunk)
{
    const uint32_t b = job->batch, s = job->seq;
    const struct shape square = SHAPE(b, 1, s, s);
    const uint32_t padding = op_fill(graph, ATEN_ZEROS, DTYPE_INT64, SHAPE(b), 0.0F);
    if (s < chunk) {
        graph_drop(graph, padding);
        return GRAPH_NONE;
    }
    const struct places at = count_places(graph, job);
    const uint32_t start = yes(graph);
    const uint32_t of_k = chunk_of(graph, padding, at.batches, at.k, SHAPE(b, 1, 1, s), chunk);
    const uint32_t of_q = chunk_of(graph, padding, at.batches, at.q, SHAPE(b, 1, s, 1), chunk);
    const uint32_t same = op_no_grad(graph, WORK_EQUAL, ATEN_EQ_TENSOR, DTYPE_BOOL, square, 2,
                                     (uint32_t[]){of_k, of_q});
    graph_drop(graph, of_k);
    graph_drop(graph, of_q);
    const uint32_t near = both(graph, square, start, same);
    const uint32_t mask = both(graph, square, near, is_causal(graph, SHAPE(1, 1, s, s), at));
    drop_places(graph, at);
    graph_drop(graph, padding);
    return mask;
}

/* ---- of a batch that is padded ---- */

/* fast_all: whether all are, by their sum. */
static void ask_all(struct graph *graph, uint32_t there)
{
    const struct shape scalar = {.rank = 0};
    const uint32_t sum = op_no_grad(graph, WORK_SUM, ATEN_SUM, DTYPE_INT64, scalar, 1, &there);
    const uint32_t all = op_number(graph, WORK_EQUAL_NUMBER, ATEN_EQ, DTYPE_BOOL, scalar, sum,
                                   (float)shape_elements(&graph->tensors[there].shape));
    graph_drop(graph, sum);
    graph_drop(graph, all);
}

static void drop_all(struct graph *graph, uint32_t there)
{
    const struct shape scalar = {.rank = 0};
    graph_drop(graph, op_no_grad(graph, WORK_ALL, ATEN_ALL, DTYPE_BOOL, scalar, 1, &there));
}

static uint32_t as_bools(struct graph *graph)
{
    return op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_BOOL,
                      graph->tensors[graph->attention_mask].shape, 1, &graph->attention_mask);
}

/* `seen` (1, 1, s, s or 1), which goes, but for padding. */
static uint32_t without_padding(struct graph *graph, const struct model_job *job, uint32_t start,
                                uint32_t seen, uint32_t there)
{
    const uint32_t s = job->seq;
    const uint32_t any = both(graph, graph->tensors[seen].shape, start, seen);
    return both(graph, SHAPE(job->batch, 1, s, s), any, is_there(graph, there));
}

/* `there`, unless nothing is padded: then it goes. */
static uint32_t needed(struct graph *graph, uint32_t there)
{
    if (graph->padded)
        return there;
    graph_drop(graph, there);
    return GRAPH_NONE;
}

uint32_t hf_padded_mask(struct graph *graph, const struct model_job *job, uint32_t window,
                        enum hf_mask how)
{
    const uint32_t s = job->seq, there = as_bools(graph);
    if (graph->attention == ATTENTION_FLASH_ATTN) { /* flash_attention_mask: (b, s) */
        drop_all(graph, there);
        return needed(graph, there);
    }
    if (how == HF_MASK_ASKED && (window == HF_NO_WINDOW || s < window)) {
        ask_all(graph, there); /* of all keys, and of those that queries are of: the same */
        if (needed(graph, there) == GRAPH_NONE)
            return GRAPH_NONE;
        ask_all(graph, there);
    }
    const struct places at = count_places(graph, job);
    const uint32_t start = yes(graph), seen = before(graph, SHAPE(1, 1, s, s), at, window);
    uint32_t mask = without_padding(graph, job, start, seen, there);
    drop_places(graph, at);
    if (how == HF_MASK_ADDED)
        mask = hf_eager_mask(graph, job, mask);
    graph_drop(graph, there);
    return mask;
}

void hf_padding_test(struct graph *graph)
{
    const struct shape scalar = {.rank = 0};
    const uint32_t mask = graph->attention_mask;
    const uint32_t there = op_number(graph, WORK_EQUAL_NUMBER, ATEN_EQ, DTYPE_BOOL,
                                     graph->tensors[mask].shape, mask, 1.0F);
    const uint32_t all = op_no_grad(graph, WORK_ALL, ATEN_ALL, DTYPE_BOOL, scalar, 1, &there);
    graph_drop(graph, there);
    graph_drop(graph, all);
}

uint32_t hf_unpadded(struct graph *graph, uint32_t y)
{
    const struct shape s = graph->tensors[y].shape;
    if (!graph->padded)
        return y;
    return op_mul_constant(graph, y,
                           graph_view(graph, graph->attention_mask, SHAPE(s.dim[0], s.dim[1], 1)));
}

void hf_drop_unpadded(struct graph *graph, uint32_t y, uint32_t unpadded)
{
    if (unpadded != y)
        graph_drop(graph, unpadded);
}

uint32_t hf_added_mask(struct graph *graph, const struct model_job *job)
{
    return graph->attention_mask != GRAPH_NONE
               ? hf_padded_mask(graph, job, HF_NO_WINDOW, HF_MASK_ADDED)
               : hf_eager_mask(graph, job, hf_window_mask(graph, job, HF_NO_WINDOW));
}

uint32_t hf_causal_mask(struct graph *graph, const struct model_job *job, uint32_t positions)
{
    if (job->traced)
        return hf_traced_mask(graph, job, positions, HF_NO_WINDOW, false);
    if (graph->attention_mask != GRAPH_NONE)
        return hf_padded_mask(graph, job, HF_NO_WINDOW, HF_MASK_ASKED);
    hf_packed_test(graph, job, positions);
    return GRAPH_NONE;
}

uint32_t hf_mask_both_ways(struct graph *graph, const struct model_job *job, uint32_t distance)
{
    const bool padded = graph->attention_mask != GRAPH_NONE;
    const bool none = graph->attention == ATTENTION_FLASH_ATTN;
    if (!padded && (none || distance == HF_NO_WINDOW || job->seq < distance))
        return GRAPH_NONE;
    const struct shape square = SHAPE(1, 1, job->seq, job->seq);
    const uint32_t there = padded ? as_bools(graph) : GRAPH_NONE;
    if (padded)
        drop_all(graph, there);
    if (none)
        return there;
    const struct places at = count_places(graph, job);
    const uint32_t start = padded ? yes(graph) : GRAPH_NONE;
    uint32_t mask = around(graph, job, square, at, distance);
    if (padded)
        mask = without_padding(graph, job, start, mask, there);
    drop_places(graph, at);
    if (padded)
        graph_drop(graph, there);
    return mask;
}
