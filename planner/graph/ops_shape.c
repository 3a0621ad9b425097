/* ops_shape.c - views that are nodes, copies in other shapes, sums over dims. */
#include "base/layout.h"
#include "graph/op_class.h"

#include <assert.h>

/* ---- views ---- */

/* A view of x as the next output of an op: its gradient is its own. */
static uint32_t view_out(struct graph *graph, uint32_t op, uint32_t x, struct shape shape)
{
    const uint32_t out = graph_view(graph, x, shape);
    graph->tensors[out].root = out;
    graph->ops[op].out[graph->ops[op].outs++] = out;
    return out;
}

static uint32_t view_node(struct graph *graph, enum op_kind kind, uint32_t x, struct shape shape)
{
    const uint32_t op = begin(graph, kind, 1, &x);
    const uint32_t out = view_out(graph, op, x, shape);
    graph_op_done(graph, op);
    return out;
}

/* Every `step`-th element from `first` on of the last dim, `count` of them, as the next output. A
 * plan says so by the pitch of rows for what cost and the order of memory are about. */
static uint32_t cut_out(struct graph *graph, uint32_t op, uint32_t x, uint32_t first,
                        uint32_t count, uint32_t step)
{
    const struct graph_tensor base = graph->tensors[x];
    const uint32_t last = base.shape.rank - 1;
    struct strides strides = graph_strides(graph, x);
    const uint32_t out = view_out(graph, op, x, with_last(base.shape, count));
    struct graph_tensor *t = &graph->tensors[out];
    t->offset = base.offset + (uint32_t)(first * strides.of[last]);
    t->pitch = base.pitch ? base.pitch : base.shape.dim[last];
    strides.of[last] *= step;
    graph_set_strides(graph, out, layout_is_unknown(base.layout) ? &layout_unknown : &strides);
    return out;
}

void op_parts(struct graph *graph, uint32_t x, uint32_t count, const uint32_t *widths,
              uint32_t *out)
{
    const uint32_t op = begin(graph, OP_CHUNK, 1, &x);
    for (uint32_t i = 0, first = 0; i < count; first += widths[i++])
        out[i] = cut_out(graph, op, x, first, widths[i], 1);
    graph_op_done(graph, op);
}

void op_chunk(struct graph *graph, uint32_t x, uint32_t count, uint32_t *out)
{
    uint32_t widths[GRAPH_OUTPUTS] = {0};
    for (uint32_t i = 0; i < count; i++)
        widths[i] = last_dim(shape_of(graph, x)) / count;
    op_parts(graph, x, count, widths, out);
}

void op_chunk_across(struct graph *graph, uint32_t x, uint32_t count, uint32_t *out)
{
    op_chunk(graph, x, count, out);
    graph->ops[graph->op_count - 1].attr.first = 1; /* across: its backward asks for it */
}

void op_unbind(struct graph *graph, uint32_t x, uint32_t count, struct shape part, uint32_t *out)
{
    op_chunk(graph, x, count, out);
    const uint32_t op = graph->op_count - 1;
    graph->ops[op].attr.dim = part.dim[2];
    for (uint32_t i = 0; i < count; i++) {
        out[i] = graph_view(graph, out[i], part);
        graph->tensors[out[i]].root = out[i];
        graph->ops[op].out[i] = out[i];
    }
}

void op_split_by(struct graph *graph, uint32_t x, uint32_t count, const uint32_t *widths,
                 uint32_t *out)
{
    op_parts(graph, x, count, widths, out);
    for (uint32_t i = 0; i < count; i++)
        graph->tensors[out[i]].split = true;
}

void op_split(struct graph *graph, uint32_t x, uint32_t width, uint32_t *out)
{
    op_split_by(graph, x, 2, (uint32_t[]){width, last_dim(shape_of(graph, x)) - width}, out);
}

/* Two dims of an operand change places: the same memory. */
static void swap_last(struct tape *tape, struct operand *x)
{
    const uint32_t last = x->shape.rank - 1, width = x->shape.dim[last];
    struct strides strides = layout_of(&x->shape, x->pitch, x->layout);
    const uint64_t step = strides.of[last];
    if (layout_is_unknown(x->layout))
        return;
    x->shape.dim[last] = x->shape.dim[last - 1];
    x->shape.dim[last - 1] = width;
    strides.of[last] = strides.of[last - 1];
    strides.of[last - 1] = step;
    x->pitch = 0;
    tape_lay_out(tape, x, &strides);
}

