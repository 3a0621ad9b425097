/* flash_attn.c - flash_attention_forward, transformers' call of the package flash-attn (hf.h).
 *
 * There are no masks: windows, capped scores and fewer heads of k and v are the kernel's business.
 * What is fp32 under autocast is cast first, and values that are narrower than keys are padded. Of
 * a row that is joined of samples (padding-free) each attends to itself alone, which its positions
 * say. */
#include "hf/hf.h"

#include "base/layout.h"
#include "graph/autocast.h"

/* _is_packed_sequence: of a single row of positions, whether any is not the one before and 1. */
static void ask_packed(struct graph *graph, uint32_t positions, uint32_t s)
{
    const struct shape scalar = {.rank = 0}, row = SHAPE(1, s);
    const enum dtype i64 = DTYPE_INT64;
    const uint32_t counted = op_arange(graph, s);
    const uint32_t least = op_no_grad(graph, WORK_LEAST, ATEN_MIN, i64, scalar, 1, &positions);
    const uint32_t increasing =
        op_no_grad(graph, WORK_ADD, ATEN_ADD, i64, SHAPE(s), 2, (uint32_t[]){counted, least});
    graph_drop(graph, counted);
    graph_drop(graph, least);
    const uint32_t apart =
        op_no_grad(graph, WORK_SUB, ATEN_SUB, i64, row, 2, (uint32_t[]){increasing, positions});
    const uint32_t distance = op_no_grad(graph, WORK_ABS, ATEN_ABS, i64, row, 1, &apart);
    graph_drop(graph, apart);
    const uint32_t sum = op_no_grad(graph, WORK_SUM, ATEN_SUM, i64, scalar, 1, &distance);
    graph_drop(graph, distance);
    const uint32_t packed = op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_BOOL, scalar, 1, &sum);
    graph_drop(graph, sum);
    graph_drop(graph, increasing);
    graph_drop(graph, packed);
}

/* prepare_fa_kwargs_from_position_ids, of a row (1, s): the samples begin where positions are
 * least. */
static void find_samples(struct graph *graph, uint32_t positions, struct flash_attn *call)
{
    const struct shape scalar = {.rank = 0};
    const uint32_t s = (uint32_t)shape_elements(&graph->tensors[positions].shape);
    const uint32_t n = (s + call->sample - 1) / call->sample;
    const uint32_t least =
        op_no_grad(graph, WORK_LEAST, ATEN_MIN, DTYPE_INT64, scalar, 1, &positions);
    const uint32_t is_first = op_no_grad(graph, WORK_EQUAL, ATEN_EQ_TENSOR, DTYPE_BOOL, SHAPE(s), 2,
                                         (uint32_t[]){positions, least});
    graph_drop(graph, least);
    const uint32_t first =
        op_no_grad(graph, WORK_OTHER, ATEN_NONZERO, DTYPE_INT64, SHAPE(n, 1), 1, &is_first);
    graph_drop(graph, is_first);
    const uint32_t begins =
        op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_INT32, SHAPE(n), 1, &first);
    const uint32_t end = op_fill(graph, ATEN_LIFT_FRESH, DTYPE_INT32, SHAPE(1), (float)s);
    call->ends = op_no_grad(graph, WORK_CAT, ATEN_CAT, DTYPE_INT32, SHAPE(n + 1), 2,
                            (uint32_t[]){begins, end});
    graph_drop(graph, end);
    graph_drop(graph, begins);
    const uint32_t lengths = op_no_grad(
        graph, WORK_SUB, ATEN_SUB, DTYPE_INT32, SHAPE(n), 2,
        (uint32_t[]){graph_slice(graph, call->ends, 1, n), graph_slice(graph, call->ends, 0, n)});
    call->longest = op_no_grad(graph, WORK_MAXIMUM, ATEN_MAX, DTYPE_INT32, scalar, 1, &lengths);
    graph_drop(graph, lengths);
    graph_drop(graph, first);
}

/* The package's function, which lets go of what it has when it returns: (b, s, a, d). */
static uint32_t call_package(struct graph *graph, const struct flash_attn *call)
{
    const struct flash_attn_result r = op_flash_attn(graph, call);
    for (uint32_t i = 0; i < r.held_count; i++)
        graph_drop(graph, r.held[i]);
    return r.out;
}

