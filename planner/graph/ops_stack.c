/* ops_stack.c - several hidden states in one tensor, one behind the other: how it is made of them
 * and averaged to one again, copies of one, and writing to what is a view of it.
 *
 * A tensor that is written through a view of it has a node CopySlices (pytorch
 * csrc/autograd/functions/tensor.cpp): a copy of the gradient, from which a copy of the slice is
 * given to the function that wrote. A view that is made again behind that is as_strided, whose
 * gradient is put into zeros for all of the memory. */
#include "base/layout.h"
#include "graph/op_class.h"

#include <assert.h>

/* ---- made of parts ---- */

/* `part` with a first dim of so many. */
static struct shape times(uint32_t count, const struct shape *part)
{
    struct shape out = {.rank = (uint8_t)(part->rank + 1)};
    out.dim[0] = count;
    for (uint32_t i = 0; i < part->rank; i++)
        out.dim[i + 1] = part->dim[i];
    return out;
}

uint32_t op_stack(struct graph *graph, uint32_t count, const uint32_t *parts)
{
    enum dtype dtype = dtype_of(graph, parts[0]);
    assert(count <= GRAPH_OPERANDS);
    for (uint32_t i = 1; i < count; i++)
        dtype = dtype_of(graph, parts[i]) == dtype ? dtype : DTYPE_FP32;
    return simple(graph, OP_STACK, count, parts, ATEN_STACK, dtype,
                  times(count, shape_of(graph, parts[0])));
}

/* All of a tensor as one row. */
static struct operand as_row(struct tape *tape, struct operand x)
{
    tape_view(tape, &x, SHAPE((uint32_t)shape_elements(&x.shape)));
    return x;
}

static void stack_forward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    struct operand in[GRAPH_OPERANDS];
    (void)graph;
    for (uint32_t i = 0; i < op->ins; i++)
        in[i] = as_row(tape, tape_tensor(tape, op->in[i]));
    const struct operand out = as_row(tape, tape_birth_output(tape, op, 0));
    tape_kernel(tape, WORK_CAT, ATEN_STACK, -1.0, op->ins, in, 1, &out);
}

/* unbind: each part gets a view of the gradient. */
OP_BACKWARD(stack)
{
    for (uint32_t i = 0; i < op->ins; i++) {
        if (!tape_needs(tape, op, i))
            continue;
        struct operand grad = tape_grad(tape, op, 0);
        const struct strides all = layout_of(&grad.shape, grad.pitch, grad.layout);
        const bool unknown = layout_is_unknown(grad.layout);
        struct strides own = layout_unknown;
        grad.shape = *shape_of(graph, op->in[i]);
        for (uint32_t n = 0; n < grad.shape.rank && !unknown; n++)
            own.of[n] = all.of[n + 1];
        grad.offset += i * (unknown ? shape_elements(&grad.shape) : all.of[0]);
        grad.pitch = 0;
        tape_lay_out(tape, &grad, &own);
        tape_give_view(tape, op, i, grad);
    }
}

OP_CLASS(stack) = {.label = ATEN_STACK, .backward = stack_backward, .forward = stack_forward};

uint32_t op_mean_first(struct graph *graph, uint32_t x)
{
    const struct shape s = *shape_of(graph, x);
    struct shape out = {.rank = (uint8_t)(s.rank - 1)};
    for (uint32_t i = 0; i < out.rank; i++)
        out.dim[i] = s.dim[i + 1];
    return simple(graph, OP_MEAN_FIRST, 1, &x, ATEN_MEAN_DIM, dtype_of(graph, x), out);
}

/* The gradient is expanded and divided. */
OP_BACKWARD(mean_first)
{
    const struct shape *s = shape_of(graph, op->in[0]);
    const struct operand grad = tape_grad(tape, op, 0);
    const struct operand out = tape_birth(tape, ATEN_DIV_SCALAR, dtype_of(graph, op->in[0]), *s);
    tape_kernel(tape, WORK_OTHER, ATEN_DIV_SCALAR, -1.0, 1, &grad, 1, &out);
    tape_give(tape, op, 0, out);
}

