/* ops_arithmetic.c - arithmetic of two operands, or of one and a number. */
#include "graph/autocast.h"
#include "graph/op_class.h"

uint32_t op_add(struct graph *graph, uint32_t x, uint32_t y)
{
    return simple(graph, OP_ADD, 2, (uint32_t[]){x, y}, ATEN_ADD, promoted(graph, x, y),
                  *shape_of(graph, x));
}

/* Whether a gradient has to be summed to a shape (at::sum_to): dims before its first are summed
 * even if they are ones. */
static bool was_broadcast(const struct shape *shape, const struct shape *gradient)
{
    return shape->rank != gradient->rank || shape_elements(shape) != shape_elements(gradient);
}

/* The gradient of a sum goes to both sides as it is; where y was broadcast it is summed first,
 * keeping the dims (sum_to_size). */
OP_BACKWARD(add)
{
    const struct operand grad = tape_grad(tape, op, 0);
    if (tape_needs(tape, op, 0))
        tape_give(tape, op, 0, grad);
    if (!tape_needs(tape, op, 1))
        return;
    if (was_broadcast(shape_of(graph, op->in[1]), shape_of(graph, op->in[0])))
        tape_give_summed(tape, op, 1, grad);
    else
        tape_give(tape, op, 1, grad);
}

OP_CLASS(add) = {.label = ATEN_ADD, .work = WORK_ADD, .backward = add_backward};

/* The op's result is x itself, which was another value. */
static uint32_t done_in_place(struct graph *graph, uint32_t op, uint32_t x)
{
    const uint32_t out = graph_view(graph, x, *shape_of(graph, x));
    graph->tensors[out].root = out;
    graph->ops[op].out[graph->ops[op].outs++] = out;
    graph_op_done(graph, op);
    return out;
}

uint32_t op_add_in_place(struct graph *graph, uint32_t x, uint32_t y)
{
    return done_in_place(graph, begin(graph, OP_ADD_TO, 2, (uint32_t[]){x, y}), x);
}

uint32_t op_add_to(struct graph *graph, uint32_t x, uint32_t y)
{
    return graph->autograd == AUTOGRAD_RECORDED || graph->watched ? op_add(graph, x, y)
                                                                  : op_add_in_place(graph, x, y);
}

OP_CLASS(add_to) = {
    .label = ATEN_ADD_, .work = WORK_ADD_TO, .backward = add_backward, .in_place = true};

uint32_t op_sub(struct graph *graph, uint32_t x, uint32_t y)
{
    return simple(graph, OP_SUB, 2, (uint32_t[]){x, y}, ATEN_SUB, promoted(graph, x, y),
                  *shape_of(graph, x));
}

/* As a sum's, but for the sign of the second. */
OP_BACKWARD(sub)
{
    const struct operand grad = tape_grad(tape, op, 0);
    if (tape_needs(tape, op, 0))
        tape_give(tape, op, 0, grad);
    if (!tape_needs(tape, op, 1))
        return;
    const struct operand minus = call1(tape, WORK_NEG, ATEN_NEG, grad);
    if (was_broadcast(shape_of(graph, op->in[1]), shape_of(graph, op->in[0])))
        tape_give_summed(tape, op, 1, minus);
    else
        tape_give(tape, op, 1, minus);
}

OP_CLASS(sub) = {.label = ATEN_SUB, .work = WORK_SUB, .backward = sub_backward};

/* The shape of an elementwise result: sizes aligned at the last dim, ones stretched. */
static struct shape broadcast(const struct shape *x, const struct shape *y)
{
    struct shape shape = x->rank >= y->rank ? *x : *y;
    const struct shape *other = x->rank >= y->rank ? y : x;
    for (uint32_t i = 0; i < other->rank; i++) {
        uint32_t *dim = &shape.dim[shape.rank - other->rank + i];
        *dim = *dim == 1 ? other->dim[i] : *dim;
    }
    return shape;
}