/* ---- of a batch that is padded (_upad_input, and the package's pad_input) ---- */

/* Rows of tokens that are no padding, and where each sequence's begin: found in every layer. */
struct unpadded {
    uint32_t rows, ends; /* (n) int64, (b + 1) int32 */
};

/* _get_unpad_data of a mask (b, s) of bools. How long the longest is goes to the host. */
static struct unpadded find_unpadded(struct graph *graph, uint32_t mask)
{
    const struct shape scalar = {.rank = 0}, s = graph->tensors[mask].shape;
    const uint32_t b = s.dim[0], all = b * s.dim[1], n = all - graph->padded;
    const enum dtype i32 = DTYPE_INT32;
    const uint32_t lengths = op_no_grad(graph, WORK_SUM_DIM, ATEN_SUM_DIM, i32, SHAPE(b), 1, &mask);
    const uint32_t flat = graph_view(graph, mask, SHAPE(all));
    const uint32_t found =
        op_no_grad(graph, WORK_OTHER, ATEN_NONZERO, DTYPE_INT64, SHAPE(n, 1), 1, &flat);
    graph_drop(graph, op_no_grad(graph, WORK_MAXIMUM, ATEN_MAX, i32, scalar, 1, &lengths));
    const uint32_t sums =
        op_no_grad(graph, WORK_CUMULATIVE_SUM, ATEN_CUMSUM, i32, SHAPE(b), 1, &lengths);
    const uint32_t ends =
        op_no_grad(graph, WORK_PAD, ATEN_CONSTANT_PAD, i32, SHAPE(b + 1), 1, &sums);
    graph_drop(graph, sums);
    graph_drop(graph, lengths);
    return (struct unpadded){graph_view(graph, found, SHAPE(n)), ends};
}

/* x (b, s, a, d) by its rows alone: (n, a, d). Rows of one that lies in memory as (b, a, s, d) are
 * those of a copy. */
static uint32_t unpad(struct graph *graph, uint32_t x, struct unpadded of)
{
    const struct shape s = graph->tensors[x].shape,
                       flat = SHAPE(s.dim[0] * s.dim[1], s.dim[2], s.dim[3]);
    const struct strides own = graph_strides(graph, x);
    struct strides seen;
    const uint32_t whole = layout_view(&s, &own, &flat, &seen) ? x : op_unary(graph, OP_CLONE, x);
    const uint32_t rows = op_index(graph, op_reshape(graph, whole, flat), of.rows);
    if (whole != x)
        graph_drop(graph, whole);
    return rows;
}

/* How many tokens one sees of its own sequence, were attention not causal: the mean over tokens. */
static uint32_t tokens_seen(const struct graph *graph, struct shape s)
{
    uint64_t squares = 0;
    for (uint32_t b = 0; b < s.dim[0]; b++) {
        const uint64_t length = s.dim[1] - padded_places(graph->padded, s.dim[0], b);
        squares += length * length;
    }
    const uint64_t tokens = (uint64_t)s.dim[0] * s.dim[1] - graph->padded;
    return (uint32_t)((squares + tokens / 2) / tokens);
}

static struct shape in_a_row(const struct graph *graph, uint32_t x)
{
    const struct shape s = graph->tensors[x].shape;
    return SHAPE(1, s.dim[0], s.dim[1], s.dim[2]);
}

/* What `call` is of, (b, s, a, d), of its tokens alone: as much. `goes`: what was made for it, the
 * function's first arguments. */