OP_CLASS(mean_first) = {
    .label = ATEN_MEAN_DIM, .work = WORK_OTHER, .backward = mean_first_backward};

uint32_t op_copies(struct graph *graph, uint32_t x, uint32_t count)
{
    return simple(graph, OP_COPIES, 1, &x, ATEN_REPEAT, dtype_of(graph, x),
                  times(count, shape_of(graph, x)));
}

OP_BACKWARD(copies)
{
    const struct operand grad = tape_grad(tape, op, 0);
    tape_give(tape, op, 0,
              tape_call(tape, WORK_OTHER, ATEN_SUM_DIM, dtype_of(graph, op->in[0]),
                        *shape_of(graph, op->in[0]), (double)shape_elements(&grad.shape), 1,
                        &grad));
}

OP_CLASS(copies) = {.label = ATEN_REPEAT, .work = WORK_OTHER, .backward = copies_backward};

/* ---- written through views ---- */

/* x itself with another value, seen as `seen`, which is a view of it. */
static uint32_t written(struct graph *graph, uint32_t op, uint32_t seen)
{
    const uint32_t out = graph_view(graph, seen, *shape_of(graph, seen));
    graph->tensors[out].root = out;
    graph->ops[op].out[graph->ops[op].outs++] = out;
    graph_op_done(graph, op);
    return out;
}

/* CopySlices' copy of the gradient, of that shape, and the slice's. */
static void copy_slices(struct tape *tape, const struct graph_op *op, struct shape base,
                        struct shape slice, struct operand made[2])
{
    const struct operand grad = tape_grad(tape, op, 0);
    const enum dtype dtype = (enum dtype)grad.dtype;
    made[0] = tape_birth(tape, ATEN_NEW_EMPTY_STRIDED, dtype, base);
    tape_kernel(tape, WORK_OTHER, ATEN_COPY_, -1.0, 1, &grad, 1, &made[0]);
    made[1] = tape_call(tape, WORK_OTHER, ATEN_CLONE, dtype, slice, -1.0, 1, &made[0]);
}

uint32_t op_add_to_seen(struct graph *graph, uint32_t x, uint32_t seen, uint32_t y)
{
    const uint32_t op = begin(graph, OP_ADD_TO_SEEN, 2, (uint32_t[]){x, y});
    return written(graph, op, seen);
}

static void add_to_seen_forward(struct tape *tape, const struct graph *graph,
                                const struct graph_op *op)
{
    const struct operand y = tape_tensor(tape, op->in[1]), out = tape_tensor(tape, op->out[0]);
    (void)graph;
    tape_kernel(tape, WORK_ADD_TO, ATEN_ADD_, -1.0, 2, (struct operand[]){out, y}, 1, &out);
}

/* What is added to a part: its own gradient, which it returns, is copied out of that of the whole.
 */
static struct operand backward_of_part(struct tape *tape, const struct graph *graph,
                                       const struct graph_op *op, struct shape part)
{
    struct operand made[2];
    copy_slices(tape, op, *shape_of(graph, op->in[0]), part, made);
    tape_kernel(tape, WORK_OTHER, ATEN_COPY_, -1.0, 1, &made[1], 1, &made[0]);
    if (tape_needs(tape, op, 0))
        tape_give(tape, op, 0, made[0]);
    else
        tape_death(tape, made[0]);
    return made[1];
}

OP_BACKWARD(add_to_seen)
{
    const struct operand own = backward_of_part(tape, graph, op, *shape_of(graph, op->out[0]));
    if (tape_needs(tape, op, 1))
        tape_give(tape, op, 1, own);
    else
        tape_death(tape, own);
}

OP_CLASS(add_to_seen) = {.label = ATEN_ADD_,
                         .backward = add_to_seen_backward,
                         .forward = add_to_seen_forward,
                         .in_place = true};