uint32_t op_mul(struct graph *graph, uint32_t x, uint32_t y)
{
    return simple(graph, OP_MUL, 2, (uint32_t[]){x, y}, ATEN_MUL, promoted(graph, x, y),
                  broadcast(shape_of(graph, x), shape_of(graph, y)));
}

OP_BACKWARD(mul)
{
    for (uint32_t i = 0; i < 2; i++) {
        if (!tape_needs(tape, op, i))
            continue;
        const struct operand in[2] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[1 - i])};
        const struct operand product =
            tape_call(tape, WORK_MUL, ATEN_MUL, dtype_of(graph, op->out[0]),
                      *shape_of(graph, op->out[0]), -1.0, 2, in);
        if (was_broadcast(shape_of(graph, op->in[i]), &product.shape))
            tape_give_summed(tape, op, i, product);
        else
            tape_give(tape, op, i, product);
    }
}

OP_CLASS(mul) = {
    .label = ATEN_MUL, .work = WORK_MUL, .saved = save_factors, .backward = mul_backward};

uint32_t op_mul_constant(struct graph *graph, uint32_t x, uint32_t constant)
{
    return simple(graph, OP_MUL_CONSTANT, 2, (uint32_t[]){x, constant}, ATEN_MUL,
                  dtype_of(graph, x), *shape_of(graph, x));
}

/* A complex factor is conjugated first, and the conjugate is a copy. */
OP_BACKWARD(mul_constant)
{
    struct operand in[2] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[1])};
    const bool complex = in[1].dtype == DTYPE_COMPLEX64;
    if (complex)
        in[1] = tape_call(tape, WORK_CONJUGATE, ATEN_CLONE, DTYPE_COMPLEX64, in[1].shape, -1.0, 1,
                          &in[1]);
    tape_give(tape, op, 0,
              tape_call(tape, WORK_MUL, ATEN_MUL, dtype_of(graph, op->in[0]),
                        *shape_of(graph, op->in[0]), -1.0, 2, in));
    if (complex)
        tape_death(tape, in[1]);
}

OP_CLASS(mul_constant) = {
    .label = ATEN_MUL,
    .work = WORK_MUL,
    .saved = save_second,
    .backward = mul_constant_backward,
};

/* ---- with a number ---- */

uint32_t op_scalar(struct graph *graph, enum op_kind kind, uint32_t x, float number)
{
    const enum aten births[] = {
        [OP_ADD_SCALAR] = ATEN_ADD, [OP_SUB_SCALAR] = ATEN_SUB, [OP_MUL_SCALAR] = ATEN_MUL,
        [OP_DIV_SCALAR] = ATEN_DIV, [OP_POW] = ATEN_POW,
    };
    autocast_arguments(graph, kind, 1, &x);
    const uint32_t op = begin(graph, kind, 1, &x);
    graph->ops[op].attr.p = kind == OP_SUB_SCALAR ? -number : number;
    const uint32_t out =
        graph_op_birth(graph, op, births[kind], dtype_of(graph, x), *shape_of(graph, x));
    graph_op_done(graph, op);
    return out;
}

OP_BACKWARD(add_scalar)
{
    (void)graph;
    tape_give(tape, op, 0, tape_grad(tape, op, 0));
}

OP_CLASS(add_scalar) = {
    .label = ATEN_ADD,
    .work = WORK_ADD_NUMBER,
    .backward = add_scalar_backward,
};

OP_CLASS(sub_scalar) = {
    .label = ATEN_SUB,
    .work = WORK_ADD_NUMBER,
    .backward = add_scalar_backward,
};

uint32_t op_add_scalar_in_place(struct graph *graph, uint32_t x, float number)
{
    const uint32_t op = begin(graph, OP_ADD_SCALAR_TO, 1, &x);
    graph->ops[op].attr.p = number;
    return done_in_place(graph, op, x);
}

OP_CLASS(add_scalar_to) = {
    .label = ATEN_ADD_,
    .work = WORK_ADD_NUMBER,
    .backward = add_scalar_backward,
    .in_place = true,
};

OP_BACKWARD(mul_scalar)
{
    give_elementwise(tape, graph, op, WORK_MUL_NUMBER, ATEN_MUL, GRAPH_NONE);
}

