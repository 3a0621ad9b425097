/* ops_4bit.c - a Linear whose weight is stored in 4 bits: bitsandbytes' MatMul4Bit.
 *
 * Forward and backward each make the weight anew from what is stored, multiply by it and let it go:
 * nothing is saved, but the context has what is stored for as long as the node lives, which matters
 * where that was gathered (OP_CLASS's attribute). Scales that are quantised are made first, in
 * fp32. Forward makes the weight in x's dtype, backward in that of what was quantised, and casts it
 * to the gradient's. Under autocast forward's product casts as any F.linear does, and keeps none of
 * its casts.
 *
 * So does bitsandbytes 0.50.2 of more than 1,536 tokens (backends/cuda/ops.py, gemm_4bit and
 * _dequant_linear_fallback; autograd/_functions.py, MatMul4Bit); of fewer a table that knows the
 * GPU may choose a kernel that takes the packed weight, which has no such tensor in forward. */
#include "graph/autocast.h"
#include "graph/op_class.h"

#include <assert.h>

enum { X, WEIGHT, SCALES, SCALES_OF_SCALES, BIAS, OPERANDS };

uint32_t op_linear_4bit(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias)
{
    const struct graph_param *param = graph_param_of(graph, weight);
    assert(param && param->whole.rank == 2);
    const struct shape in = *shape_of(graph, x), w = param->whole;
    assert(last_dim(&in) == w.dim[1]);
    const uint32_t args[OPERANDS] = {x, weight, param->scales[0], param->scales[1], bias};
    const enum dtype dtype = graph->autocast.on ? graph->autocast.dtype : dtype_of(graph, x);
    const uint32_t out =
        simple(graph, OP_LINEAR_4BIT, OPERANDS, args, bias == GRAPH_NONE ? ATEN_MM : ATEN_ADDMM,
               dtype, SHAPE(rows_of(&in), w.dim[0]));
    return graph_view(graph, out, with_last(in, w.dim[0]));
}

static double flops_of(const struct graph *graph, const struct graph_op *op)
{
    return 2.0 * (double)shape_elements(shape_of(graph, op->in[X])) *
           last_dim(shape_of(graph, op->out[0]));
}

static void dequantize_to(struct tape *tape, struct operand out, struct operand bits,
                          struct operand scales)
{
    const bool whole = bits.shape.rank == 2; /* a weight, not its scales */
    tape_kernel(tape, WORK_DEQUANTIZE_BLOCKS,
                whole ? ATEN_DEQUANTIZE_4BIT : ATEN_DEQUANTIZE_BLOCKWISE, -1.0, 2,
                (struct operand[]){bits, scales}, 1, &out);
}

/* Born as `aten` says. */
static struct operand dequantize(struct tape *tape, enum aten aten, enum dtype dtype,
                                 struct shape shape, struct operand bits, struct operand scales)
{
    const struct operand out = tape_birth(tape, aten, dtype, shape);
    dequantize_to(tape, out, bits, scales);
    return out;
}

/* The scales in fp32, without the mean that is added to them. */
static struct operand scales_of(struct tape *tape, const struct graph *graph,
                                const struct graph_op *op, enum aten aten)
{
    return dequantize(tape, aten, DTYPE_FP32, *shape_of(graph, op->in[SCALES]),
                      tape_tensor(tape, op->in[SCALES]),
                      tape_tensor(tape, op->in[SCALES_OF_SCALES]));
}

static struct operand as_factor(struct tape *tape, struct operand x, enum dtype dtype)
{
    return x.place == PLACE_NONE || x.dtype == dtype
               ? x
               : tape_call(tape, WORK_CAST, ATEN_TO_COPY, dtype, x.shape, -1.0, 1, &x);
}

/* F.linear, whose casts are made from the last argument on, and go from the first. */
static void product(struct tape *tape, const struct graph *graph, const struct graph_op *op,
                    struct operand x, struct operand weight)
{
    const enum dtype dtype = dtype_of(graph, op->out[0]);
    struct operand given[3] = {x, weight, {.place = PLACE_NONE}}, in[3];
    if (op->in[BIAS] != GRAPH_NONE)
        given[2] = tape_tensor(tape, op->in[BIAS]);
    for (uint32_t i = 3; i-- > 0;)
        in[i] = as_factor(tape, given[i], dtype);
    const struct operand out = tape_birth_output(tape, op, 0);
    const bool biased = given[2].place != PLACE_NONE;
    tape_kernel(tape, biased ? WORK_MATMUL_NT_BIAS : WORK_MATMUL_NT, biased ? ATEN_ADDMM : ATEN_MM,
                flops_of(graph, op), 3, in, 1, &out);
    for (uint32_t i = 0; i < 3; i++)
        if (in[i].place != given[i].place)
            tape_death(tape, in[i]);
}

static void linear_4bit_forward(struct tape *tape, const struct graph *graph,
                                const struct graph_op *op)
{
    const bool twice = op->in[SCALES_OF_SCALES] != GRAPH_NONE;
    struct operand less = {.place = PLACE_NONE}, scales = tape_tensor(tape, op->in[SCALES]);
    if (twice) {
        less = scales_of(tape, graph, op, ATEN_EMPTY_LIKE);
        scales = call_number(tape, WORK_ADD_NUMBER, ATEN_ADD, less, 0);
    }
    const struct operand x = tape_tensor(tape, op->in[X]);
    const struct operand weight = dequantize(tape, ATEN_EMPTY, (enum dtype)x.dtype,
                                             graph_param_of(graph, op->in[WEIGHT])->whole,
                                             tape_tensor(tape, op->in[WEIGHT]), scales);
    product(tape, graph, op, x, weight);
    if (twice) {
        tape_death(tape, scales);
        tape_death(tape, less);
    }
    tape_death(tape, weight);
}

