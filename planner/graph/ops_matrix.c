/* ops_matrix.c - products of matrices. */
#include "base/layout.h"
#include "graph/autocast.h"
#include "graph/op_class.h"

#include <assert.h>
#include <string.h>

/* addmm's generated node names what it saves by its own arguments (mat1, mat2), mm's (self, mat2):
 * both let go in the alphabet's order. */
static uint32_t save_addmm_factors(const struct graph *graph, const struct graph_op *op,
                                   uint32_t *saved)
{
    uint32_t count = 0;
    if (needs(graph, op->in[1]))
        saved[count++] = op->in[0];
    if (needs(graph, op->in[0]))
        saved[count++] = op->in[1];
    return count;
}

/* A multiplication and an addition for each element of the first factor and column of the result.
 */
static double product_flops(const struct graph *graph, const struct graph_op *op)
{
    return 2.0 * (double)shape_elements(shape_of(graph, op->in[0])) *
           last_dim(shape_of(graph, op->out[0]));
}

/* ---- linear ---- */

/* Whether x (b, s, h) lies so that its tokens are rows of one matrix. */
static bool is_rows(const struct graph *graph, uint32_t x)
{
    const struct shape s = *shape_of(graph, x);
    const struct strides own = graph_strides(graph, x);
    struct strides seen;
    if (s.rank != 3 || layout_is_unknown(graph->tensors[x].layout))
        return true;
    const struct shape rows = SHAPE(s.dim[0] * s.dim[1], s.dim[2]);
    return layout_view(&s, &own, &rows, &seen);
}

/* op_linear of what is not: matmul's should_fold. A copy where the weight needs a gradient, else
 * one product for each sequence. */
static uint32_t linear_across(struct graph *graph, uint32_t x, uint32_t weight)
{
    const struct shape s = *shape_of(graph, x), w = *shape_of(graph, weight);
    if (!graph->tensors[weight].requires_grad) {
        const uint32_t each =
            op_expand(graph, graph_view(graph, weight, SHAPE(1, w.dim[0], w.dim[1])),
                      SHAPE(s.dim[0], w.dim[0], w.dim[1]));
        return op_bmm(graph, x, graph_transpose(graph, each, 1, 2));
    }
    const uint32_t rows = op_unary(graph, OP_CLONE, x);
    const uint32_t out = op_linear(graph, rows, weight, GRAPH_NONE);
    graph_drop(graph, rows);
    return out;
}

uint32_t op_linear(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias)
{
    if (bias == GRAPH_NONE && !is_rows(graph, x))
        return linear_across(graph, x, weight);
    const struct shape in = *shape_of(graph, x), w = *shape_of(graph, weight);
    assert(last_dim(&in) == w.dim[1]);
    const bool biased = bias != GRAPH_NONE;
    const enum op_kind kind = biased ? OP_LINEAR_BIAS : OP_LINEAR;
    uint32_t operands[3] = {x, weight, bias};
    autocast_arguments(graph, kind, 3, operands);
    const uint32_t out =
        simple(graph, kind, biased ? 3 : 2, operands, biased ? ATEN_ADDMM : ATEN_MM,
               dtype_of(graph, operands[0]), SHAPE(rows_of(&in), w.dim[0]));
    return graph_view(graph, out, with_last(in, w.dim[0]));
}

/* Whether x (1, s, h) lies in memory as (h, s), as its gradient does then (mm_mat1_grad). */
static bool is_by_column(const struct graph *graph, uint32_t x)
{
    const struct shape s = *shape_of(graph, x);
    const struct strides own = graph_strides(graph, x);
    return s.rank == 3 && s.dim[0] == 1 && s.dim[1] > 1 && s.dim[2] > 1 &&
           !layout_is_unknown(graph->tensors[x].layout) && own.of[1] == 1 && own.of[2] == s.dim[1];
}