OP_CLASS(mul_scalar) = {
    .label = ATEN_MUL,
    .work = WORK_MUL_NUMBER,
    .backward = mul_scalar_backward,
};

OP_BACKWARD(div_scalar)
{
    give_elementwise(tape, graph, op, WORK_DIV_NUMBER, ATEN_DIV, GRAPH_NONE);
}

OP_CLASS(div_scalar) = {
    .label = ATEN_DIV,
    .work = WORK_DIV_NUMBER,
    .backward = div_scalar_backward,
};

/* grad · (n · x^(n-1)), from the inside out. */
OP_BACKWARD(pow)
{
    (void)graph;
    const float n = op->attr.p;
    const struct operand x = tape_tensor(tape, op->in[0]);
    const struct operand power = call_number(tape, WORK_POW, ATEN_POW, x, n - 1);
    const struct operand scaled = call_number(tape, WORK_MUL_NUMBER, ATEN_MUL_SCALAR, power, n);
    tape_give(tape, op, 0, call2(tape, WORK_MUL, ATEN_MUL, tape_grad(tape, op, 0), scaled));
    tape_death(tape, scaled);
    tape_death(tape, power);
}

OP_CLASS(pow) = {
    .label = ATEN_POW,
    .work = WORK_POW,
    .saved = save_input,
    .backward = pow_backward,
};

uint32_t op_scale(struct graph *graph, uint32_t x, float number)
{
    const uint32_t op = begin(graph, OP_SCALE, 1, &x);
    graph->ops[op].attr.p = number;
    const uint32_t out =
        graph_op_birth(graph, op, ATEN_MUL_SCALAR, dtype_of(graph, x), *shape_of(graph, x));
    graph_op_done(graph, op);
    return out;
}

OP_BACKWARD(scale)
{
    give_elementwise(tape, graph, op, WORK_MUL_NUMBER, ATEN_MUL_SCALAR, GRAPH_NONE);
}

OP_CLASS(scale) = {.label = ATEN_MUL_SCALAR, .work = WORK_MUL_NUMBER, .backward = scale_backward};

/* ---- division, and limits ---- */

uint32_t op_div_inplace(struct graph *graph, uint32_t x, uint32_t y)
{
    const uint32_t op = begin(graph, OP_DIV_INPLACE, 2, (uint32_t[]){x, y});
    const uint32_t out = graph_view(graph, x, *shape_of(graph, x));
    graph->tensors[out].root = out; /* what x was is another value, with another gradient */
    graph->ops[op].out[graph->ops[op].outs++] = out;
    /* original_self, which y's gradient is made of */
    graph_op_birth(graph, op, ATEN_CLONE, dtype_of(graph, x), *shape_of(graph, x));
    graph->ops[op].hidden = 1;
    graph_op_done(graph, op);
    return out;
}

static bool div_inplace_copies(const struct graph *graph, const struct graph_op *op)
{
    return graph->tensors[op->in[1]].requires_grad;
}

/* Where nothing was copied it is a division as any other, whose result is its input. */
static void div_inplace_forward(struct tape *tape, const struct graph *graph,
                                const struct graph_op *op)
{
    const bool copies = div_inplace_copies(graph, op) && !tape_is_without_grad(tape);
    const struct operand in[] = {tape_tensor(tape, op->in[0]), tape_tensor(tape, op->in[1])};
    struct operand out[] = {tape_tensor(tape, op->out[0]), {0}};
    if (copies)
        out[1] = tape_birth_output(tape, op, 1);
    tape_kernel(tape, copies ? WORK_DIV_IN_PLACE : WORK_DIV, ATEN_DIV, -1.0, 2, in, copies ? 2 : 1,
                out);
}

OP_SAVED(div_inplace)
{
    saved[0] = op->in[1];
    saved[1] = op->out[1];
    return div_inplace_copies(graph, op) ? 2 : 1;
}

