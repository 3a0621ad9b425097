/* ops_gelu_in_python.c - gelu by tanh as a torch.autograd.Function of Python arithmetic, of which
 * each step is a kernel and a tensor: transformers' GeLUFunction (models/bloom/modeling_bloom.py).
 *
 *     y = 0.5 x (1 + t)     t = tanh(0.79788456 x (1 + 0.044715 x x))
 *     dx = dy (0.5 x ((1 - t t) (0.79788456 + 0.1070322243 x x)) + 0.5 (1 + t)) */
#include "graph/op_class.h"

static const float root = 0.79788456F; /* of 2 / pi */
static const float cube = 0.044715F;
static const float slope = 0.1070322243F; /* 3 root cube */

uint32_t op_gelu_in_python(struct graph *graph, uint32_t x)
{
    return simple(graph, OP_GELU_IN_PYTHON, 1, &x, ATEN_MUL, dtype_of(graph, x),
                  *shape_of(graph, x));
}

static struct operand times(struct tape *tape, struct operand x, float number)
{
    return call_number(tape, WORK_MUL_NUMBER, ATEN_MUL, x, number);
}

static struct operand plus(struct tape *tape, struct operand x, float number)
{
    return call_number(tape, WORK_ADD_NUMBER, ATEN_ADD, x, number);
}

/* A call of two operands, or one (`b` is nowhere), that die behind it. */
static struct operand last_of(struct tape *tape, enum work_kind work, enum aten aten,
                              struct operand a, struct operand b)
{
    const bool both = b.place != PLACE_NONE;
    const struct operand out = both ? call2(tape, work, aten, a, b) : call1(tape, work, aten, a);
    tape_death(tape, a);
    if (both)
        tape_death(tape, b);
    return out;
}

static const struct operand none = {.place = PLACE_NONE};

/* number x x, and `to` that */
static struct operand squared(struct tape *tape, struct operand x, float number, float to)
{
    const struct operand scaled = times(tape, x, number);
    const struct operand square = call2(tape, WORK_MUL, ATEN_MUL, scaled, x);
    tape_death(tape, scaled);
    const struct operand out = plus(tape, square, to);
    tape_death(tape, square);
    return out;
}

/* t */
static struct operand bounded(struct tape *tape, struct operand x)
{
    const struct operand line = times(tape, x, root);
    const struct operand inner =
        last_of(tape, WORK_MUL, ATEN_MUL, line, squared(tape, x, cube, 1.0F));
    return last_of(tape, WORK_TANH, ATEN_TANH, inner, none);
}

static void gelu_in_python_forward(struct tape *tape, const struct graph *graph,
                                   const struct graph_op *op)
{
    const struct operand x = tape_tensor(tape, op->in[0]), half = times(tape, x, 0.5F),
                         t = bounded(tape, x);
    (void)graph;
    const struct operand in[2] = {half, plus(tape, t, 1.0F)};
    tape_death(tape, t);
    const struct operand out = tape_birth_output(tape, op, 0);
    tape_kernel(tape, WORK_MUL, ATEN_MUL, -1.0, 2, in, 1, &out);
    tape_death(tape, in[0]);
    tape_death(tape, in[1]);
}

OP_BACKWARD(gelu_in_python)
{
    (void)graph;
    const struct operand x = tape_tensor(tape, op->in[0]), grad = tape_grad(tape, op, 0);
    const struct operand t = bounded(tape, x), half = times(tape, x, 0.5F);
    const struct operand square = call2(tape, WORK_MUL, ATEN_MUL, t, t);
    const struct operand rest = call_number(tape, WORK_NUMBER_MINUS, ATEN_RSUB, square, 1.0F);
    tape_death(tape, square);
    const struct operand inner =
        last_of(tape, WORK_MUL, ATEN_MUL, rest, squared(tape, x, slope, root));
    const struct operand first = last_of(tape, WORK_MUL, ATEN_MUL, half, inner);
    const struct operand above = plus(tape, t, 1.0F), second = times(tape, above, 0.5F);
    tape_death(tape, above);
    const struct operand sum = last_of(tape, WORK_ADD, ATEN_ADD, first, second);
    tape_give(tape, op, 0, call2(tape, WORK_MUL, ATEN_MUL, sum, grad));
    tape_death(tape, t);
    tape_death(tape, sum);
    tape_end_frame(tape, op);
}

OP_CLASS(gelu_in_python) = {
    .label = ATEN_MUL,
    .saved = save_input,
    .backward = gelu_in_python_backward,
    .forward = gelu_in_python_forward,
    .in_python = true,
};