static struct operand linear_grad_input(struct tape *tape, const struct graph *graph,
                                        const struct graph_op *op, struct operand grad)
{
    const struct shape *w = shape_of(graph, op->in[1]);
    const struct operand in[2] = {grad, tape_tensor(tape, op->in[1])};
    const enum dtype dtype = dtype_of(graph, op->in[0]);
    const uint32_t rows = rows_of(shape_of(graph, op->in[0]));
    if (!is_by_column(graph, op->in[0]))
        return tape_call(tape, WORK_MATMUL_NN, ATEN_MM, dtype, SHAPE(rows, w->dim[1]),
                         product_flops(graph, op), 2, in);
    struct operand out = tape_birth(tape, ATEN_MM, dtype, SHAPE(w->dim[1], rows));
    out.shape = SHAPE(rows, w->dim[1]);
    tape_lay_out(tape, &out, &(struct strides){.of = {1, rows}});
    tape_kernel(tape, WORK_MATMUL_NN, ATEN_MM, product_flops(graph, op), 2, in, 1, &out);
    out.shape = *shape_of(graph, op->in[0]);
    tape_lay_out(tape, &out, &(struct strides){.of = {(uint64_t)rows * w->dim[1], 1, rows}});
    return out;
}

static struct operand linear_grad_weight(struct tape *tape, const struct graph *graph,
                                         const struct graph_op *op, struct operand grad)
{
    const struct operand in[2] = {grad, tape_tensor(tape, op->in[0])};
    return tape_call(tape, WORK_MATMUL_TN, ATEN_MM, dtype_of(graph, op->in[1]),
                     *shape_of(graph, op->in[1]), product_flops(graph, op), 2, in);
}

/* mm computes the weight's gradient first, addmm the input's. Gradients arrive by the ages of the
 * nodes in between, younger ones first: with a bias the input is flattened before the weight is
 * transposed (_flatten_nd_linear), without one after it (matmul). What is a matrix is not
 * flattened: no node is in between. The bias is a leaf and goes at once. */

/* A product of LinearFunctionForZeroStage3, each of which makes rows of the gradient for itself. */
static struct operand
own_product(struct tape *tape, const struct graph *graph, const struct graph_op *op,
            struct operand (*product)(struct tape *, const struct graph *, const struct graph_op *,
                                      struct operand))
{
    struct operand grad;
    const bool copied = tape_rows_of_grad(tape, op, &grad);
    const struct operand made = product(tape, graph, op, grad);
    if (copied)
        tape_death(tape, grad);
    return made;
}

/* LinearFunctionForZeroStage3 (deepspeed, runtime/zero/linear.py): input, weight, bias. */
static void own_linear_backward(struct tape *tape, const struct graph *graph,
                                const struct graph_op *op)
{
    struct operand made[3] = {{.place = PLACE_NONE}, {.place = PLACE_NONE}, {.place = PLACE_NONE}};
    if (tape_needs(tape, op, 0))
        made[0] = own_product(tape, graph, op, linear_grad_input);
    if (tape_needs(tape, op, 1))
        made[1] = own_product(tape, graph, op, linear_grad_weight);
    if (op->ins > 2 && tape_needs(tape, op, 2)) {
        const struct operand grad = tape_grad_where_it_lies(tape, op);
        made[2] =
            tape_call(tape, WORK_SUM, ATEN_SUM_DIM, dtype_of(graph, op->in[2]),
                      *shape_of(graph, op->in[2]), (double)shape_elements(&grad.shape), 1, &grad);
    }
    for (uint32_t i = 0; i < op->ins && i < 3; i++)
        if (tape_needs(tape, op, i))
            tape_give(tape, op, i, made[i]);
}

OP_BACKWARD(linear)
{
    if (tape_own_linear(tape, op)) {
        own_linear_backward(tape, graph, op);
        return;
    }
    tape_grad_in_rows(tape, op);
    const struct operand none = {.place = PLACE_NONE};
    const struct operand weight = tape_needs(tape, op, 1)
                                      ? linear_grad_weight(tape, graph, op, tape_grad(tape, op, 0))
                                      : none;
    if (tape_needs(tape, op, 0))
        tape_give(tape, op, 0, linear_grad_input(tape, graph, op, tape_grad(tape, op, 0)));
    if (tape_needs(tape, op, 1))
        tape_give_view(tape, op, 1, weight); /* transposed back */
}

OP_CLASS(linear) = {
    .label = ATEN_MM,
    .work = WORK_MATMUL_NT,
    .saved = save_factors,
    .backward = linear_backward,
    .flops = product_flops,
    .keep = KEEP_EVERY_SECOND,
    .saves_rows = true,
    .turns_weight = true,
};