/* stack of gradients (b, s, a, d): (b, s, count, a, d), which is (b, s, count · a, d) joined by its
 * heads. Joined is the last dim, so kernels see heads there. */
static struct operand stacked(struct tape *tape, const struct graph_op *op, enum dtype dtype,
                              struct operand *in)
{
    const struct shape s = in[0].shape; /* (b, s, a, d) */
    struct operand out = tape_birth(tape, ATEN_STACK, dtype,
                                    SHAPE(s.dim[0], s.dim[1], op->outs, s.dim[2], s.dim[3]));
    out.shape = SHAPE(s.dim[0], s.dim[1], op->outs * s.dim[2], s.dim[3]);
    struct operand seen = out;
    swap_last(tape, &seen);
    for (uint32_t i = 0; i < op->outs; i++)
        swap_last(tape, &in[i]);
    tape_kernel(tape, WORK_CAT, ATEN_STACK, 0.0, op->outs, in, 1, &seen);
    return out;
}

/* cat of gradients (b, s, c) as (b, n c, s) in memory. */
static struct operand joined_across(struct tape *tape, const struct graph_op *op, enum dtype dtype,
                                    struct shape s, const struct operand *in)
{
    const uint64_t tokens = s.dim[1], row = s.dim[2];
    struct operand out = tape_birth(tape, ATEN_CAT, dtype, SHAPE(s.dim[0], s.dim[2], s.dim[1]));
    out.shape = s;
    tape_lay_out(tape, &out, &(struct strides){.of = {row * tokens, 1, tokens}});
    tape_kernel(tape, WORK_CAT, ATEN_CAT, 0.0, op->outs, in, 1, &out);
    return out;
}

OP_BACKWARD(chunk) /* cat joins the gradients, or stack */
{
    const enum dtype dtype = dtype_of(graph, op->in[0]);
    const struct shape shape = *shape_of(graph, op->in[0]);
    struct operand in[GRAPH_OUTPUTS], grad;
    for (uint32_t i = 0; i < op->outs; i++)
        in[i] = tape_grad(tape, op, i);
    if (op->attr.dim) { /* op_unbind */
        grad = stacked(tape, op, dtype, in);
        grad.shape = shape;
    } else if (op->attr.first) { /* op_chunk_across */
        grad = joined_across(tape, op, dtype, shape, in);
    } else {
        grad = tape_call(tape, WORK_CAT, ATEN_CAT, dtype, shape, 0.0, op->outs, in);
    }
    tape_give(tape, op, 0, grad);
}

OP_CLASS(chunk) = {.backward = chunk_backward};

uint32_t op_slice_last(struct graph *graph, uint32_t x, uint32_t first, uint32_t count)
{
    const uint32_t op = begin(graph, OP_SLICE, 1, &x);
    const uint32_t out = cut_out(graph, op, x, first, count, 1);
    graph->ops[op].attr.first = first;
    graph_op_done(graph, op);
    return out;
}

OP_BACKWARD(slice) /* the gradient is put into zeros of x's shape */
{
    give_elementwise(tape, graph, op, WORK_SLICE_BACKWARD, ATEN_SLICE_BACKWARD, GRAPH_NONE);
}

OP_CLASS(slice) = {.backward = slice_backward};

uint32_t op_index_all(struct graph *graph, uint32_t x, uint32_t dims)
{
    const bool is_itself = torch_does(graph->torch, TORCH_INDEX_OF_ALL);
    for (uint32_t i = 0; i < dims && !is_itself; i++)
        x = op_slice_last(graph, x, 0, last_dim(shape_of(graph, x)));
    return x;
}

uint32_t op_stride_last(struct graph *graph, uint32_t x, uint32_t first, uint32_t step)
{
    const uint32_t op = begin(graph, OP_STRIDE, 1, &x);
    const uint32_t out = cut_out(graph, op, x, first, last_dim(shape_of(graph, x)) / step, step);
    graph->ops[op].attr.first = first;
    graph->ops[op].attr.dim = step;
    graph_op_done(graph, op);
    return out;
}

OP_BACKWARD(stride)
{
    give_elementwise(tape, graph, op, WORK_STRIDE_BACKWARD, ATEN_SLICE_BACKWARD, GRAPH_NONE);
}

OP_CLASS(stride) = {.backward = stride_backward};