/* Two operands into a new tensor of the wider dtype. */
static struct operand call_wide(struct tape *tape, enum work_kind work, enum aten aten,
                                struct operand x, struct operand y)
{
    const enum dtype dtype = x.dtype == y.dtype ? (enum dtype)x.dtype : DTYPE_FP32;
    return tape_call(tape, work, aten, dtype, x.shape, -1.0, 2, (struct operand[]){x, y});
}

/* Of x / y; the divisor's comes first: -grad * ((x / y) / y). */
static void give_quotients(struct tape *tape, const struct graph *graph, const struct graph_op *op,
                           struct operand x)
{
    const struct operand grad = tape_grad(tape, op, 0), y = tape_tensor(tape, op->in[1]);
    const struct operand once = call_wide(tape, WORK_DIV, ATEN_DIV, x, y);
    const struct operand twice = call_wide(tape, WORK_DIV, ATEN_DIV, once, y);
    const struct operand minus = call1(tape, WORK_NEG, ATEN_NEG, grad);
    const struct operand divisor = call_wide(tape, WORK_MUL, ATEN_MUL, minus, twice);
    tape_death(tape, minus);
    tape_death(tape, twice);
    tape_death(tape, once);
    tape_give(tape, op, 0, call_wide(tape, WORK_DIV, ATEN_DIV, grad, y));
    if (last_dim(shape_of(graph, op->in[0])) == 1)
        tape_give(tape, op, 1, divisor);
    else
        tape_give_summed(tape, op, 1, divisor);
}

OP_BACKWARD(div_inplace)
{
    give_quotients(tape, graph, op, tape_tensor(tape, op->out[1]));
}

OP_CLASS(div_inplace) = {
    .label = ATEN_DIV,
    .work = WORK_DIV_IN_PLACE,
    .forward = div_inplace_forward,
    .saved = div_inplace_saved,
    .backward = div_inplace_backward,
};

uint32_t op_div(struct graph *graph, uint32_t x, uint32_t y)
{
    return simple(graph, OP_DIV, 2, (uint32_t[]){x, y}, ATEN_DIV, promoted(graph, x, y),
                  *shape_of(graph, x));
}

OP_SAVED(div)
{
    (void)graph;
    saved[0] = op->in[1];
    saved[1] = op->in[0];
    return 2;
}

OP_BACKWARD(div)
{
    give_quotients(tape, graph, op, tape_tensor(tape, op->in[0]));
}

OP_CLASS(div) = {
    .label = ATEN_DIV,
    .work = WORK_DIV,
    .saved = div_saved,
    .backward = div_backward,
};

uint32_t op_where_else(struct graph *graph, uint32_t condition, uint32_t x, uint32_t other)
{
    return simple(graph, OP_WHERE, 3, (uint32_t[]){condition, x, other}, ATEN_WHERE,
                  dtype_of(graph, x), *shape_of(graph, x));
}

uint32_t op_where(struct graph *graph, uint32_t condition, uint32_t x, float number)
{
    const uint32_t other =
        op_fill(graph, ATEN_SCALAR_TENSOR, dtype_of(graph, x), (struct shape){.rank = 0}, number);
    const uint32_t out = op_where_else(graph, condition, x, other);
    graph_drop(graph, other);
    return out;
}

OP_BACKWARD(where)
{
    const struct operand zero =
        tape_birth(tape, ATEN_SCALAR_TENSOR, dtype_of(graph, op->in[1]), (struct shape){.rank = 0});
    tape_kernel(tape, WORK_FILL, ATEN_SCALAR_TENSOR, -1.0, 0, NULL, 1, &zero);
    const struct operand in[3] = {tape_tensor(tape, op->in[0]), tape_grad(tape, op, 0), zero};
    tape_give(tape, op, 1,
              tape_call(tape, WORK_WHERE, ATEN_WHERE, dtype_of(graph, op->in[1]),
                        *shape_of(graph, op->in[1]), -1.0, 3, in));
    tape_death(tape, zero);
}

OP_CLASS(where) = {
    .label = ATEN_WHERE,
    .work = WORK_WHERE,
    .saved = save_input,
    .backward = where_backward,
};