OP_BACKWARD(linear_bias)
{
    if (tape_own_linear(tape, op)) {
        own_linear_backward(tape, graph, op);
        return;
    }
    tape_grad_in_rows(tape, op);
    const struct operand none = {.place = PLACE_NONE};
    const struct operand input =
        tape_needs(tape, op, 0) ? linear_grad_input(tape, graph, op, tape_grad(tape, op, 0)) : none;
    const struct operand weight = tape_needs(tape, op, 1)
                                      ? linear_grad_weight(tape, graph, op, tape_grad(tape, op, 0))
                                      : none;
    const bool matrix = shape_of(graph, op->in[0])->rank == 2; /* which no view's node is before */
    if (matrix && tape_needs(tape, op, 0))
        tape_give(tape, op, 0, input);
    if (tape_needs(tape, op, 2))
        tape_give_summed(tape, op, 2, tape_grad(tape, op, 0));
    if (tape_needs(tape, op, 1))
        tape_give_view(tape, op, 1, weight); /* transposed back */
    if (!matrix && tape_needs(tape, op, 0))
        tape_give(tape, op, 0, input);
}

OP_CLASS(linear_bias) = {
    .label = ATEN_ADDMM,
    .work = WORK_MATMUL_NT_BIAS,
    .saved = save_addmm_factors,
    .backward = linear_bias_backward,
    .flops = product_flops,
    .keep = KEEP_ALWAYS,
    .saves_rows = true,
    .turns_weight = true,
};

/* ---- Conv1D: a Linear whose weight is (in, out) ---- */

uint32_t op_conv1d(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias)
{
    const struct shape in = *shape_of(graph, x), w = *shape_of(graph, weight);
    assert(last_dim(&in) == w.dim[0]);
    /* torch.addmm(bias, x.view(-1, i), weight): casts that autocast makes come behind the view */
    const uint32_t rows = op_view_node(graph, x, SHAPE(rows_of(&in), w.dim[0]));
    uint32_t called[3] = {bias, rows, weight};
    autocast_arguments(graph, OP_CONV1D, 3, called);
    const uint32_t operands[3] = {called[1], called[2], called[0]};
    const uint32_t out = simple(graph, OP_CONV1D, 3, operands, ATEN_ADDMM,
                                dtype_of(graph, operands[0]), SHAPE(rows_of(&in), w.dim[1]));
    return graph_view(graph, out, with_last(in, w.dim[1]));
}

/* As a Linear with bias; the weight is the leaf itself, so its gradient is complete at once. */
OP_BACKWARD(conv1d)
{
    const struct shape *x = shape_of(graph, op->in[0]);
    const struct operand grad = tape_grad(tape, op, 0);
    struct operand input = {.place = PLACE_NONE}, weight = {.place = PLACE_NONE};
    if (tape_needs(tape, op, 0))
        input = tape_call(tape, WORK_MATMUL_NT, ATEN_MM, dtype_of(graph, op->in[0]),
                          SHAPE(rows_of(x), last_dim(x)), product_flops(graph, op), 2,
                          (struct operand[]){grad, tape_tensor(tape, op->in[1])});
    if (tape_needs(tape, op, 1))
        weight = tape_call(tape, WORK_MATMUL_TN, ATEN_MM, dtype_of(graph, op->in[1]),
                           *shape_of(graph, op->in[1]), product_flops(graph, op), 2,
                           (struct operand[]){tape_tensor(tape, op->in[0]), grad});
    if (tape_needs(tape, op, 2))
        tape_give_summed(tape, op, 2, grad);
    if (tape_needs(tape, op, 1))
        tape_give(tape, op, 1, weight);
    if (tape_needs(tape, op, 0))
        tape_give(tape, op, 0, input);
}

OP_CLASS(conv1d) = {
    .label = ATEN_ADDMM,
    .work = WORK_MATMUL_NN_BIAS,
    .saved = save_addmm_factors,
    .backward = conv1d_backward,
    .flops = product_flops,
    .keep = KEEP_ALWAYS,
};

/* ---- batches, and groups of rows ---- */

uint32_t op_bmm(struct graph *graph, uint32_t x, uint32_t y)
{
    const struct shape a = *shape_of(graph, x), b = *shape_of(graph, y);
    assert(a.rank == 3 && b.rank == 3 && a.dim[2] == b.dim[1]);
    uint32_t operands[2] = {x, y};
    autocast_arguments(graph, OP_BMM, 2, operands);
    return simple(graph, OP_BMM, 2, operands, ATEN_BMM, dtype_of(graph, operands[0]),
                  SHAPE(a.dim[0], a.dim[1], b.dim[2]));
}

