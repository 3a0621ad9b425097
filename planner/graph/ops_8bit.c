/* ops_8bit.c - a Linear whose weight is stored in 8 bits: bitsandbytes' MatMul8bitLt (LLM.int8()).
 *
 *     forward    x in fp16 -> its rows in int8, with the largest number of each; the product of
 *                integers; that times both scales, in fp16, then in x's dtype
 *     backward   the weight in x's dtype, times its rows' scales; dy w
 *
 * Forward asks which columns of x have numbers of 6 and more, and the host waits for the answer;
 * how many is data, and planned is none: each would be multiplied in x's dtype, besides. Nothing is
 * saved, but the context has x as an attribute (tape_nodes.c): it lives as long as the node, also
 * in checkpointed blocks.
 *
 * So bitsandbytes 0.50.2 on CUDA (autograd/_functions.py, MatMul8bitLt; backends/cuda/ops.py,
 * int8_vectorwise_quant, int8_linear_matmul, int8_mm_dequant), of weights that are not trained and
 * of inputs that 4 divides. Autocast casts nothing of it. */
#include "graph/op_class.h"

#include <assert.h>

enum { X, WEIGHT, SCALES, BIAS, OPERANDS };

static const float threshold = 6.0F;

uint32_t op_linear_8bit(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias)
{
    const struct graph_param *param = graph_param_of(graph, weight);
    assert(param && param->whole.rank == 2);
    const struct shape in = *shape_of(graph, x), w = param->whole;
    assert(last_dim(&in) == w.dim[1]);
    const uint32_t args[OPERANDS] = {x, weight, param->scales[0], bias};
    const enum dtype dtype = dtype_of(graph, x);
    const uint32_t out = simple(graph, OP_LINEAR_8BIT, OPERANDS, args,
                                dtype == DTYPE_FP16 ? ATEN_EMPTY_LIKE : ATEN_TO_COPY, dtype,
                                SHAPE(rows_of(&in), w.dim[0]));
    return graph_view(graph, out, with_last(in, w.dim[0]));
}

static double flops_of(const struct graph *graph, const struct graph_op *op)
{
    return 2.0 * (double)shape_elements(shape_of(graph, op->in[X])) *
           last_dim(shape_of(graph, op->out[0]));
}

/* Columns of x that have large numbers: what is asked of them lives until rows are quantised. */
static struct operand ask(struct tape *tape, struct operand x)
{
    const struct operand sizes = call1(tape, WORK_ABS, ATEN_ABS, x);
    const struct operand large = tape_call(tape, WORK_GREATER_EQUAL_NUMBER, ATEN_GE_SCALAR,
                                           DTYPE_BOOL, x.shape, -1.0, 1, &sizes);
    tape_number(tape, threshold);
    tape_death(tape, sizes);
    const struct operand any =
        tape_call(tape, WORK_ANY, ATEN_ANY, DTYPE_BOOL, (struct shape){.rank = 0}, -1.0, 1, &large);
    tape_host_reads(tape);
    tape_death(tape, any);
    return large;
}

/* The columns that were found are made zeros, of several rows: none; but the zero is copied from
 * the host. */
static void put_zeros(struct tape *tape)
{
    const struct operand zero =
        tape_birth(tape, ATEN_TO_COPY, DTYPE_INT8, (struct shape){.rank = 0});
    tape_kernel(tape, WORK_FILL, ATEN_TO_COPY, -1.0, 0, NULL, 1, &zero);
    tape_number(tape, 0);
    tape_death(tape, zero);
}

/* x's rows in int8, quantised[0], and what each is to be multiplied by, quantised[1]. */
static void quantize(struct tape *tape, struct operand x, struct operand quantised[2])
{
    const struct shape rows = SHAPE(rows_of(&x.shape), last_dim(&x.shape));
    const bool casts = x.dtype != DTYPE_FP16;
    tape_view(tape, &x, rows);
    const struct operand half =
        casts ? tape_call(tape, WORK_CAST, ATEN_TO_COPY, DTYPE_FP16, rows, -1.0, 1, &x) : x;
    quantised[1] = tape_birth(tape, ATEN_EMPTY, DTYPE_FP32, SHAPE(rows.dim[0]));
    quantised[0] = tape_birth(tape, ATEN_EMPTY, DTYPE_INT8, rows);
    const struct operand large = ask(tape, half);
    tape_kernel(tape, WORK_QUANTIZE_ROWS, ATEN_INT8_VECTORWISE_QUANT, -1.0, 1, &half, 2, quantised);
    if (rows.dim[0] > 1)
        put_zeros(tape);
    tape_death(tape, large);
    if (casts)
        tape_death(tape, half);
}