uint32_t op_choose(struct graph *graph, uint32_t condition, uint32_t x, uint32_t y)
{
    return simple(graph, OP_CHOOSE, 3, (uint32_t[]){condition, x, y}, ATEN_WHERE,
                  promoted(graph, x, y), *shape_of(graph, x));
}

/* where(condition, grad, 0), and the other way round. */
OP_BACKWARD(choose)
{
    (void)graph;
    for (uint32_t i = 1; i < 3; i++) {
        if (!tape_needs(tape, op, i))
            continue;
        const struct operand grad = tape_grad(tape, op, 0);
        const enum dtype dtype = (enum dtype)grad.dtype;
        const struct operand zero =
            tape_birth(tape, ATEN_SCALAR_TENSOR, dtype, (struct shape){.rank = 0});
        tape_kernel(tape, WORK_FILL, ATEN_SCALAR_TENSOR, -1.0, 0, NULL, 1, &zero);
        const struct operand condition = tape_tensor(tape, op->in[0]);
        const struct operand in[3] = {condition, i == 1 ? grad : zero, i == 1 ? zero : grad};
        tape_give(tape, op, i,
                  tape_call(tape, WORK_WHERE, ATEN_WHERE, dtype, grad.shape, -1.0, 3, in));
        tape_death(tape, zero);
    }
}

OP_CLASS(choose) = {
    .label = ATEN_WHERE,
    .work = WORK_WHERE,
    .saved = save_input,
    .backward = choose_backward,
};

uint32_t op_masked_zero(struct graph *graph, uint32_t x, uint32_t mask)
{
    return simple(graph, OP_MASKED_FILL, 2, (uint32_t[]){x, mask}, ATEN_MASKED_FILL,
                  dtype_of(graph, x), *shape_of(graph, x));
}

uint32_t op_masked_number(struct graph *graph, uint32_t x, uint32_t mask, float number)
{
    const uint32_t op = begin(graph, OP_MASKED_FILL, 2, (uint32_t[]){x, mask});
    graph->ops[op].attr.p = number;
    const uint32_t out =
        graph_op_birth(graph, op, ATEN_MASKED_FILL, dtype_of(graph, x), *shape_of(graph, x));
    graph_op_done(graph, op);
    return out;
}

OP_BACKWARD(masked_fill)
{
    give_elementwise(tape, graph, op, WORK_MASKED_FILL, ATEN_MASKED_FILL, op->in[1]);
    tape_number(tape, 0);
}

OP_CLASS(masked_fill) = {
    .label = ATEN_MASKED_FILL,
    .work = WORK_MASKED_FILL,
    .saved = save_second,
    .backward = masked_fill_backward,
};

uint32_t op_clamp(struct graph *graph, uint32_t x, uint32_t least, uint32_t most)
{
    return simple(graph, OP_CLAMP, 3, (uint32_t[]){x, least, most}, ATEN_CLAMP_TENSOR,
                  dtype_of(graph, x), *shape_of(graph, x));
}

OP_SAVED(clamp)
{
    (void)graph;
    saved[0] = op->in[2];
    saved[1] = op->in[1];
    saved[2] = op->in[0];
    return 3;
}

static struct operand ask(struct tape *tape, enum work_kind work, enum aten aten, struct operand x,
                          struct operand y)
{
    const struct operand in[2] = {x, y};
    return tape_call(tape, work, aten, DTYPE_BOOL, x.shape, -1.0, 2, in);
}