uint32_t op_baddbmm(struct graph *graph, uint32_t bias, uint32_t x, uint32_t y, float alpha)
{
    const struct shape a = *shape_of(graph, x), b = *shape_of(graph, y);
    assert(a.rank == 3 && b.rank == 3 && a.dim[2] == b.dim[1] && !needs(graph, bias));
    uint32_t called[3] = {bias, x, y};
    autocast_arguments(graph, OP_BADDBMM, 3, called);
    const uint32_t in[3] = {called[1], called[2], called[0]};
    const uint32_t op = begin(graph, OP_BADDBMM, 3, in);
    graph->ops[op].attr.p = alpha;
    const uint32_t out = graph_op_birth(graph, op, ATEN_BADDBMM, dtype_of(graph, in[0]),
                                        SHAPE(a.dim[0], a.dim[1], b.dim[2]));
    graph_op_done(graph, op);
    return out;
}

/* x (b, a, i, j) as matmul's batches (b·a, i, j); *copy: what was made for it, else GRAPH_NONE. */
static uint32_t batches(struct graph *graph, uint32_t x, uint32_t *copy)
{
    const struct shape s = *shape_of(graph, x);
    const struct shape flat = SHAPE(s.dim[0] * s.dim[1], s.dim[2], s.dim[3]);
    const struct strides own = graph_strides(graph, x);
    struct strides seen;
    *copy = GRAPH_NONE;
    if (!layout_is_unknown(graph->tensors[x].layout) && !layout_view(&s, &own, &flat, &seen))
        x = *copy = op_unary(graph, OP_CLONE, x);
    return graph_view(graph, x, flat);
}

uint32_t op_matmul(struct graph *graph, uint32_t x, uint32_t y)
{
    const struct shape s = *shape_of(graph, x);
    uint32_t in[2] = {x, y}, copy[2];
    autocast_arguments(graph, OP_BMM, 2, in); /* its own, before it copies */
    const struct shape other = *shape_of(graph, in[1]);
    in[1] = op_expand(graph, in[1], SHAPE(s.dim[0], s.dim[1], other.dim[2], other.dim[3]));
    const uint32_t left = batches(graph, in[0], &copy[0]), right = batches(graph, in[1], &copy[1]);
    const struct graph_autocast casts = graph->autocast;
    graph->autocast.passing_count = 0; /* they are who called's, and outlive the copies */
    const uint32_t product = op_bmm(graph, left, right);
    for (uint32_t i = 2; i-- > 0;)
        if (copy[i] != GRAPH_NONE)
            graph_drop(graph, copy[i]);
    graph->autocast.passing_count = casts.passing_count;
    memcpy(graph->autocast.passing, casts.passing, sizeof casts.passing);
    graph_call_done(graph, OP_BMM);
    return op_reshape(graph, product, with_last(s, last_dim(shape_of(graph, y))));
}

/* The second operand's gradient is computed first, as mm does. */
OP_BACKWARD(bmm)
{
    const struct operand grad = tape_grad(tape, op, 0);
    struct operand made[2] = {{.place = PLACE_NONE}, {.place = PLACE_NONE}};
    for (uint32_t i = 2; i-- > 0;) {
        const struct operand other = tape_tensor(tape, op->in[1 - i]);
        if (tape_needs(tape, op, i))
            made[i] = tape_call(
                tape, i == 0 ? WORK_BMM_NT : WORK_BMM_TN, ATEN_BMM, dtype_of(graph, op->in[i]),
                *shape_of(graph, op->in[i]), product_flops(graph, op), 2,
                i == 0 ? (struct operand[]){grad, other} : (struct operand[]){other, grad});
    }
    for (uint32_t i = 0; i < 2; i++)
        if (tape_needs(tape, op, i))
            tape_give(tape, op, i, made[i]);
}

OP_CLASS(bmm) = {
    .label = ATEN_BMM,
    .work = WORK_BMM_NN,
    .saved = save_factors,
    .backward = bmm_backward,
    .flops = product_flops,
    .keep = KEEP_ALWAYS,
};