void op_4bit_across(struct graph *graph, uint32_t weight)
{
    for (uint32_t i = graph->op_count; i-- > 0;) {
        struct graph_op *op = &graph->ops[i];
        if (op->kind != OP_LINEAR_4BIT || op->in[WEIGHT] != weight)
            continue;
        op->attr.dim = 1; /* across: backward asks for it */
        return;
    }
}

/* Those that functional.dequantize_4bit multiplies by; new ones where they are quantised. */
static struct operand summed_scales(struct tape *tape, const struct graph *graph,
                                    const struct graph_op *op)
{
    if (op->in[SCALES_OF_SCALES] == GRAPH_NONE)
        return tape_tensor(tape, op->in[SCALES]);
    const struct operand scales = scales_of(tape, graph, op, ATEN_DEQUANTIZE_BLOCKWISE);
    tape_kernel(tape, WORK_ADD_NUMBER, ATEN_ADD_, -1.0, 1, &scales, 1, &scales);
    return scales;
}

/* dy.sum(0), which of sequences is not yet of the bias's shape: autograd adds up the rest. */
static struct operand summed(struct tape *tape, const struct graph *graph,
                             const struct graph_op *op, struct operand grad)
{
    const struct shape *x = shape_of(graph, op->in[X]), *bias = shape_of(graph, op->in[BIAS]);
    struct shape one = {.rank = (uint8_t)(x->rank - 1)};
    for (uint32_t i = 1; i < x->rank; i++)
        one.dim[i - 1] = i + 1 < x->rank ? x->dim[i] : bias->dim[0];
    return tape_call(tape, WORK_SUM, ATEN_SUM_DIM, dtype_of(graph, op->in[BIAS]), one,
                     (double)shape_elements(&grad.shape), 1, &grad);
}

/* dy w. */
static void give_x(struct tape *tape, const struct graph *graph, const struct graph_op *op,
                   struct operand grad)
{
    const bool twice = op->in[SCALES_OF_SCALES] != GRAPH_NONE;
    const struct operand scales = summed_scales(tape, graph, op);
    const struct shape whole = graph_param_of(graph, op->in[WEIGHT])->whole;
    struct operand weight = dequantize(tape, ATEN_DEQUANTIZE_4BIT, graph->bits4.made, whole,
                                       tape_tensor(tape, op->in[WEIGHT]), scales);
    if (twice)
        tape_death(tape, scales);
    const struct operand factor = as_factor(tape, weight, (enum dtype)grad.dtype);
    if (factor.place != weight.place)
        tape_death(tape, weight);
    const struct operand in[2] = {grad, factor};
    const struct shape *x = shape_of(graph, op->in[X]);
    const bool each = op->attr.dim && x->dim[0] > 1; /* across; torch.matmul folds what it can */
    struct operand out =
        tape_call(tape, WORK_MATMUL_NN, each ? ATEN_BMM : ATEN_MM, (enum dtype)grad.dtype,
                  each ? *x : SHAPE(rows_of(x), whole.dim[1]), flops_of(graph, op), 2, in);
    tape_death(tape, factor);
    tape_view(tape, &out, *shape_of(graph, op->in[X])); /* matmul's own, and no view to autograd */
    tape_give(tape, op, X, out);
}

/* A bias asks for a gradient where its unit is trained: FSDP1's views of a flat parameter do. */
OP_BACKWARD(linear_4bit)
{
    const struct operand grad = tape_grad(tape, op, 0);
    const bool biased = tape_needs(tape, op, BIAS);
    const struct operand of_bias = biased ? summed(tape, graph, op, grad) : grad;
    if (tape_needs(tape, op, X))
        give_x(tape, graph, op, grad);
    if (biased)
        tape_give_summed(tape, op, BIAS, of_bias);
}

static uint32_t packed_weight(const struct graph_op *op)
{
    return op->in[WEIGHT];
}

OP_CLASS(linear_4bit) = {
    .label = ATEN_MM,
    .backward = linear_4bit_backward,
    .forward = linear_4bit_forward,
    .attribute = packed_weight,
    .in_python = true,
};

uint32_t op_dequantize_4bit(struct graph *graph, uint32_t weight)
{
    const struct graph_param *param = graph_param_of(graph, weight);
    assert(param && param->whole.rank > 0);
    const uint32_t args[BIAS] = {GRAPH_NONE, weight, param->scales[0], param->scales[1]};
    return simple(graph, OP_DEQUANTIZE_4BIT, BIAS, args, ATEN_DEQUANTIZE_4BIT, graph->bits4.made,
                  param->whole);
}

static void dequantize_4bit_forward(struct tape *tape, const struct graph *graph,
                                    const struct graph_op *op)
{
    const struct operand scales = summed_scales(tape, graph, op);
    const struct operand out = tape_birth_output(tape, op, 0);
    dequantize_to(tape, out, tape_tensor(tape, op->in[WEIGHT]), scales);
    if (op->in[SCALES_OF_SCALES] != GRAPH_NONE)
        tape_death(tape, scales);
}

OP_CLASS(dequantize_4bit) = {
    .label = ATEN_DEQUANTIZE_4BIT,
    .forward = dequantize_4bit_forward,
};
