/* ops_sampled.c - experts drawn at random: what disturbs their input, a score put aside, and the
 * weight of what was drawn. */
#include "graph/op_class.h"

/* x itself, or its rows, which are another value now: seen in that shape. */
static uint32_t multiplied(struct graph *graph, enum op_kind kind, uint32_t x, uint32_t constant,
                           struct shape shape)
{
    const uint32_t op = begin(graph, kind, 2, (uint32_t[]){x, constant});
    const uint32_t out = graph_view(graph, x, shape);
    graph->tensors[out].root = out;
    graph->ops[op].out[graph->ops[op].outs++] = out;
    graph_op_done(graph, op);
    return out;
}

uint32_t op_mul_in_place(struct graph *graph, uint32_t x, uint32_t constant)
{
    return multiplied(graph, OP_MUL_TO, x, constant, *shape_of(graph, x));
}

/* The product is in the wider dtype of the two. */
OP_BACKWARD(mul_to)
{
    const struct operand in[2] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[1])};
    tape_give(tape, op, 0,
              tape_call(tape, WORK_MUL, ATEN_MUL, promoted(graph, op->in[0], op->in[1]),
                        *shape_of(graph, op->in[0]), -1.0, 2, in));
}

OP_CLASS(mul_to) = {
    .label = ATEN_MUL_,
    .work = WORK_MUL,
    .saved = save_second,
    .backward = mul_to_backward,
    .in_place = true,
};

uint32_t op_mul_rows_in_place(struct graph *graph, uint32_t x, uint32_t constant)
{
    return multiplied(graph, OP_MUL_ROWS_TO, x, constant, *shape_of(graph, constant));
}

/* CopySlices: the gradient is copied, and in the copy the view's is put, which the function made of
 * a copy of it (torch/csrc/autograd/functions/tensor.cpp). */
OP_BACKWARD(mul_rows_to)
{
    const struct shape whole = *shape_of(graph, op->in[0]);
    const enum dtype dtype = dtype_of(graph, op->in[0]);
    struct operand grad = tape_grad(tape, op, 0);
    grad.shape = whole;
    const struct operand copy =
        tape_call(tape, WORK_REORDER, ATEN_NEW_EMPTY_STRIDED, dtype, whole, -1.0, 1, &grad);
    struct operand rows = copy;
    rows.shape = *shape_of(graph, op->out[0]);
    const struct operand view = call1(tape, WORK_REORDER, ATEN_CLONE, rows);
    const struct operand product =
        call2(tape, WORK_MUL, ATEN_MUL, view, tape_tensor(tape, op->in[1]));
    tape_kernel(tape, WORK_REORDER, ATEN_COPY_, -1.0, 1, &product, 1, &rows);
    tape_end_frame(tape, op); /* what the function unpacked goes with it */
    tape_death(tape, view);
    tape_death(tape, product);
    tape_give(tape, op, 0, copy);
}

OP_CLASS(mul_rows_to) = {
    .label = ATEN_MUL_,
    .work = WORK_MUL,
    .saved = save_second,
    .backward = mul_rows_to_backward,
    .in_place = true,
};

uint32_t op_scatter_number(struct graph *graph, uint32_t x, uint32_t ids, float number)
{
    const uint32_t op = begin(graph, OP_SCATTER_NUMBER, 2, (uint32_t[]){x, ids});
    graph->ops[op].attr.p = number;
    const uint32_t out =
        graph_op_birth(graph, op, ATEN_SCATTER_VALUE, dtype_of(graph, x), *shape_of(graph, x));
    graph_op_done(graph, op);
    return out;
}

/* The gradient with zeros in those places. */
OP_BACKWARD(scatter_number)
{
    give_elementwise(tape, graph, op, WORK_OTHER, ATEN_SCATTER_VALUE, op->in[1]);
    tape_number(tape, 0);
}

OP_CLASS(scatter_number) = {
    .label = ATEN_SCATTER_VALUE,
    .work = WORK_SCATTER_NUMBER,
    .saved = save_second,
    .backward = scatter_number_backward,
};

enum { SCORES, WEIGHTS, EXPERTS, SHARES, FACTORS, OPERANDS };

uint32_t op_sampled_weight(struct graph *graph, const struct sampled *s)
{
    const uint32_t in[OPERANDS] = {s->scores, s->weights, s->experts, s->shares, s->factors};
    return simple(graph, OP_SAMPLED_WEIGHT, OPERANDS, in, ATEN_MUL, dtype_of(graph, s->weights),
                  *shape_of(graph, s->weights));
}

static void sampled_weight_forward(struct tape *tape, const struct graph *graph,
                                   const struct graph_op *op)
{
    (void)graph;
    const struct operand in[2] = {tape_tensor(tape, op->in[WEIGHTS]),
                                  tape_tensor(tape, op->in[FACTORS])};
    const struct operand out = tape_birth_output(tape, op, 0);
    tape_kernel(tape, WORK_MUL, ATEN_MUL, -1.0, 2, in, 1, &out);
}

OP_SAVED(sampled_weight)
{
    (void)graph;
    saved[0] = op->in[WEIGHTS];
    saved[1] = op->in[EXPERTS];
    saved[2] = op->in[SHARES];
    return 3;
}

/* g = grad · weights; -g · shares, and g added to it where the expert is. */
OP_BACKWARD(sampled_weight)
{
    (void)graph;
    const struct operand weights = tape_tensor(tape, op->in[WEIGHTS]);
    const struct operand shares = tape_tensor(tape, op->in[SHARES]);
    const struct operand g = call2(tape, WORK_MUL, ATEN_MUL, weights, tape_grad(tape, op, 0));
    const struct operand minus = call_number(tape, WORK_MUL_NUMBER, ATEN_MUL, g, -1.0F);
    const struct operand spread = call2(tape, WORK_MUL, ATEN_MUL, shares, minus);
    tape_death(tape, minus);
    const struct operand put[3] = {spread, tape_tensor(tape, op->in[EXPERTS]), g};
    tape_kernel(tape, WORK_OTHER, ATEN_SCATTER_ADD_, -1.0, 3, put, 1, &spread);
    tape_give(tape, op, SCORES, spread);
    tape_death(tape, g);
}

OP_CLASS(sampled_weight) = {
    .label = ATEN_MUL,
    .work = WORK_MUL,
    .saved = sampled_weight_saved,
    .backward = sampled_weight_backward,
    .forward = sampled_weight_forward,
    .is_partial = true,
    .in_python = true,
};