/* Each product, times alpha, takes the place of the product; the first factor's comes first. */
OP_BACKWARD(baddbmm)
{
    const struct operand grad = tape_grad(tape, op, 0);
    struct operand made[2] = {{.place = PLACE_NONE}, {.place = PLACE_NONE}};
    for (uint32_t i = 0; i < 2; i++) {
        if (!tape_needs(tape, op, i))
            continue;
        const struct operand other = tape_tensor(tape, op->in[1 - i]);
        const struct operand in[2] = {i == 0 ? grad : other, i == 0 ? other : grad};
        const struct operand product = tape_call(
            tape, i == 0 ? WORK_BMM_NT : WORK_BMM_TN, ATEN_BMM, dtype_of(graph, op->in[i]),
            *shape_of(graph, op->in[i]), product_flops(graph, op), 2, in);
        made[i] = call_number(tape, WORK_MUL_NUMBER, ATEN_MUL_SCALAR, product, op->attr.p);
        tape_death(tape, product);
    }
    for (uint32_t i = 0; i < 2; i++)
        if (tape_needs(tape, op, i))
            tape_give(tape, op, i, made[i]);
}

OP_CLASS(baddbmm) = {
    .label = ATEN_BADDBMM,
    .work = WORK_BMM_NN_BIAS,
    .saved = save_factors,
    .backward = baddbmm_backward,
    .flops = product_flops,
};

uint32_t op_grouped_mm(struct graph *graph, uint32_t x, uint32_t weight, uint32_t offsets)
{
    const struct shape in = *shape_of(graph, x), w = *shape_of(graph, weight);
    assert(in.rank == 2 && w.rank == 3 && in.dim[1] == w.dim[2]);
    return simple(graph, OP_GROUPED_MM, 3, (uint32_t[]){x, weight, offsets}, ATEN_GROUPED_MM,
                  dtype_of(graph, x), SHAPE(in.dim[0], w.dim[1]));
}

uint32_t op_grouped_mm_nn(struct graph *graph, uint32_t x, uint32_t weight, uint32_t offsets)
{
    const struct shape in = *shape_of(graph, x), w = *shape_of(graph, weight);
    assert(in.rank == 2 && w.rank == 3 && in.dim[1] == w.dim[1]);
    return simple(graph, OP_GROUPED_MM_NN, 3, (uint32_t[]){x, weight, offsets}, ATEN_GROUPED_MM,
                  dtype_of(graph, x), SHAPE(in.dim[0], w.dim[2]));
}

OP_SAVED(grouped_mm)
{
    uint32_t count = 0;
    if (needs(graph, op->in[0]))
        saved[count++] = op->in[1];
    saved[count++] = op->in[2];
    if (needs(graph, op->in[1]))
        saved[count++] = op->in[0];
    return count;
}

/* As mm: the weight's gradient first, of the shape that the weight has. */
OP_BACKWARD(grouped_mm)
{
    const bool as_is = op->kind == OP_GROUPED_MM_NN;
    const struct operand grad = tape_grad(tape, op, 0), offsets = tape_tensor(tape, op->in[2]);
    for (uint32_t i = 2; i-- > 0;) {
        if (!tape_needs(tape, op, i))
            continue;
        const struct operand other = tape_tensor(tape, op->in[1 - i]);
        const bool turned = i == 1 && as_is; /* xᵀ dy in place of dyᵀ x */
        const struct operand in[3] = {turned ? other : grad, turned ? grad : other, offsets};
        const enum work_kind work = i == 1  ? WORK_GROUPED_MM_TN
                                    : as_is ? WORK_GROUPED_MM_NT
                                            : WORK_GROUPED_MM_NN;
        tape_give(tape, op, i,
                  tape_call(tape, work, ATEN_GROUPED_MM, dtype_of(graph, op->in[i]),
                            *shape_of(graph, op->in[i]), product_flops(graph, op), 3, in));
    }
}

OP_CLASS(grouped_mm) = {
    .label = ATEN_GROUPED_MM,
    .work = WORK_GROUPED_MM_NT,
    .saved = grouped_mm_saved,
    .backward = grouped_mm_backward,
    .flops = product_flops,
    .turns_weight = true,
};

OP_CLASS(grouped_mm_nn) = {
    .label = ATEN_GROUPED_MM,
    .work = WORK_GROUPED_MM_NN,
    .saved = grouped_mm_saved,
    .backward = grouped_mm_backward,
    .flops = product_flops,
};