uint32_t op_expand(struct graph *graph, uint32_t x, struct shape shape)
{
    if (shape_elements(&shape) == shape_elements(shape_of(graph, x))) {
        /* the gradient has nothing to be summed over and stays itself: no view of it is made */
        assert(shape.rank == shape_of(graph, x)->rank);
        return x;
    }
    const struct strides narrow = graph_strides(graph, x);
    struct strides strides;
    const bool fits = layout_expand(shape_of(graph, x), &narrow, &shape, &strides);
    const uint32_t out = view_node(graph, OP_EXPAND, x, shape);
    graph_set_strides(graph, out, fits ? &strides : &layout_unknown);
    return out;
}

OP_BACKWARD(expand)
{
    const struct operand grad = tape_grad(tape, op, 0);
    tape_give(tape, op, 0,
              tape_call(tape, WORK_SUM, ATEN_SUM_DIM, dtype_of(graph, op->in[0]),
                        *shape_of(graph, op->in[0]), (double)shape_elements(&grad.shape), 1,
                        &grad));
}

OP_CLASS(expand) = {.backward = expand_backward};

uint32_t op_alias(struct graph *graph, uint32_t x)
{
    return view_node(graph, OP_ALIAS, x, *shape_of(graph, x));
}

uint32_t op_view_node(struct graph *graph, uint32_t x, struct shape shape)
{
    return view_node(graph, OP_ALIAS, x, shape);
}

uint32_t op_module_input(struct graph *graph, uint32_t x)
{
    const uint32_t out = op_alias(graph, x);
    graph->ops[graph->op_count - 1].of_hook = true;
    return out;
}

uint32_t op_call_input(struct graph *graph, uint32_t x)
{
    const uint32_t out = op_alias(graph, x);
    graph->ops[graph->op_count - 1].of_call = true;
    graph->ops[graph->op_count - 1].call = NULL; /* in front of it */
    return out;
}

uint32_t op_called_alone(struct graph *graph, uint32_t x)
{
    const uint32_t out = op_alias(graph, x);
    graph->ops[graph->op_count - 1].of_call = true;
    return out;
}

OP_BACKWARD(alias)
{
    (void)graph;
    tape_give(tape, op, 0, tape_grad(tape, op, 0));
}

OP_CLASS(alias) = {.backward = alias_backward};

uint32_t op_view_copied(struct graph *graph, uint32_t x, struct shape shape)
{
    return view_node(graph, OP_VIEW, x, shape);
}

OP_BACKWARD(view)
{
    const struct operand grad = tape_grad(tape, op, 0);
    tape_give(tape, op, 0,
              tape_call(tape, WORK_REORDER, ATEN_CLONE, dtype_of(graph, op->in[0]),
                        *shape_of(graph, op->out[0]), -1.0, 1, &grad));
}

OP_CLASS(view) = {.backward = view_backward};

uint32_t op_reshape(struct graph *graph, uint32_t x, struct shape shape)
{
    return view_node(graph, OP_RESHAPE, x, shape);
}

static struct operand copied_in_order(struct tape *tape, struct operand grad)
{
    return tape_call(tape, WORK_REORDER, ATEN_CLONE, (enum dtype)grad.dtype, grad.shape, -1.0, 1,
                     &grad);
}

OP_BACKWARD(reshape)
{
    const struct operand grad = tape_grad(tape, op, 0);
    const struct strides own = layout_of(&grad.shape, grad.pitch, grad.layout);
    struct strides seen;
    const bool fits = !layout_is_unknown(grad.layout) &&
                      layout_view(&grad.shape, &own, shape_of(graph, op->in[0]), &seen);
    tape_give(tape, op, 0, fits ? grad : copied_in_order(tape, grad));
}

OP_CLASS(reshape) = {.backward = reshape_backward};

uint32_t op_real(struct graph *graph, uint32_t x)
{
    return view_node(graph, OP_REAL, x, *shape_of(graph, x));
}

OP_BACKWARD(real)
{
    (void)graph;
    const struct operand grad = tape_grad(tape, op, 0);
    tape_give(tape, op, 0, grad.layout || grad.pitch ? copied_in_order(tape, grad) : grad);
}

OP_CLASS(real) = {.backward = real_backward};

/* ---- copies ---- */

