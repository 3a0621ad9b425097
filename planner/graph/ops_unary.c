/* ops_unary.c - elementwise operators of one operand; dropout. */
#include "graph/autocast.h"
#include "graph/op_class.h"

#include <assert.h>

uint32_t op_unary(struct graph *graph, enum op_kind kind, uint32_t x)
{
    static const enum aten births[OP_KIND_COUNT] = {
        [OP_SILU] = ATEN_SILU,         [OP_GELU] = ATEN_GELU,   [OP_GELU_TANH] = ATEN_GELU,
        [OP_RELU] = ATEN_RELU,         [OP_TANH] = ATEN_TANH,   [OP_NEG] = ATEN_NEG,
        [OP_RSQRT] = ATEN_RSQRT,       [OP_CLONE] = ATEN_CLONE, [OP_SIGMOID] = ATEN_SIGMOID,
        [OP_SOFTPLUS] = ATEN_SOFTPLUS, [OP_EXPM1] = ATEN_EXPM1, [OP_EXP] = ATEN_EXP,
        [OP_SQRT] = ATEN_SQRT,
    };
    assert(births[kind] != ATEN_NONE);
    autocast_arguments(graph, kind, 1, &x);
    return simple(graph, kind, 1, &x, births[kind], dtype_of(graph, x), *shape_of(graph, x));
}

OP_BACKWARD(neg)
{
    give_elementwise(tape, graph, op, WORK_NEG, ATEN_NEG, GRAPH_NONE);
}

OP_CLASS(neg) = {.label = ATEN_NEG, .work = WORK_NEG, .backward = neg_backward};

/* (-0.5 · grad) · result^3: the power first. */
OP_BACKWARD(rsqrt)
{
    (void)graph;
    const struct operand y = tape_tensor(tape, op->out[0]), grad = tape_grad(tape, op, 0);
    const struct operand power = call_number(tape, WORK_POW, ATEN_POW, y, 3.0F);
    const struct operand scaled = call_number(tape, WORK_MUL_NUMBER, ATEN_MUL_SCALAR, grad, -0.5F);
    tape_give(tape, op, 0, call2(tape, WORK_MUL, ATEN_MUL, scaled, power));
    tape_death(tape, scaled);
    tape_death(tape, power);
}

OP_CLASS(rsqrt) = {
    .label = ATEN_RSQRT,
    .work = WORK_RSQRT,
    .saved = save_output,
    .backward = rsqrt_backward,
};

/* grad / (2 result) */
OP_BACKWARD(sqrt)
{
    (void)graph;
    const struct operand y = tape_tensor(tape, op->out[0]), grad = tape_grad(tape, op, 0);
    const struct operand twice = call_number(tape, WORK_MUL_NUMBER, ATEN_MUL_SCALAR, y, 2.0F);
    tape_give(tape, op, 0, call2(tape, WORK_DIV, ATEN_DIV, grad, twice));
    tape_death(tape, twice);
}

OP_CLASS(sqrt) = {
    .label = ATEN_SQRT,
    .work = WORK_SQRT,
    .saved = save_output,
    .backward = sqrt_backward,
};

OP_BACKWARD(tanh)
{
    give_elementwise(tape, graph, op, WORK_TANH_BACKWARD, ATEN_TANH_BACKWARD, op->out[0]);
}

OP_CLASS(tanh) = {
    .label = ATEN_TANH,
    .work = WORK_TANH,
    .saved = save_output,
    .backward = tanh_backward,
};

OP_BACKWARD(sigmoid)
{
    give_elementwise(tape, graph, op, WORK_SIGMOID_BACKWARD, ATEN_SIGMOID_BACKWARD, op->out[0]);
}

OP_CLASS(sigmoid) = {
    .label = ATEN_SIGMOID,
    .work = WORK_SIGMOID,
    .saved = save_output,
    .backward = sigmoid_backward,
};

OP_BACKWARD(silu)
{
    give_elementwise(tape, graph, op, WORK_SILU_BACKWARD, ATEN_SILU_BACKWARD, op->in[0]);
}

OP_CLASS(silu) = {
    .label = ATEN_SILU,
    .work = WORK_SILU,
    .saved = save_input,
    .backward = silu_backward,
};

OP_BACKWARD(gelu)
{
    give_elementwise(tape, graph, op, WORK_GELU_BACKWARD, ATEN_GELU_BACKWARD, op->in[0]);
}

OP_CLASS(gelu) = {
    .label = ATEN_GELU,
    .work = WORK_GELU,
    .saved = save_input,
    .backward = gelu_backward,
};

OP_BACKWARD(gelu_tanh)
{
    give_elementwise(tape, graph, op, WORK_GELU_TANH_BACKWARD, ATEN_GELU_BACKWARD, op->in[0]);
}

OP_CLASS(gelu_tanh) = {
    .label = ATEN_GELU,
    .work = WORK_GELU_TANH,
    .saved = save_input,
    .backward = gelu_tanh_backward,
};

OP_BACKWARD(relu)
{
    give_elementwise(tape, graph, op, WORK_RELU_BACKWARD, ATEN_THRESHOLD_BACKWARD, op->out[0]);
}

