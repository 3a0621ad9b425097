/* rope.c - RoPE of part of a head, and with frequencies that follow the sequence (hf.h). */
#include "hf/hf.h"

static uint32_t frequencies_of(struct graph *graph, const struct model_config *c, uint32_t s,
                               uint32_t d)
{
    return build_rope(graph, c, &(struct model_job){.seq = s}, ROPE_FREQUENCIES, d);
}

struct hf_frequencies hf_rope_buffers(struct graph *graph, const struct model_config *c,
                                      const struct model_job *job, uint32_t d)
{
    const bool changes = c->rope.scaling == ROPE_LONGROPE;
    const uint32_t original = c->rope.original_positions;
    struct hf_frequencies f = {.longer = GRAPH_NONE,
                               .asks = c->rope.scaling == ROPE_DYNAMIC,
                               .longest = GRAPH_NONE,
                               .original_positions = original};
    f.now = frequencies_of(graph, c, job->seq, d);                    /* inv_freq */
    f.original = frequencies_of(graph, c, changes ? 1 : job->seq, d); /* original_inv_freq */
    if (changes) { /* long_inv_freq, which the first step makes */
        f.longer = frequencies_of(graph, c, c->rope.original_positions + 1, d);
        graph->buffers[graph->storages[graph->tensors[f.longer].storage].index].unlisted = true;
    }
    if (f.asks && job->seq > original) /* max_seq_len_cached; no plan follows from what it holds */
        f.longest = graph_buffer(graph, DTYPE_INT64, (struct shape){.rank = 0},
                                 &(struct buffer_values){.kind = VALUES_ZEROS, .unlisted = true});
    return f;
}

/* max(positions) + 1 */
static uint32_t length_of(struct graph *graph, uint32_t positions)
{
    const struct shape scalar = {.rank = 0};
    const uint32_t last =
        op_no_grad(graph, WORK_MAXIMUM, ATEN_MAX, DTYPE_INT64, scalar, 1, &positions);
    const uint32_t length =
        op_number(graph, WORK_ADD_NUMBER, ATEN_ADD, DTYPE_INT64, scalar, last, 1.0F);
    graph_drop(graph, last);
    return length;
}

/* length > longest before? length < original? Neither is, or nothing follows from it. */
static void ask_length(struct graph *graph, const struct hf_frequencies *f, uint32_t positions)
{
    const struct shape scalar = {.rank = 0};
    const float original = (float)f->original_positions;
    const uint32_t length = length_of(graph, positions);
    const uint32_t longer =
        f->longest == GRAPH_NONE
            ? op_number(graph, WORK_GREATER_NUMBER, ATEN_GT, DTYPE_BOOL, scalar, length, original)
            : op_no_grad(graph, WORK_GREATER, ATEN_GT_TENSOR, DTYPE_BOOL, scalar, 2,
                         (uint32_t[]){length, f->longest});
    graph_drop(graph, longer);
    graph_drop(graph,
               op_number(graph, WORK_LESS_NUMBER, ATEN_LT, DTYPE_BOOL, scalar, length, original));
    graph_drop(graph, length);
}

/* where(max(positions) + 1 > original positions, longer, original), which is copied into inv_freq
 * and dies. */
void hf_rope_update(struct graph *graph, const struct hf_frequencies *f, uint32_t positions)
{
    if (f->asks)
        ask_length(graph, f, positions);
    if (f->longer == GRAPH_NONE)
        return;
    const struct shape scalar = {.rank = 0};
    const uint32_t length = length_of(graph, positions);
    const uint32_t is_long = op_number(graph, WORK_GREATER_NUMBER, ATEN_GT, DTYPE_BOOL, scalar,
                                       length, (float)f->original_positions);
    const uint32_t chosen =
        op_no_grad(graph, WORK_WHERE, ATEN_WHERE, DTYPE_FP32, graph->tensors[f->longer].shape, 3,
                   (uint32_t[]){is_long, f->longer, f->original});
    graph_drop(graph, is_long);
    graph_drop(graph, length);
    graph_drop(graph, chosen);
}

/* `x` by a call of one operand and a number, which takes its place. */
static uint32_t then(struct graph *graph, enum work_kind work, enum aten aten, uint32_t x,
                     float number)
{
    const uint32_t out =
        op_number(graph, work, aten, DTYPE_FP32, graph->tensors[x].shape, x, number);
    graph_drop(graph, x);
    return out;
}

/* 1 / x, written 1.0 / x: x goes last. */
static uint32_t inverse(struct graph *graph, uint32_t x)
{
    const struct shape shape = graph->tensors[x].shape;
    const uint32_t reciprocal =
        op_no_grad(graph, WORK_RECIPROCAL, ATEN_RECIPROCAL, DTYPE_FP32, shape, 1, &x);
    const uint32_t out = then(graph, WORK_MUL_NUMBER, ATEN_MUL, reciprocal, 1.0F);
    graph_drop(graph, x);
    return out;
}