/* where(x at a limit, and the limits in order, grad / 2, grad), and zero outside the limits. */
OP_BACKWARD(clamp)
{
    (void)graph;
    const struct operand grad = tape_grad(tape, op, 0), x = tape_tensor(tape, op->in[0]);
    const struct operand least = tape_tensor(tape, op->in[1]), most = tape_tensor(tape, op->in[2]);
    const struct operand ordered = ask(tape, WORK_LESS, ATEN_LT_TENSOR, least, most);
    const struct operand at_least = ask(tape, WORK_EQUAL, ATEN_EQ_TENSOR, x, least);
    const struct operand at_most = ask(tape, WORK_EQUAL, ATEN_EQ_TENSOR, x, most);
    const struct operand at_any = ask(tape, WORK_OR, ATEN_LOGICAL_OR, at_least, at_most);
    const struct operand halved = ask(tape, WORK_AND, ATEN_LOGICAL_AND, at_any, ordered);
    tape_death(tape, at_any);
    tape_death(tape, at_most);
    tape_death(tape, at_least);
    const struct operand below = ask(tape, WORK_LESS, ATEN_LT_TENSOR, x, least);
    const struct operand above = ask(tape, WORK_GREATER, ATEN_GT_TENSOR, x, most);
    const struct operand outside = ask(tape, WORK_OR, ATEN_LOGICAL_OR, below, above);
    tape_death(tape, above);
    tape_death(tape, below);
    const struct operand half = call_number(tape, WORK_DIV_NUMBER, ATEN_DIV_SCALAR, grad, 2.0F);
    const struct operand choice[3] = {halved, half, grad};
    const struct operand chosen = tape_call(tape, WORK_WHERE, ATEN_WHERE, (enum dtype)grad.dtype,
                                            grad.shape, -1.0, 3, choice);
    tape_give(tape, op, 0, call2(tape, WORK_MASKED_FILL, ATEN_MASKED_FILL, chosen, outside));
    tape_death(tape, chosen);
    tape_death(tape, half);
    tape_death(tape, outside);
    tape_death(tape, halved);
    tape_death(tape, ordered);
}

OP_CLASS(clamp) = {
    .label = ATEN_CLAMP_TENSOR,
    .work = WORK_CLAMP,
    .saved = clamp_saved,
    .backward = clamp_backward,
};

uint32_t op_minimum(struct graph *graph, uint32_t x, uint32_t y)
{
    return simple(graph, OP_MINIMUM, 2, (uint32_t[]){x, y}, ATEN_MINIMUM, dtype_of(graph, x),
                  *shape_of(graph, x));
}

OP_SAVED(minimum)
{
    (void)graph;
    saved[0] = op->in[1];
    saved[1] = op->in[0];
    return 2;
}

/* where(x == y, grad / 2, grad), and zero where the other is smaller: in place, but for tensors
 * that autograd takes for subclasses. */
static void give_to_smaller(struct tape *tape, const struct graph *graph, const struct graph_op *op,
                            uint32_t i)
{
    const struct operand grad = tape_grad(tape, op, 0), x = tape_tensor(tape, op->in[0]);
    const struct operand y = tape_tensor(tape, op->in[1]);
    const struct operand above = i == 0 ? ask(tape, WORK_GREATER, ATEN_GT_TENSOR, x, y)
                                        : ask(tape, WORK_LESS, ATEN_LT_TENSOR, x, y);
    const struct operand half = call_number(tape, WORK_DIV_NUMBER, ATEN_DIV_SCALAR, grad, 2.0F);
    const struct operand same = ask(tape, WORK_EQUAL, ATEN_EQ_TENSOR, x, y);
    const struct operand choice[3] = {same, half, grad};
    const struct operand chosen = tape_call(tape, WORK_WHERE, ATEN_WHERE, (enum dtype)grad.dtype,
                                            grad.shape, -1.0, 3, choice);
    struct operand out = chosen;
    if (graph->autograd == AUTOGRAD_GPU) {
        tape_kernel(tape, WORK_MASKED_FILL, ATEN_MASKED_FILL_, -1.0, 2,
                    (struct operand[]){chosen, above}, 1, &chosen);
    } else {
        out = call2(tape, WORK_MASKED_FILL, ATEN_MASKED_FILL, chosen, above);
        tape_death(tape, chosen);
    }
    tape_death(tape, same);
    tape_death(tape, half);
    tape_death(tape, above);
    tape_give(tape, op, i, out);
}

OP_BACKWARD(minimum)
{
    for (uint32_t i = 2; i-- > 0;)
        if (tape_needs(tape, op, i))
            give_to_smaller(tape, graph, op, i);
}

