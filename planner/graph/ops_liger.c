/* ops_liger.c - Liger's kernels of a block (liger-kernel 0.8.5, ops/rms_norm.py, swiglu.py,
 * geglu.py, rope.py): `--liger`.
 *
 *     rms_norm   the result, and a number of each row in fp32; backward: parts of the weight's
 *                gradient, one for each multiprocessor, which are summed and cast; the input's
 *                gradient in the place of the result's
 *     glu        act(a) b from a and b, which it saves, and in whose place backward puts their
 *                gradients
 *     rope       q and k turned in their place, and so are their gradients
 *
 * All are functions of torch.autograd in Python around Triton kernels that write what they are
 * given. What is not contiguous they copy first. Each kernel walks over its operands once: they
 * cost what that takes (cost/traffic.c has no rows of them). */
#include "base/layout.h"
#include "graph/op_class.h"

enum { A100 = 108 }; /* where the GPU is not known */

/* Elements of a tensor of `shape` at `layout` (NULL: rows `pitch` apart; 0: dense) lie one behind
 * the other: of a dim of one element it does not matter how far apart they would be. */
static bool is_dense(const struct shape *shape, const struct strides *layout, uint32_t pitch)
{
    const struct strides dense = layout_of_rows(shape, 0), is = layout_of(shape, pitch, layout);
    return layout_same(shape, &is, &dense);
}

/* The gradient that an output got, or a copy where it is not contiguous: whether it is one. */
static bool contiguous_grad(struct tape *tape, const struct graph_op *op, uint32_t out,
                            struct operand *grad)
{
    *grad = tape_grad(tape, op, out);
    if (is_dense(&grad->shape, grad->layout, grad->pitch))
        return false;
    *grad = tape_call(tape, WORK_REORDER, ATEN_CLONE, (enum dtype)grad->dtype, grad->shape, -1.0, 1,
                      grad);
    return true;
}

/* ---- RMSNorm ---- */

uint32_t op_liger_rms_norm(struct graph *graph, uint32_t x, uint32_t weight,
                           const struct liger_norm *norm)
{
    const struct shape shape = *shape_of(graph, x);
    const uint32_t rows = rows_of(&shape), n = last_dim(&shape);
    const bool copies = !graph_is_contiguous(graph, x);
    const enum op_kind kind = norm->apart ? OP_LIGER_RMS_NORM_APART : OP_LIGER_RMS_NORM;
    const uint32_t op = begin(graph, kind, 2, (uint32_t[]){x, weight});
    const uint32_t out = graph_op_birth(graph, op, ATEN_EMPTY, dtype_of(graph, x), shape);
    graph->storages[graph->tensors[out].storage].shape = SHAPE(rows, n); /* as it is born */
    graph_op_birth(graph, op, ATEN_EMPTY, DTYPE_FP32, SHAPE(rows));
    if (copies)
        graph_op_birth(graph, op, ATEN_CLONE, dtype_of(graph, x), shape);
    graph->ops[op].hidden = copies ? 2 : 1;
    graph->ops[op].attr.eps = norm->eps;
    graph->ops[op].attr.p = norm->offset;
    graph_op_done(graph, op);
    return out;
}

enum { NORM_RSTD = 1, NORM_X };

/* What the function is given: its operand, or a copy. */
static uint32_t norm_x(const struct graph_op *op)
{
    return op->hidden == 2 ? op->out[NORM_X] : op->in[0];
}

static void liger_rms_norm_forward(struct tape *tape, const struct graph *graph,
                                   const struct graph_op *op)
{
    (void)graph;
    struct operand in[2] = {tape_tensor(tape, op->in[0]), tape_tensor(tape, op->in[1])};
    if (norm_x(op) != op->in[0]) {
        const struct operand copy = tape_birth_output(tape, op, NORM_X);
        tape_kernel(tape, WORK_REORDER, ATEN_CLONE, -1.0, 1, &in[0], 1, &copy);
        in[0] = copy;
    }
    struct operand out[2];
    for (uint32_t i = 0; i < 2; i++)
        out[i] = tape_birth_output(tape, op, i);
    tape_kernel(tape, WORK_RMS_NORM_OFFSET, ATEN_LIGER_RMS_NORM, -1.0, 2, in, 2, out);
}

OP_SAVED(liger_rms_norm)
{
    (void)graph;
    saved[0] = norm_x(op);
    saved[1] = op->in[1];
    saved[2] = op->out[1];
    return 3;
}

/* The weight's gradient from its parts, which die when the function returns. */
static struct operand sum_of_parts(struct tape *tape, struct operand parts, enum dtype dtype)
{
    const struct operand sum = tape_call(tape, WORK_SUM_DIM, ATEN_SUM_DIM, DTYPE_FP32,
                                         SHAPE(parts.shape.dim[1]), -1.0, 1, &parts);
    tape_dim(tape, 0);
    return as_stored(tape, sum, dtype);
}