/* The product times both scales, with a bias that is in fp16. */
static void scale(struct tape *tape, struct operand product, struct operand of_rows,
                  struct operand of_columns, struct operand bias, const struct operand *out)
{
    const bool within = bias.place != PLACE_NONE && bias.dtype == DTYPE_FP16;
    const struct operand in[4] = {product, of_rows, of_columns,
                                  within ? bias : (struct operand){.place = PLACE_NONE}};
    tape_kernel(tape, WORK_SCALE_PRODUCT, ATEN_INT8_MM_DEQUANT, -1.0, 4, in, 1, out);
    if (bias.place != PLACE_NONE && !within)
        tape_kernel(tape, WORK_ADD, ATEN_ADD_, -1.0, 2, (struct operand[]){*out, bias}, 1, out);
}

static void linear_8bit_forward(struct tape *tape, const struct graph *graph,
                                const struct graph_op *op)
{
    const struct operand x = tape_tensor(tape, op->in[X]);
    const struct operand weight = tape_tensor(tape, op->in[WEIGHT]);
    const struct shape shape = SHAPE(rows_of(&x.shape), last_dim(shape_of(graph, op->out[0])));
    struct operand quantised[2], bias = {.place = PLACE_NONE};
    if (op->in[BIAS] != GRAPH_NONE)
        bias = tape_tensor(tape, op->in[BIAS]);
    quantize(tape, x, quantised);
    const struct operand product =
        tape_call(tape, WORK_INT8_MM_NT, ATEN_EMPTY, DTYPE_INT32, shape, flops_of(graph, op), 2,
                  (struct operand[]){quantised[0], weight});
    if (x.dtype == DTYPE_FP16) {
        const struct operand out = tape_birth_output(tape, op, 0);
        scale(tape, product, quantised[1], tape_tensor(tape, op->in[SCALES]), bias, &out);
    } else {
        const struct operand half = tape_birth(tape, ATEN_EMPTY_LIKE, DTYPE_FP16, shape);
        scale(tape, product, quantised[1], tape_tensor(tape, op->in[SCALES]), bias, &half);
        const struct operand out = tape_birth_output(tape, op, 0);
        tape_kernel(tape, WORK_CAST, ATEN_TO_COPY, -1.0, 1, &half, 1, &out);
        tape_death(tape, half);
    }
    tape_death(tape, product);
    tape_death(tape, quantised[0]);
    tape_death(tape, quantised[1]);
}

/* The weight in the dtype of x, times what its rows were divided by. */
static struct operand weight_of(struct tape *tape, const struct graph *graph,
                                const struct graph_op *op)
{
    const struct operand bits = tape_tensor(tape, op->in[WEIGHT]);
    struct operand scales = tape_tensor(tape, op->in[SCALES]);
    const struct operand weight = tape_call(tape, WORK_CAST, ATEN_TO_COPY,
                                            dtype_of(graph, op->in[X]), bits.shape, -1.0, 1, &bits);
    tape_view(tape, &scales, SHAPE(bits.shape.dim[0], 1));
    const struct operand each = call_number(tape, WORK_MUL_NUMBER, ATEN_MUL, scales, 1.0F / 127.0F);
    tape_kernel(tape, WORK_MUL, ATEN_MUL_, -1.0, 2, (struct operand[]){weight, each}, 1, &weight);
    tape_death(tape, each);
    return weight;
}

/* The gradient as rows one after the other: reshape(-1, out).contiguous(). Whether it is a copy. */
static bool dense_rows_of(struct tape *tape, const struct graph *graph, const struct graph_op *op,
                          struct operand *grad)
{
    if (tape_rows_of_grad(tape, op, grad))
        return true;
    if (shape_of(graph, op->in[X])->rank == 2) /* which is multiplied as it lies */
        return false;
    tape_view(tape, grad, SHAPE(rows_of(&grad->shape), last_dim(&grad->shape)));
    if (!grad->layout && !grad->pitch)
        return false;
    *grad = tape_call(tape, WORK_REORDER, ATEN_CLONE, (enum dtype)grad->dtype, grad->shape, -1.0, 1,
                      grad);
    return true;
}

OP_BACKWARD(linear_8bit)
{
    struct operand grad;
    if (!tape_needs(tape, op, X))
        return;
    const bool copied = dense_rows_of(tape, graph, op, &grad);
    const struct operand weight = weight_of(tape, graph, op);
    const struct shape *x = shape_of(graph, op->in[X]);
    struct operand out = tape_call(tape, WORK_MATMUL_NN, ATEN_MM, (enum dtype)weight.dtype,
                                   SHAPE(rows_of(x), last_dim(x)), flops_of(graph, op), 2,
                                   (struct operand[]){grad, weight});
    if (copied)
        tape_death(tape, grad);
    tape_death(tape, weight);
    tape_view(tape, &out, *x);
    tape_give_view(tape, op, X, out);
}

/* ctx.tensors */
static uint32_t input_of_8bit(const struct graph_op *op)
{
    return op->in[X];
}

OP_CLASS(linear_8bit) = {
    .label = ATEN_MM,
    .backward = linear_8bit_backward,
    .forward = linear_8bit_forward,
    .attribute = input_of_8bit,
    .in_python = true,
};