OP_CLASS(minimum) = {
    .label = ATEN_MINIMUM,
    .work = WORK_MINIMUM,
    .saved = minimum_saved,
    .backward = minimum_backward,
};

/* ---- limits that are numbers ---- */

static uint32_t limited(struct graph *graph, uint32_t x, enum work_kind work, float number)
{
    const uint32_t op = begin(graph, OP_LIMIT, 1, &x);
    graph->ops[op].work = work;
    graph->ops[op].attr.p = number;
    const uint32_t out =
        graph_op_birth(graph, op, ATEN_CLAMP, dtype_of(graph, x), *shape_of(graph, x));
    graph_op_done(graph, op);
    return out;
}

uint32_t op_limit(struct graph *graph, uint32_t x, float number, bool both_sides)
{
    return limited(graph, x, both_sides ? WORK_WITHIN : WORK_AT_MOST, number);
}

uint32_t op_at_least(struct graph *graph, uint32_t x, float number)
{
    return limited(graph, x, WORK_AT_LEAST, number);
}

static struct operand ask_number(struct tape *tape, enum work_kind work, enum aten aten,
                                 struct operand x, float number)
{
    const struct operand out = tape_call(tape, work, aten, DTYPE_BOOL, x.shape, -1.0, 1, &x);
    tape_number(tape, number);
    return out;
}

/* where(x between the limits, grad, 0) */
static void give_within(struct tape *tape, const struct graph_op *op, bool has_least, float least,
                        bool has_most, float most)
{
    const struct operand grad = tape_grad(tape, op, 0), x = tape_tensor(tape, op->in[0]);
    struct operand above = {.place = PLACE_NONE}, below = above;
    const struct operand zero =
        tape_birth(tape, ATEN_SCALAR_TENSOR, (enum dtype)grad.dtype, (struct shape){.rank = 0});
    tape_kernel(tape, WORK_FILL, ATEN_SCALAR_TENSOR, -1.0, 0, NULL, 1, &zero);
    tape_number(tape, 0.0F);
    if (has_least)
        above = ask_number(tape, WORK_GREATER_NUMBER, ATEN_GT, x, least);
    if (has_most)
        below = ask_number(tape, WORK_LESS_NUMBER, ATEN_LT, x, most);
    const struct operand inside = has_least ? above : below;
    if (has_least && has_most)
        tape_kernel(tape, WORK_AND, ATEN_LOGICAL_AND, -1.0, 2, (struct operand[]){above, below}, 1,
                    &inside);
    const struct operand choice[3] = {inside, grad, zero};
    tape_give(tape, op, 0,
              tape_call(tape, WORK_WHERE, ATEN_WHERE, (enum dtype)grad.dtype, grad.shape, -1.0, 3,
                        choice));
    if (has_most)
        tape_death(tape, below);
    if (has_least)
        tape_death(tape, above);
    tape_death(tape, zero);
}

OP_BACKWARD(limit)
{
    const float number = op->attr.p;
    const bool has_least = op->work != WORK_AT_MOST, has_most = op->work != WORK_AT_LEAST;
    (void)graph;
    give_within(tape, op, has_least, has_most ? -number : number, has_most, number);
}

OP_CLASS(limit) = {.label = ATEN_CLAMP, .saved = save_input, .backward = limit_backward};

uint32_t op_clip(struct graph *graph, uint32_t x, float least, float most)
{
    const uint32_t op = begin(graph, OP_CLIP, 1, &x);
    graph->ops[op].attr.p = least;
    graph->ops[op].attr.scale = most;
    const uint32_t out =
        graph_op_birth(graph, op, ATEN_CLAMP, dtype_of(graph, x), *shape_of(graph, x));
    graph_op_done(graph, op);
    return out;
}

OP_BACKWARD(clip)
{
    (void)graph;
    give_within(tape, op, true, op->attr.p, true, op->attr.scale);
}

OP_CLASS(clip) = {
    .label = ATEN_CLAMP, .work = WORK_OTHER, .saved = save_input, .backward = clip_backward};