static void rms_norm_backward(struct tape *tape, const struct graph *graph,
                              const struct graph_op *op, bool apart)
{
    const uint32_t parts = graph->multiprocessors ? graph->multiprocessors : A100;
    const bool dweight = tape_needs(tape, op, 1);
    struct operand grad, out[2];
    const bool copied = contiguous_grad(tape, op, 0, &grad);
    const struct shape n = SHAPE(parts, last_dim(&grad.shape));
    if (dweight)
        out[1] = tape_birth(tape, ATEN_EMPTY, DTYPE_FP32, n);
    out[0] = grad;
    if (apart) {
        out[0] = tape_call(tape, WORK_FILL, ATEN_ZEROS_LIKE, (enum dtype)grad.dtype,
                           SHAPE(rows_of(&grad.shape), n.dim[1]), -1.0, 0, NULL);
        out[0].shape = grad.shape;
    }
    const struct operand in[4] = {grad, tape_tensor(tape, norm_x(op)), tape_tensor(tape, op->in[1]),
                                  tape_tensor(tape, op->out[NORM_RSTD])};
    tape_kernel(tape, WORK_RMS_NORM_BACKWARD_PARTS, ATEN_LIGER_RMS_NORM_BACKWARD, -1.0, 4, in,
                dweight ? 2 : 1, out);
    struct operand sum = {.place = PLACE_NONE};
    if (dweight) {
        sum = sum_of_parts(tape, out[1], dtype_of(graph, op->in[1]));
        tape_death(tape, out[1]);
    }
    tape_end_frame(tape, op);
    if (copied && apart)
        tape_death(tape, grad);
    if (tape_needs(tape, op, 0))
        tape_give_view(tape, op, 0, out[0]);
    else if (copied || apart)
        tape_give_unasked(tape, out[0]);
    else
        tape_pass_unasked(tape, out[0]);
    if (dweight)
        tape_give(tape, op, 1, sum);
}

OP_BACKWARD(liger_rms_norm)
{
    rms_norm_backward(tape, graph, op, false);
}

OP_CLASS(liger_rms_norm) = {
    .label = ATEN_LIGER_RMS_NORM,
    .saved = liger_rms_norm_saved,
    .forward = liger_rms_norm_forward,
    .backward = liger_rms_norm_backward,
    .saves_rows = true,
    .in_python = true,
};

OP_BACKWARD(liger_rms_norm_apart)
{
    rms_norm_backward(tape, graph, op, true);
}

OP_CLASS(liger_rms_norm_apart) = {
    .label = ATEN_LIGER_RMS_NORM,
    .saved = liger_rms_norm_saved,
    .forward = liger_rms_norm_forward,
    .backward = liger_rms_norm_apart_backward,
    .saves_rows = true,
    .in_python = true,
};

/* ---- gated units ---- */

enum { GLU_A = 1, GLU_B }; /* outputs: copies of what is not contiguous, else operands */

uint32_t op_liger_glu(struct graph *graph, enum op_kind kind, uint32_t a, uint32_t b)
{
    const struct shape shape = *shape_of(graph, a);
    const bool copies = !graph_is_contiguous(graph, a) || !graph_is_contiguous(graph, b);
    const uint32_t op = begin(graph, kind, 2, (uint32_t[]){a, b});
    const uint32_t out = graph_op_birth(graph, op, ATEN_EMPTY_LIKE, dtype_of(graph, a), shape);
    graph->storages[graph->tensors[out].storage].shape =
        SHAPE(rows_of(&shape), last_dim(&shape)); /* as it is born */
    for (uint32_t i = 0; i < 2 && copies; i++)
        graph_op_birth(graph, op, ATEN_CLONE, dtype_of(graph, a), shape);
    graph->ops[op].hidden = copies ? 2 : 0;
    graph_op_done(graph, op);
    return out;
}

/* What the function saves: its operands as they are, or copies. */
static uint32_t factor(const struct graph_op *op, uint32_t i)
{
    return op->hidden ? op->out[GLU_A + i] : op->in[i];
}

OP_SAVED(liger_glu)
{
    (void)graph;
    saved[0] = factor(op, 0);
    saved[1] = factor(op, 1);
    return 2;
}

static void glu_forward(struct tape *tape, const struct graph_op *op, enum work_kind work,
                        enum aten label)
{
    struct operand in[2];
    for (uint32_t i = 0; i < 2; i++) {
        in[i] = tape_tensor(tape, op->in[i]);
        if (!op->hidden)
            continue;
        const struct operand copy = tape_birth_output(tape, op, GLU_A + i);
        tape_kernel(tape, WORK_REORDER, ATEN_CLONE, -1.0, 1, &in[i], 1, &copy);
        in[i] = copy;
    }
    const struct operand out = tape_birth_output(tape, op, 0);
    tape_kernel(tape, work, label, -1.0, 2, in, 1, &out);
}

static void glu_backward(struct tape *tape, const struct graph_op *op, enum work_kind work,
                         enum aten label)
{
    struct operand grad;
    const bool copied = contiguous_grad(tape, op, 0, &grad);
    const struct operand in[3] = {grad, tape_tensor(tape, factor(op, 0)),
                                  tape_tensor(tape, factor(op, 1))};
    tape_kernel(tape, work, label, -1.0, 3, in, 2, in + 1);
    if (copied)
        tape_death(tape, grad);
    for (uint32_t i = 0; i < 2; i++)
        if (tape_needs(tape, op, i))
            tape_give_saved(tape, op, i, factor(op, i));
    tape_end_frame(tape, op);
}