uint32_t op_as_strided(struct graph *graph, uint32_t x, uint32_t seen)
{
    const uint32_t op = begin(graph, OP_AS_STRIDED, 1, &x);
    return written(graph, op, seen);
}

/* A gradient in zeros for all of the memory; a view's own function makes none where it is a view of
 * all of it. */
OP_BACKWARD(as_strided)
{
    const struct shape *base = shape_of(graph, op->in[0]), *seen = shape_of(graph, op->out[0]);
    const uint32_t all = (uint32_t)shape_elements(base);
    const bool replayed = tape_replays_views(tape), whole = shape_elements(seen) == all;
    const struct operand grad = tape_grad(tape, op, 0);
    const enum aten label = replayed ? ATEN_SLICE_BACKWARD : ATEN_NEW_ZEROS;
    if (replayed && whole) {
        tape_give(tape, op, 0, grad);
        return;
    }
    struct operand out =
        tape_birth(tape, label, (enum dtype)grad.dtype, replayed ? *base : SHAPE(all));
    tape_kernel(tape, WORK_FILL, label, -1.0, 0, NULL, 1, &out);
    tape_kernel(tape, WORK_OTHER, ATEN_COPY_, -1.0, 1, &grad, 1, &out);
    tape_view(tape, &out, *base);
    if (replayed)
        tape_give(tape, op, 0, out);
    else
        tape_give_view(tape, op, 0, out);
}

OP_CLASS(as_strided) = {.backward = as_strided_backward};

/* x (n, ...) without the first, as a tensor of the same memory. */
static uint32_t rest_of(struct graph *graph, uint32_t x)
{
    struct shape shape = *shape_of(graph, x);
    const struct strides strides = graph_strides(graph, x);
    shape.dim[0]--;
    const uint32_t out = graph_view(graph, x, shape);
    graph->tensors[out].offset += (uint32_t)strides.of[0];
    return out;
}

/* y added to all but the first: x[1:].add_(y). */
static uint32_t add_to_rest(struct graph *graph, uint32_t x, uint32_t y)
{
    const uint32_t op = begin(graph, OP_ADD_TO_REST, 2, (uint32_t[]){x, y});
    return written(graph, op, x);
}

/* An operand without its first. */
static struct operand rest_operand(struct tape *tape, struct operand x)
{
    const uint32_t each = (uint32_t)(shape_elements(&x.shape) / x.shape.dim[0]);
    x.shape.dim[0]--;
    x.offset += each;
    (void)tape;
    return x;
}

static void add_to_rest_forward(struct tape *tape, const struct graph *graph,
                                const struct graph_op *op)
{
    const struct operand y = tape_tensor(tape, op->in[1]),
                         rest = rest_operand(tape, tape_tensor(tape, op->out[0]));
    (void)graph;
    tape_kernel(tape, WORK_OTHER, ATEN_ADD_, -1.0, 2, (struct operand[]){rest, y}, 1, &rest);
}

static struct shape rest_shape(const struct graph *graph, uint32_t x)
{
    struct shape shape = *shape_of(graph, x);
    shape.dim[0]--;
    return shape;
}

OP_BACKWARD(add_to_rest)
{
    const struct operand own = backward_of_part(tape, graph, op, rest_shape(graph, op->in[0]));
    if (tape_needs(tape, op, 1))
        tape_give_summed(tape, op, 1, own);
    else
        tape_death(tape, own);
}

OP_CLASS(add_to_rest) = {.label = ATEN_ADD_,
                         .backward = add_to_rest_backward,
                         .forward = add_to_rest_forward,
                         .in_place = true};

/* `rest`, which lies there already, put to all but the first: x[1:].copy_(rest). */
static uint32_t put_rest(struct graph *graph, uint32_t x, uint32_t rest)
{
    const uint32_t op = begin(graph, OP_PUT_REST, 2, (uint32_t[]){x, rest});
    return written(graph, op, x);
}