uint32_t op_repeat(struct graph *graph, uint32_t x, struct shape repeated, uint32_t dim)
{
    const uint32_t op = begin(graph, OP_REPEAT, 1, &x);
    graph->ops[op].attr.dim = dim;
    const bool one_head = repeated.dim[dim - 1] == 1; /* expanded, it reshapes without a copy */
    const struct strides own = graph_strides(graph, x);
    struct strides strides = own;
    const uint32_t out = one_head
                             ? view_out(graph, op, x, repeated)
                             : graph_op_birth(graph, op, ATEN_CLONE, dtype_of(graph, x), repeated);
    for (uint32_t i = dim; i < repeated.rank; i++)
        strides.of[i] = i == dim ? 0 : own.of[i - 1];
    if (one_head)
        graph_set_strides(graph, out, &strides);
    graph_op_done(graph, op);
    return out;
}

uint32_t op_repeat_copied(struct graph *graph, uint32_t x, struct shape repeated, uint32_t dim)
{
    const uint32_t op = begin(graph, OP_REPEAT, 1, &x);
    graph->ops[op].attr.dim = dim;
    const uint32_t out = graph_op_birth(graph, op, ATEN_CLONE, dtype_of(graph, x), repeated);
    graph_op_done(graph, op);
    return out;
}

OP_BACKWARD(repeat)
{
    const struct operand grad = tape_grad(tape, op, 0);
    struct shape summed = *shape_of(graph, op->out[0]);
    summed.dim[op->attr.dim] = 1;
    tape_give(tape, op, 0,
              tape_call(tape, WORK_SUM, ATEN_SUM_DIM, (enum dtype)grad.dtype, summed,
                        (double)shape_elements(&grad.shape), 1, &grad));
}

OP_CLASS(repeat) = {.label = ATEN_CLONE, .work = WORK_REPEAT, .backward = repeat_backward};

uint32_t op_tile(struct graph *graph, uint32_t x, uint32_t count)
{
    struct shape shape = *shape_of(graph, x);
    assert(shape.rank == 2);
    shape.dim[0] *= count;
    return simple(graph, OP_TILE, 1, &x, ATEN_REPEAT, dtype_of(graph, x), shape);
}

/* What x (n, h) was tiled to, as (count, n, h). */
static void as_tiles(struct tape *tape, const struct graph *graph, const struct graph_op *op,
                     struct operand *tiled)
{
    const struct shape *one = shape_of(graph, op->in[0]), *all = shape_of(graph, op->out[0]);
    tape_view(tape, tiled, SHAPE(all->dim[0] / one->dim[0], one->dim[0], one->dim[1]));
}

static void tile_forward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    const struct operand in = tape_tensor(tape, op->in[0]);
    struct operand out = tape_birth_output(tape, op, 0);
    as_tiles(tape, graph, op, &out);
    tape_kernel(tape, WORK_REPEAT, ATEN_REPEAT, -1.0, 1, &in, 1, &out);
}

OP_BACKWARD(tile)
{
    struct operand grad = tape_grad(tape, op, 0);
    as_tiles(tape, graph, op, &grad);
    if (grad.shape.dim[0] == 1) {
        tape_give(tape, op, 0, tape_grad(tape, op, 0));
        return;
    }
    tape_give(tape, op, 0,
              tape_call(tape, WORK_SUM, ATEN_SUM_DIM, dtype_of(graph, op->in[0]),
                        *shape_of(graph, op->in[0]), (double)shape_elements(&grad.shape), 1,
                        &grad));
}

OP_CLASS(tile) = {
    .label = ATEN_REPEAT,
    .work = WORK_REPEAT,
    .backward = tile_backward,
    .forward = tile_forward,
};

uint32_t op_sum_first(struct graph *graph, uint32_t x)
{
    const struct shape s = *shape_of(graph, x);
    assert(s.rank == 3);
    return simple(graph, OP_SUM_FIRST, 1, &x, ATEN_SUM_DIM,
                  graph->autocast.on ? DTYPE_FP32 : dtype_of(graph, x), SHAPE(s.dim[1], s.dim[2]));
}

/* Expanded the gradient is a view, which the engine's cast copies, or else the reshape by which x
 * was seen so, but not of one. */