static void liger_swiglu_forward(struct tape *tape, const struct graph *graph,
                                 const struct graph_op *op)
{
    (void)graph;
    glu_forward(tape, op, WORK_SWIGLU, ATEN_LIGER_SWIGLU);
}

OP_BACKWARD(liger_swiglu)
{
    (void)graph;
    glu_backward(tape, op, WORK_SWIGLU_BACKWARD, ATEN_LIGER_SWIGLU_BACKWARD);
}

OP_CLASS(liger_swiglu) = {
    .label = ATEN_LIGER_SWIGLU,
    .saved = liger_glu_saved,
    .backward = liger_swiglu_backward,
    .forward = liger_swiglu_forward,
    .saves_rows = true,
    .in_python = true,
};

static void liger_geglu_forward(struct tape *tape, const struct graph *graph,
                                const struct graph_op *op)
{
    (void)graph;
    glu_forward(tape, op, WORK_GEGLU, ATEN_LIGER_GEGLU);
}

OP_BACKWARD(liger_geglu)
{
    (void)graph;
    glu_backward(tape, op, WORK_GEGLU_BACKWARD, ATEN_LIGER_GEGLU_BACKWARD);
}

OP_CLASS(liger_geglu) = {
    .label = ATEN_LIGER_GEGLU,
    .saved = liger_glu_saved,
    .backward = liger_geglu_backward,
    .forward = liger_geglu_forward,
    .saves_rows = true,
    .in_python = true,
};

/* ---- RoPE ---- */

enum { ROPE_Q, ROPE_K, ROPE_COS, ROPE_SIN, ROPE_INS };

/* Of heads that lie one token after the other the result is where they are. */
static void turned(struct graph *graph, uint32_t op, uint32_t x)
{
    const struct shape shape = *shape_of(graph, x);
    if (!graph_is_contiguous(graph, x)) {
        graph_op_birth(graph, op, ATEN_CLONE, dtype_of(graph, x), shape);
        return;
    }
    const uint32_t out = graph_view(graph, x, shape);
    graph->tensors[out].root = out;
    graph->ops[op].out[graph->ops[op].outs++] = out;
}

void op_liger_rope(struct graph *graph, uint32_t qk[2], uint32_t cos, uint32_t sin)
{
    const uint32_t op = begin(graph, OP_LIGER_ROPE, ROPE_INS, (uint32_t[]){qk[0], qk[1], cos, sin});
    turned(graph, op, qk[0]);
    turned(graph, op, qk[1]);
    graph_op_done(graph, op);
    qk[0] = graph->ops[op].out[0];
    qk[1] = graph->ops[op].out[1];
}

OP_SAVED(liger_rope)
{
    (void)graph;
    saved[0] = op->in[ROPE_COS];
    saved[1] = op->in[ROPE_SIN];
    return 2;
}

static bool is_born(const struct graph *graph, const struct graph_op *op, uint32_t out)
{
    return graph->tensors[op->out[out]].storage != graph->tensors[op->in[out]].storage;
}

static void liger_rope_forward(struct tape *tape, const struct graph *graph,
                               const struct graph_op *op)
{
    struct operand in[ROPE_INS];
    for (uint32_t i = 0; i < ROPE_INS; i++)
        in[i] = tape_tensor(tape, op->in[i]);
    for (uint32_t i = 0; i < 2; i++) {
        if (!is_born(graph, op, i))
            continue;
        const struct operand copy = tape_birth_output(tape, op, i);
        tape_kernel(tape, WORK_REORDER, ATEN_CLONE, -1.0, 1, &in[i], 1, &copy);
        in[i] = copy;
    }
    tape_kernel(tape, WORK_ROTATE_HALVES, ATEN_LIGER_ROPE, -1.0, ROPE_INS, in, 2, in);
}

OP_BACKWARD(liger_rope)
{
    (void)graph;
    struct operand in[ROPE_INS];
    bool copied[2];
    for (uint32_t i = 0; i < 2; i++)
        copied[i] = contiguous_grad(tape, op, i, &in[i]);
    in[ROPE_COS] = tape_tensor(tape, op->in[ROPE_COS]);
    in[ROPE_SIN] = tape_tensor(tape, op->in[ROPE_SIN]);
    tape_kernel(tape, WORK_ROTATE_HALVES_BACKWARD, ATEN_LIGER_ROPE, -1.0, ROPE_INS, in, 2, in);
    for (uint32_t i = 0; i < 2; i++)
        if (tape_needs(tape, op, i))
            tape_give_view(tape, op, i, in[i]);
        else if (copied[i])
            tape_give_unasked(tape, in[i]);
    tape_end_frame(tape, op);
}

OP_CLASS(liger_rope) = {
    .label = ATEN_LIGER_ROPE,
    .saved = liger_rope_saved,
    .backward = liger_rope_backward,
    .forward = liger_rope_forward,
    .in_python = true,
};