/* 1 / (theta to the power 2i / d); or 1 / (factors · that). */
static uint32_t make_frequencies(struct graph *graph, const struct model_config *c, uint32_t d)
{
    const struct shape pairs = SHAPE(d / 2);
    const float theta = c->rope.theta, width = (float)d;
    if (c->rope.scaling == ROPE_DEFAULT) {
        const uint32_t range =
            op_no_grad(graph, WORK_OTHER, ATEN_ARANGE_STEP, DTYPE_FP32, pairs, 0, NULL);
        const uint32_t share = then(graph, WORK_DIV_NUMBER, ATEN_DIV, range, width);
        return inverse(graph, then(graph, WORK_OTHER, ATEN_POW_SCALAR, share, theta));
    }
    const uint32_t factors =
        op_no_grad(graph, WORK_OTHER, ATEN_LIFT_FRESH, DTYPE_FP32, pairs, 0, NULL);
    const uint32_t range =
        op_no_grad(graph, WORK_OTHER, ATEN_ARANGE_STEP, DTYPE_INT64, pairs, 0, NULL);
    const uint32_t cast = then(graph, WORK_CAST, ATEN_TO_COPY, range, 0);
    const uint32_t share = then(graph, WORK_DIV_NUMBER, ATEN_DIV, cast, width);
    const uint32_t power =
        op_number(graph, WORK_OTHER, ATEN_POW_SCALAR, DTYPE_FP32, pairs, share, theta);
    const uint32_t product =
        op_no_grad(graph, WORK_MUL, ATEN_MUL, DTYPE_FP32, pairs, 2, (uint32_t[]){factors, power});
    graph_drop(graph, power);
    const uint32_t out = inverse(graph, product);
    graph_drop(graph, factors);
    graph_drop(graph, share);
    return out;
}

struct hf_angles hf_rope_remade(struct graph *graph, const struct model_config *c,
                                uint32_t positions, uint32_t d)
{
    struct hf_angles angles = {.positions = positions, .remade = true};
    angles.length = length_of(graph, positions);
    if (c->rope.scaling != ROPE_DEFAULT) /* which of two factors cos and sin are times */
        graph_drop(graph, op_number(graph, WORK_GREATER_NUMBER, ATEN_GT, DTYPE_BOOL,
                                    (struct shape){.rank = 0}, angles.length,
                                    (float)c->rope.original_positions));
    angles.frequencies = make_frequencies(graph, c, d);
    return angles;
}

/* Of each table the first half, each number of it twice. */
struct hf_rope hf_rope_interleaved(struct graph *graph, struct hf_rope rope)
{
    uint32_t tables[2] = {rope.cos, rope.sin};
    for (int i = 0; i < 2; i++) {
        const struct graph_tensor t = graph->tensors[tables[i]]; /* (1, s, d) */
        const struct shape pairs = SHAPE(1, 1, t.shape.dim[1], t.shape.dim[2] / 2, 2);
        const uint32_t half = graph_slice(graph, tables[i], 0, t.shape.dim[2] / 2);
        const uint32_t doubled = op_no_grad(graph, WORK_INTERLEAVE, ATEN_CLONE, (enum dtype)t.dtype,
                                            pairs, 2, (uint32_t[]){half, half});
        tables[i] = graph_view(graph, doubled, t.shape);
    }
    return (struct hf_rope){.cos = tables[0], .sin = tables[1]};
}

struct hf_cut hf_cut_heads(struct graph *graph, uint32_t x, uint32_t turned)
{
    const uint32_t d = graph->tensors[x].shape.dim[3];
    const uint32_t first = turned == d ? op_alias(graph, x) : op_slice_last(graph, x, 0, turned);
    return (struct hf_cut){first, op_slice_last(graph, x, turned, d - turned)};
}

/* Compiled, a cat of one that has elements is that one (torch/_inductor/decomposition.py, cat): in
 * its order of memory, too, which the attention's result has then. */
uint32_t hf_join_heads(struct graph *graph, uint32_t embedded, uint32_t passed)
{
    if (graph->compiled && shape_elements(&graph->tensors[passed].shape) == 0)
        return embedded;
    const uint32_t out = op_cat_last(graph, embedded, passed);
    graph_drop(graph, embedded);
    return out;
}

/* A number of each position from another, which goes. */
static uint32_t next(struct graph *graph, enum work_kind work, enum aten aten, uint32_t x,
                     float number)
{
    const struct shape shape = graph->tensors[x].shape;
    const uint32_t out = op_number(graph, work, aten, DTYPE_FP32, shape, x, number);
    graph_drop(graph, x);
    return out;
}

uint32_t hf_scale_by_position(struct graph *graph, uint32_t q, uint32_t positions, float beta,
                              uint32_t step)
{
    const struct shape s = SHAPE(1, graph->tensors[positions].shape.dim[0]);
    const uint32_t row = graph_view(graph, positions, s);
    const uint32_t part =
        op_number(graph, WORK_DIV_NUMBER, ATEN_DIV, DTYPE_FP32, s, row, (float)step);
    const uint32_t whole = next(graph, WORK_FLOOR_DIV_NUMBER, ATEN_FLOOR, part, 1.0F);
    const uint32_t shifted = next(graph, WORK_ADD_NUMBER, ATEN_ADD, whole, 1.0F);
    const uint32_t log = next(graph, WORK_LOG, ATEN_LOG, shifted, 0);
    const uint32_t part_of = next(graph, WORK_MUL_NUMBER, ATEN_MUL, log, beta);
    const uint32_t scale = next(graph, WORK_ADD_NUMBER, ATEN_ADD, part_of, 1.0F);
    const uint32_t column = graph_view(graph, scale, SHAPE(1, 1, s.dim[1], 1));
    const uint32_t cast = op_to(graph, column, (enum dtype)graph->tensors[q].dtype);
    if (cast != column)
        graph_drop(graph, scale);
    const uint32_t out = op_mul_constant(graph, q, cast);
    graph_drop(graph, cast);
    return out;
}
