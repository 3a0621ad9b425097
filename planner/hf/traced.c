/* traced.c - the mask that transformers makes while torch.compile traces it (hf.h).
 *
 *     steps (b, s) from position to position -> jumps -> sequence (b, s), a number for each
 *     mask[b, 0, q, k] = sequence[b, q] == sequence[b, k] and position[b, k] <= position[b, q]
 *                        (and position[b, k] > position[b, q] - window)
 *
 * transformers/masking_utils.py, find_packed_sequence_indices and
 * packed_sequence_compatibility_function: eager, one sequence alone makes it return nothing, and
 * attention is causal without a mask; traced, values cannot be asked for. */
#include "hf/hf.h"

static uint32_t own(struct graph *graph, enum work_kind work, enum aten aten, enum dtype dtype,
                    struct shape shape, uint32_t x, uint32_t y)
{
    return op_no_grad(graph, work, aten, dtype, shape, y == GRAPH_NONE ? 1 : 2, (uint32_t[]){x, y});
}

/* Which sequence each of `rows` (b, s) of positions is of: (b, s). */
static uint32_t sequences(struct graph *graph, uint32_t rows)
{
    const struct shape shape = graph->tensors[rows].shape;
    const uint32_t b = shape.dim[0], s = shape.dim[1];
    const uint32_t before = op_number(graph, WORK_ADD_NUMBER, ATEN_SUB, DTYPE_INT64, SHAPE(b, 1),
                                      graph_slice(graph, rows, 0, 1), -1.0F);
    const uint32_t joined =
        own(graph, WORK_CAT, ATEN_CAT, DTYPE_INT64, SHAPE(b, s + 1), before, rows);
    const uint32_t steps = own(graph, WORK_SUB, ATEN_SUB, DTYPE_INT64, shape,
                               graph_slice(graph, joined, 1, s), graph_slice(graph, joined, 0, s));
    const uint32_t jumps =
        op_number(graph, WORK_NOT_EQUAL_NUMBER, ATEN_NE, DTYPE_BOOL, shape, steps, 1.0F);
    const uint32_t sequence =
        own(graph, WORK_CUMULATIVE_SUM, ATEN_CUMSUM, DTYPE_INT64, shape, jumps, GRAPH_NONE);
    graph_drop(graph, before);
    graph_drop(graph, joined);
    graph_drop(graph, steps);
    graph_drop(graph, jumps);
    return sequence;
}

struct both { /* numbers of queries and of keys */
    uint32_t q, k;
};

/* x[b, place] of every b and of places that are all there are: (b, 1, s, 1) and (b, 1, 1, s). */
static struct both pick(struct graph *graph, uint32_t x, uint32_t range)
{
    const struct shape shape = graph->tensors[x].shape;
    const uint32_t b = shape.dim[0], s = shape.dim[1];
    return (struct both){own(graph, WORK_GATHER, ATEN_INDEX, DTYPE_INT64, SHAPE(b, 1, s, 1), x,
                             graph_view(graph, range, SHAPE(1, 1, s, 1))),
                         own(graph, WORK_GATHER, ATEN_INDEX, DTYPE_INT64, SHAPE(b, 1, 1, s), x,
                             graph_view(graph, range, SHAPE(1, 1, 1, s)))};
}

static void drop_both(struct graph *graph, struct both of)
{
    graph_drop(graph, of.q);
    graph_drop(graph, of.k);
}

static uint32_t of_masks(struct graph *graph, enum work_kind work, enum aten aten,
                         struct shape square, uint32_t x, uint32_t y)
{
    return own(graph, work, aten, DTYPE_BOOL, square, x, y);
}

/* and_masks: True and the first, and the second; `x` goes. */
static uint32_t both_masks(struct graph *graph, struct shape square, uint32_t x, uint32_t y)
{
    const uint32_t out = of_masks(graph, WORK_AND, ATEN_BITWISE_AND, square, x, y);
    graph_drop(graph, x);
    return out;
}

static uint32_t also(struct graph *graph, struct shape square, uint32_t mask)
{
    const struct shape scalar = {.rank = 0};
    const uint32_t yes = op_fill(graph, ATEN_NEW_ONES, DTYPE_BOOL, scalar, 1.0F);
    const uint32_t out = both_masks(graph, square, yes, mask);
    graph_drop(graph, mask);
    return out;
}

/* Whether k is not behind q, and within the window that ends there. */
static uint32_t causal_mask(struct graph *graph, struct shape square, struct both at,
                            uint32_t window)
{
    uint32_t near = GRAPH_NONE;
    if (window != HF_NO_WINDOW) {
        const uint32_t first = op_number(graph, WORK_ADD_NUMBER, ATEN_SUB, DTYPE_INT64,
                                         graph->tensors[at.q].shape, at.q, -(float)window);
        near =
            also(graph, square, of_masks(graph, WORK_GREATER, ATEN_GT_TENSOR, square, at.k, first));
        graph_drop(graph, first);
    }
    const uint32_t causal = of_masks(graph, WORK_LESS_EQUAL, ATEN_LE, square, at.k, at.q);
    if (near == GRAPH_NONE)
        return causal;
    const uint32_t out = both_masks(graph, square, near, causal);
    graph_drop(graph, causal);
    return out;
}

uint32_t hf_traced_mask(struct graph *graph, const struct model_job *job, uint32_t positions,
                        uint32_t window, bool added)
{
    const uint32_t b = job->batch, s = job->seq;
    const struct shape square = SHAPE(b, 1, s, s);
    graph_mark(graph, MARK_FRAME); /* a function of its own makes it */
    const uint32_t row = graph_view(graph, positions, SHAPE(1, s));
    const uint32_t rows = op_repeat_no_grad(graph, ATEN_CLONE, row, SHAPE(b, s), 0);
    const uint32_t sequence = sequences(graph, b > 1 ? rows : row), /* one is not expanded yet */
        range = hf_positions(graph, job);
    const struct both of = pick(graph, sequence, range);
    const uint32_t alike =
        also(graph, square, of_masks(graph, WORK_EQUAL, ATEN_EQ_TENSOR, square, of.q, of.k));
    const struct both at = pick(graph, rows, range);
    const uint32_t causal = causal_mask(graph, square, at, window);
    const uint32_t mask = both_masks(graph, square, alike, causal);
    drop_both(graph, of);
    drop_both(graph, at);
    graph_drop(graph, causal);
    graph_drop(graph, sequence);
    graph_drop(graph, range);
    graph_drop(graph, rows);
    const uint32_t out = added ? hf_eager_mask(graph, job, mask) : mask;
    graph_mark(graph, MARK_FRAME_END);
    return out;
}