static uint32_t run_unpadded(struct graph *graph, struct flash_attn *call, uint32_t mask,
                             uint32_t *casts, const uint32_t *goes)
{
    const struct shape s = graph->tensors[call->q].shape;
    const struct unpadded of = find_unpadded(graph, mask);
    const uint32_t k = unpad(graph, call->k, of), v = unpad(graph, call->v, of),
                   q = unpad(graph, call->q, of);
    call->k = graph_view(graph, k, in_a_row(graph, k));
    call->v = graph_view(graph, v, in_a_row(graph, v));
    call->q = graph_view(graph, q, in_a_row(graph, q));
    call->sample = tokens_seen(graph, s);
    call->ends = of.ends;
    call->longest = GRAPH_NONE;
    const uint32_t attended = call_package(graph, call);
    const struct shape row = graph->tensors[attended].shape;
    const uint32_t out = op_index_put_first_axis(
        graph, graph_view(graph, attended, SHAPE(row.dim[1], row.dim[2], row.dim[3])), of.rows,
        s.dim[0] * s.dim[1]);
    for (uint32_t i = 0; i < *casts; i++)
        graph_drop(graph, goes[i]);
    *casts = 0;
    graph_drop(graph, of.ends); /* an argument */
    graph_drop(graph, q);
    graph_drop(graph, k);
    graph_drop(graph, v);
    graph_drop(graph, attended);
    graph_drop(graph, of.rows);
    return graph_view(graph, out, SHAPE(s.dim[0], s.dim[1], row.dim[2], row.dim[3]));
}

/* .contiguous() of (b, s, a, d). */
static uint32_t contiguous(struct graph *graph, uint32_t x)
{
    return graph_is_contiguous(graph, x) ? x : op_unary(graph, OP_CLONE, x);
}

uint32_t hf_flash_attn(struct graph *graph, const struct hf_attention *a)
{
    const struct shape s = graph->tensors[a->q].shape;
    const uint32_t d = s.dim[3], width = graph->tensors[a->v].shape.dim[3];
    uint32_t in[3] = {a->q, a->k, a->v}, cast[3], casts = 0, copy[3], copies = 0;
    const uint32_t widened = width != d ? op_pad_last(graph, a->v, d) : GRAPH_NONE;
    if (widened != GRAPH_NONE)
        in[2] = widened;
    for (uint32_t i = 0; i < 3 && (enum dtype)graph->tensors[a->q].dtype == DTYPE_FP32; i++) {
        const uint32_t narrow = op_to(graph, in[i], autocast_product(graph));
        if (narrow != in[i])
            in[i] = cast[casts++] = narrow;
    }
    const bool padded = a->mask != GRAPH_NONE && graph->padded;
    if (a->positions != 0 && a->positions != GRAPH_NONE && s.dim[0] == 1 && !padded)
        ask_packed(graph, a->positions, s.dim[1]);
    for (uint32_t i = 0; i < 3 && a->sample > 0; i++) {
        const uint32_t whole = contiguous(graph, in[i]);
        if (whole != in[i])
            in[i] = copy[copies++] = whole;
    }
    struct flash_attn call = {
        .q = in[0],
        .k = in[1],
        .v = in[2],
        .sample = a->sample,
        .window = a->window < s.dim[1] ? a->window : 0,
        .causal = !a->both_ways,
        .softcap = a->softcap,
        .dropout = a->dropout,
        .scale = a->scale,
    };
    uint32_t out;
    if (padded) {
        out = run_unpadded(graph, &call, a->mask, &casts, cast);
    } else {
        if (a->sample > 0)
            find_samples(graph, a->positions, &call);
        out = call_package(graph, &call);
        if (a->sample > 0) {
            graph_drop(graph, call.ends);
            graph_drop(graph, call.longest);
        }
    }
    for (uint32_t i = 0; i < copies; i++)
        graph_drop(graph, copy[i]);
    for (uint32_t i = 0; i < casts; i++)
        graph_drop(graph, cast[i]);
    if (widened != GRAPH_NONE)
        graph_drop(graph, widened);
    if (width != d) /* attn_output[..., :v_head_dim] */
        out = op_slice_last(graph, out, 0, width);
    const bool whole = width == d && d % 8 == 0;
    const bool turned = a->q_contiguous && a->sample == 0 && !padded; /* out is in memory as q is */
    if (whole && !(turned && s.dim[1] > 1 && s.dim[2] > 1))
        return out;
    const uint32_t joined = op_unary(graph, OP_CLONE, out); /* .reshape(b, s, a · d) */
    graph_drop(graph, out);
    return joined;
}