OP_BACKWARD(sum_first)
{
    const struct operand grad = tape_grad(tape, op, 0);
    const struct shape *shape = shape_of(graph, op->in[0]);
    const enum dtype dtype = dtype_of(graph, op->in[0]);
    const bool cast = dtype != (enum dtype)grad.dtype;
    if (shape->dim[0] == 1)
        tape_give(tape, op, 0, grad);
    else
        tape_give(tape, op, 0,
                  tape_call(tape, cast ? WORK_CAST : WORK_REPEAT, cast ? ATEN_TO_COPY : ATEN_CLONE,
                            dtype, *shape, -1.0, 1, &grad));
}

OP_CLASS(sum_first) = {.label = ATEN_SUM_DIM, .work = WORK_SUM_DIM, .backward = sum_first_backward};

uint32_t op_cat_last(struct graph *graph, uint32_t x, uint32_t y)
{
    const struct shape shape = *shape_of(graph, x);
    return simple(graph, OP_CAT, 2, (uint32_t[]){x, y}, ATEN_CAT, promoted(graph, x, y),
                  with_last(shape, last_dim(&shape) + last_dim(shape_of(graph, y))));
}

/* A view of the gradient of the last output for an input: every `step`-th element of the last dim
 * from `first` on. */
static struct operand part_of_gradient(struct tape *tape, const struct graph *graph,
                                       const struct graph_op *op, uint32_t i, uint32_t first,
                                       uint32_t step)
{
    struct operand grad = tape_grad(tape, op, 0);
    const uint32_t last = grad.shape.rank - 1, width = grad.shape.dim[last];
    struct strides strides = layout_of(&grad.shape, grad.pitch, grad.layout);
    const bool unknown = layout_is_unknown(grad.layout);
    grad.offset += unknown ? first : first * strides.of[last];
    grad.pitch = grad.pitch ? grad.pitch : width;
    grad.shape = *shape_of(graph, op->in[i]);
    strides.of[last] *= step;
    tape_lay_out(tape, &grad, unknown ? &layout_unknown : &strides);
    return grad;
}

uint32_t op_cat_parts(struct graph *graph, uint32_t count, const uint32_t *parts)
{
    struct shape shape = *shape_of(graph, parts[0]);
    for (uint32_t i = 1; i < count; i++)
        shape = with_last(shape, last_dim(&shape) + last_dim(shape_of(graph, parts[i])));
    return simple(graph, OP_CAT, count, parts, ATEN_CAT, dtype_of(graph, parts[0]), shape);
}

/* Each part gets a narrow view of the gradient: no births. */
OP_BACKWARD(cat)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < op->ins; i++) {
        if (tape_needs(tape, op, i))
            tape_give(tape, op, i, part_of_gradient(tape, graph, op, i, first, 1));
        first += last_dim(shape_of(graph, op->in[i]));
    }
}

OP_CLASS(cat) = {.label = ATEN_CAT, .work = WORK_CAT, .backward = cat_backward};

uint32_t op_cat_alone(struct graph *graph, uint32_t x)
{
    return simple(graph, OP_CAT_ALONE, 1, &x, ATEN_CAT, dtype_of(graph, x), *shape_of(graph, x));
}

OP_BACKWARD(cat_alone)
{
    (void)graph;
    tape_give(tape, op, 0, tape_grad(tape, op, 0));
}

OP_CLASS(cat_alone) = {.label = ATEN_CAT, .work = WORK_COPY, .backward = cat_alone_backward};

/* ---- written in place ---- */

uint32_t op_put_slice(struct graph *graph, uint32_t whole, uint32_t x, uint32_t first,
                      uint32_t width)
{
    const uint32_t op = begin(graph, OP_PUT_SLICE, 2, (uint32_t[]){x, whole});
    const struct shape shape = with_last(*shape_of(graph, x), width);
    graph->ops[op].attr.first = first;
    const uint32_t out = whole == GRAPH_NONE
                             ? graph_op_birth(graph, op, ATEN_NEW_EMPTY, dtype_of(graph, x), shape)
                             : view_out(graph, op, whole, shape);
    graph_op_done(graph, op);
    return out;
}

/* The gradient of what was put there: a copy of the slice, in its dtype. */
static struct operand slice_gradient(struct tape *tape, const struct graph *graph,
                                     const struct graph_op *op, struct operand slice)
{
    const enum dtype dtype = dtype_of(graph, op->in[0]);
    if (slice.dtype == dtype)
        return slice;
    const struct operand cast =
        tape_call(tape, WORK_CAST, ATEN_TO_COPY, dtype, slice.shape, -1.0, 1, &slice);
    tape_death(tape, slice);
    return cast;
}