OP_CLASS(relu) = {
    .label = ATEN_RELU,
    .work = WORK_RELU,
    .saved = save_output,
    .backward = relu_backward,
};

OP_BACKWARD(softplus)
{
    give_elementwise(tape, graph, op, WORK_SOFTPLUS_BACKWARD, ATEN_SOFTPLUS_BACKWARD, op->in[0]);
}

OP_CLASS(softplus) = {
    .label = ATEN_SOFTPLUS,
    .work = WORK_SOFTPLUS,
    .saved = save_input,
    .backward = softplus_backward,
};

/* grad · (result + 1) */
OP_BACKWARD(expm1)
{
    (void)graph;
    const struct operand y = tape_tensor(tape, op->out[0]), grad = tape_grad(tape, op, 0);
    const struct operand slope = call_number(tape, WORK_ADD_NUMBER, ATEN_ADD_SCALAR, y, 1.0F);
    tape_give(tape, op, 0, call2(tape, WORK_MUL, ATEN_MUL, grad, slope));
    tape_death(tape, slope);
}

OP_CLASS(expm1) = {
    .label = ATEN_EXPM1,
    .work = WORK_EXPM1,
    .saved = save_output,
    .backward = expm1_backward,
};

OP_BACKWARD(exp)
{
    give_elementwise(tape, graph, op, WORK_MUL, ATEN_MUL, op->out[0]);
}

OP_CLASS(exp) = {
    .label = ATEN_EXP,
    .work = WORK_EXP,
    .saved = save_output,
    .backward = exp_backward,
};

OP_BACKWARD(clone)
{
    (void)graph;
    tape_give(tape, op, 0, tape_grad(tape, op, 0));
}

OP_CLASS(clone) = {.label = ATEN_CLONE, .work = WORK_REORDER, .backward = clone_backward};

uint32_t op_clone_keeping(struct graph *graph, uint32_t x, uint32_t kept)
{
    return simple(graph, OP_CLONE_KEEPING, 2, (uint32_t[]){x, kept}, ATEN_CLONE, dtype_of(graph, x),
                  *shape_of(graph, x));
}

static void clone_keeping_forward(struct tape *tape, const struct graph *graph,
                                  const struct graph_op *op)
{
    const struct operand x = tape_tensor(tape, op->in[0]), out = tape_birth_output(tape, op, 0);
    (void)graph;
    tape_kernel(tape, WORK_REORDER, ATEN_CLONE, -1.0, 1, &x, 1, &out);
}

OP_CLASS(clone_keeping) = {
    .label = ATEN_CLONE,
    .saved = save_second,
    .backward = clone_backward,
    .forward = clone_keeping_forward,
};

/* ---- to another dtype ---- */

uint32_t op_to(struct graph *graph, uint32_t x, enum dtype dtype)
{
    if (dtype_of(graph, x) == dtype)
        return x;
    return simple(graph, OP_TO_COPY, 1, &x, ATEN_TO_COPY, dtype, *shape_of(graph, x));
}

/* Born with the shape that the copy was born with: of heads that is PyTorch's (b, a, s, d). */
OP_BACKWARD(to_copy)
{
    const struct operand grad = tape_grad(tape, op, 0);
    const struct shape *born = &graph->storages[graph->tensors[op->out[0]].storage].shape;
    struct operand out = tape_birth(tape, ATEN_TO_COPY, dtype_of(graph, op->in[0]), *born);
    out.shape = *shape_of(graph, op->in[0]);
    tape_lay_out_like(tape, WORK_CAST, 1, &grad, &out);
    tape_kernel(tape, WORK_CAST, ATEN_TO_COPY, -1.0, 1, &grad, 1, &out);
    tape_give(tape, op, 0, out);
}

OP_CLASS(to_copy) = {.label = ATEN_TO_COPY, .work = WORK_CAST, .backward = to_copy_backward};

/* ---- dropout ---- */

uint32_t op_dropout(struct graph *graph, uint32_t x, float p)
{
    if (p <= 0.0F)
        return x;
    const uint32_t op = begin(graph, OP_DROPOUT, 1, &x);
    graph->ops[op].attr.p = p;
    const struct shape shape = *shape_of(graph, x);
    const uint32_t out = graph_op_birth(graph, op, ATEN_NATIVE_DROPOUT, dtype_of(graph, x), shape);
    graph_op_birth(graph, op, ATEN_NATIVE_DROPOUT, DTYPE_BOOL, shape);
    graph->ops[op].hidden = 1;
    graph_op_done(graph, op);
    return out;
}

OP_SAVED(dropout)
{
    (void)graph;
    saved[0] = op->out[1];
    return 1;
}

OP_BACKWARD(dropout)
{
    give_elementwise(tape, graph, op, WORK_DROPOUT_BACKWARD, ATEN_NATIVE_DROPOUT_BACKWARD,
                     op->out[1]);
}

OP_CLASS(dropout) = {
    .label = ATEN_NATIVE_DROPOUT,
    .work = WORK_DROPOUT,
    .saved = dropout_saved,
    .backward = dropout_backward,
};