static void put_rest_forward(struct tape *tape, const struct graph *graph,
                             const struct graph_op *op)
{
    const struct operand in = tape_tensor(tape, op->in[1]),
                         rest = rest_operand(tape, tape_tensor(tape, op->out[0]));
    (void)graph;
    tape_kernel(tape, WORK_COPY, ATEN_COPY_, -1.0, 1, &in, 1, &rest);
}

OP_BACKWARD(put_rest)
{
    struct operand made[2];
    const struct shape slice = rest_shape(graph, op->in[0]);
    copy_slices(tape, op, *shape_of(graph, op->in[0]), slice, made);
    const enum dtype dtype = (enum dtype)made[0].dtype;
    const struct operand zeros = tape_birth(tape, ATEN_ZEROS_LIKE, dtype, slice);
    tape_kernel(tape, WORK_FILL, ATEN_ZEROS_LIKE, -1.0, 0, NULL, 1, &zeros);
    tape_kernel(tape, WORK_OTHER, ATEN_COPY_, -1.0, 1, &zeros, 1, &made[0]);
    tape_death(tape, zeros);
    tape_give(tape, op, 0, made[0]);
    tape_give(tape, op, 1, made[1]);
}

OP_CLASS(put_rest) = {.label = ATEN_COPY_,
                      .backward = put_rest_backward,
                      .forward = put_rest_forward,
                      .in_place = true};

uint32_t op_add_to_others(struct graph *graph, uint32_t x, uint32_t y)
{
    const uint32_t added = add_to_rest(graph, x, y);
    const uint32_t rest = op_as_strided(graph, added, rest_of(graph, added));
    return put_rest(graph, added, rest);
}

/* ---- numbers of a row ---- */

uint32_t op_std_last(struct graph *graph, uint32_t x)
{
    return simple(graph, OP_STD_LAST, 1, &x, ATEN_STD, dtype_of(graph, x),
                  with_last(*shape_of(graph, x), 1));
}

OP_SAVED(std_last)
{
    (void)graph;
    saved[0] = op->in[0];
    saved[1] = op->out[0];
    return 2;
}

/* grad / (2 result), zero where that is; times 2 / h (x - mean). */
OP_BACKWARD(std_last)
{
    const struct operand grad = tape_grad(tape, op, 0), x = tape_tensor(tape, op->in[0]),
                         result = tape_tensor(tape, op->out[0]);
    const float share = 2.0F / (float)last_dim(shape_of(graph, op->in[0]));
    const struct operand twice = call_number(tape, WORK_MUL_NUMBER, ATEN_MUL_SCALAR, result, 2.0F);
    const struct operand part = call2(tape, WORK_DIV, ATEN_DIV, grad, twice);
    const struct operand none =
        tape_call(tape, WORK_EQUAL_NUMBER, ATEN_EQ, DTYPE_BOOL, result.shape, -1.0, 1, &result);
    tape_number(tape, 0.0F);
    tape_kernel(tape, WORK_MASKED_FILL, ATEN_MASKED_FILL, -1.0, 2, (struct operand[]){part, none},
                1, &part);
    tape_number(tape, 0.0F);
    tape_death(tape, none);
    tape_death(tape, twice);
    const struct operand mean = tape_call(tape, WORK_MEAN, ATEN_MEAN_DIM, (enum dtype)x.dtype,
                                          result.shape, (double)shape_elements(&x.shape), 1, &x);
    const struct operand centred = call2(tape, WORK_SUB, ATEN_SUB, x, mean);
    const struct operand scaled = call_number(tape, WORK_MUL_NUMBER, ATEN_MUL_SCALAR, part, share);
    tape_give(tape, op, 0, call2(tape, WORK_MUL, ATEN_MUL, centred, scaled));
    tape_death(tape, scaled);
    tape_death(tape, centred);
    tape_death(tape, mean);
    tape_death(tape, part);
}

OP_CLASS(std_last) = {
    .label = ATEN_STD, .work = WORK_OTHER, .saved = std_last_saved, .backward = std_last_backward};