/* CopySlices (pytorch csrc/autograd/functions/tensor.cpp): a copy of the gradient, in which the
 * slice is zeroed, is the gradient of what was there before. */
OP_BACKWARD(put_slice)
{
    const struct operand grad = tape_grad(tape, op, 0);
    const enum dtype dtype = (enum dtype)grad.dtype;
    const struct shape shape = *shape_of(graph, op->in[0]);
    struct operand copy = tape_birth(tape, ATEN_NEW_EMPTY_STRIDED, dtype, grad.shape);
    tape_lay_out_like(tape, WORK_CAST, 1, &grad, &copy);
    tape_kernel(tape, WORK_COPY, ATEN_COPY_, -1.0, 1, &grad, 1, &copy);
    struct operand slice = tape_call(tape, WORK_SLICE, ATEN_CLONE, dtype, shape, -1.0, 1, &copy);
    if (tape_needs(tape, op, 1)) {
        const struct operand zeros = tape_birth(tape, ATEN_ZEROS_LIKE, dtype, shape);
        tape_kernel(tape, WORK_FILL, ATEN_ZEROS_LIKE, -1.0, 0, NULL, 1, &zeros);
        slice = slice_gradient(tape, graph, op, slice);
        if (!tape_needs(tape, op, 0)) /* CopySlices' function lets go of it as it returns */
            tape_death(tape, slice);
        tape_kernel(tape, WORK_PUT_SLICE, ATEN_COPY_, -1.0, 1, &zeros, 1, &copy);
        tape_death(tape, zeros);
        tape_give(tape, op, 1, copy);
    } else {
        slice = slice_gradient(tape, graph, op, slice);
        tape_death(tape, copy);
    }
    if (tape_needs(tape, op, 0))
        tape_give(tape, op, 0, slice);
    else if (!tape_needs(tape, op, 1))
        tape_death(tape, slice);
}

OP_CLASS(put_slice) = {
    .label = ATEN_COPY_, .work = WORK_PUT_SLICE, .backward = put_slice_backward, .in_place = true};
uint32_t op_interleave(struct graph *graph, uint32_t x, uint32_t y)
{
    const struct shape *s = shape_of(graph, x);
    assert(s->rank < SHAPE_DIMS);
    struct shape stacked = *s;
    stacked.dim[stacked.rank++] = 2;
    const struct shape shape = with_last(*s, 2 * last_dim(s));
    const uint32_t out = simple(graph, OP_INTERLEAVE, 2, (uint32_t[]){x, y}, ATEN_STACK,
                                promoted(graph, x, y), stacked);
    return graph_view(graph, out, shape);
}

/* Each side gets a view of the gradient: no births. */
OP_BACKWARD(interleave)
{
    for (uint32_t i = 0; i < 2; i++)
        if (tape_needs(tape, op, i))
            tape_give(tape, op, i, part_of_gradient(tape, graph, op, i, i, 2));
}

OP_CLASS(interleave) = {
    .label = ATEN_STACK,
    .work = WORK_INTERLEAVE,
    .backward = interleave_backward,
};

uint32_t op_pad_last(struct graph *graph, uint32_t x, uint32_t last)
{
    return simple(graph, OP_PAD_LAST, 1, &x, ATEN_CONSTANT_PAD, dtype_of(graph, x),
                  with_last(*shape_of(graph, x), last));
}

OP_BACKWARD(pad_last) /* a pad by a negative number */
{
    give_elementwise(tape, graph, op, WORK_PAD, ATEN_CONSTANT_PAD, GRAPH_NONE);
}

OP_CLASS(pad_last) = {.label = ATEN_CONSTANT_PAD, .work = WORK_PAD, .backward = pad_last_backward};

/* ---- sums ---- */

uint32_t op_mean_last(struct graph *graph, uint32_t x)
{
    return simple(graph, OP_MEAN_LAST, 1, &x, ATEN_MEAN_DIM, dtype_of(graph, x),
                  with_last(*shape_of(graph, x), 1));
}

OP_BACKWARD(mean_last)
{
    give_elementwise(tape, graph, op, WORK_DIV_NUMBER, ATEN_DIV_SCALAR, GRAPH_NONE);
    tape_number(tape, (float)last_dim(shape_of(graph, op->in[0])));
}

OP_CLASS(mean_last) = {.label = ATEN_MEAN_DIM, .work = WORK_MEAN, .backward = mean_last_backward};

/* Under autocast sums of lower precision are in fp32, without a cast of what is summed. */
static enum dtype sum_dtype(const struct graph *graph, uint32_t x)
{
    return graph->autocast.on ? DTYPE_FP32 : dtype_of(graph, x);
}

/* The gradient of a sum is expanded: a view; where the sum was in another dtype, a cast of that. */
static void give_expanded(struct tape *tape, const struct graph *graph, const struct graph_op *op,
                          struct shape with_ones)
{
    struct operand grad = tape_grad(tape, op, 0);
    tape_view(tape, &grad, with_ones);
    if (dtype_of(graph, op->in[0]) == dtype_of(graph, op->out[0]))
        tape_give(tape, op, 0, grad);
    else
        tape_give(tape, op, 0,
                  tape_call(tape, WORK_CAST, ATEN_TO_COPY, dtype_of(graph, op->in[0]),
                            *shape_of(graph, op->in[0]), -1.0, 1, &grad));
}

uint32_t op_sum_last(struct graph *graph, uint32_t x)
{
    return simple(graph, OP_SUM_LAST, 1, &x, ATEN_SUM_DIM, sum_dtype(graph, x),
                  with_last(*shape_of(graph, x), 1));
}

OP_BACKWARD(sum_last)
{
    give_expanded(tape, graph, op, *shape_of(graph, op->out[0]));
}

OP_CLASS(sum_last) = {.label = ATEN_SUM_DIM, .work = WORK_SUM, .backward = sum_last_backward};

uint32_t op_sum_all(struct graph *graph, uint32_t x)
{
    return simple(graph, OP_SUM_ALL, 1, &x, ATEN_SUM, sum_dtype(graph, x),
                  (struct shape){.rank = 0});
}

OP_BACKWARD(sum_all)
{
    give_expanded(tape, graph, op, *shape_of(graph, op->out[0]));
}

OP_CLASS(sum_all) = {.label = ATEN_SUM, .work = WORK_SUM, .backward = sum_all_backward};

uint32_t op_sum_groups(struct graph *graph, uint32_t x, uint32_t group)
{
    const struct shape shape = *shape_of(graph, x);
    const uint32_t rows = shape.dim[0] / group, h = shape.dim[1];
    const uint32_t groups = graph_view(graph, x, SHAPE(rows, group, h));
    const uint32_t op = begin(graph, OP_SUM_GROUPS, 1, &groups);
    graph->ops[op].attr.dim = 1;
    const uint32_t out =
        graph_op_birth(graph, op, ATEN_SUM_DIM, sum_dtype(graph, x), SHAPE(rows, h));
    graph_op_done(graph, op);
    return out;
}

/* The only row of a gradient, read again and again: strides say that in any shape. */
static void give_only_row(struct tape *tape, struct shape with_ones, const struct graph_op *op,
                          const struct shape *shape)
{
    struct operand grad = tape_grad(tape, op, 0);
    struct strides strides;
    tape_view(tape, &grad, with_ones);
    const struct strides own = layout_of(&grad.shape, grad.pitch, grad.layout);
    if (layout_is_unknown(grad.layout) || !layout_expand(&with_ones, &own, shape, &strides))
        strides = layout_unknown;
    grad.shape = *shape;
    tape_lay_out(tape, &grad, &strides);
    tape_give(tape, op, 0, grad);
}

/* The gradient is expanded over each group, and the view (rows · group, h) of that is a copy, if it
 * is none yet and there are several groups (computeStride, ATen/TensorUtils.cpp). */
OP_BACKWARD(sum_groups)
{
    const struct shape *shape = shape_of(graph, op->in[0]);
    const bool cast = dtype_of(graph, op->in[0]) != dtype_of(graph, op->out[0]);
    struct shape with_ones = *shape;
    with_ones.dim[1] = 1;
    if (shape->dim[1] == 1)
        give_expanded(tape, graph, op, *shape_of(graph, op->out[0]));
    else if (cast)
        give_expanded(tape, graph, op, with_ones);
    else if (shape->dim[0] == 1)
        give_only_row(tape, with_ones, op, shape);
    else
        give_elementwise(tape, graph, op, WORK_REPEAT, ATEN_CLONE, GRAPH_NONE);
}

OP_CLASS(sum_groups) = {
    .label = ATEN_SUM_DIM,
    .work = WORK_SUM_DIM,
    .backward = sum_groups_backward,
};
