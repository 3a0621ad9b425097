/* ops_dims.c - parts of a dim that is not the last: views that are nodes, and copies by a list of
 * places.
 *
 * Kernels of slices know the last dim alone. They are given both operands with the dim in its
 * place: strides say where the elements are. */
#include "base/layout.h"
#include "graph/op_class.h"

/* The same elements, `dim` and the last one changed for each other. */
static void put_last(struct tape *tape, struct operand *operand, uint32_t dim)
{
    const uint32_t last = operand->shape.rank - 1, count = operand->shape.dim[dim];
    struct strides strides = layout_of(&operand->shape, operand->pitch, operand->layout);
    const uint64_t step = strides.of[dim];
    operand->shape.dim[dim] = operand->shape.dim[last];
    operand->shape.dim[last] = count;
    if (layout_is_unknown(operand->layout))
        return;
    strides.of[dim] = strides.of[last];
    strides.of[last] = step;
    operand->pitch = 0;
    tape_lay_out(tape, operand, &strides);
}

/* `count` places of a dim from `first` on, as the op's output: a view. */
static uint32_t part_of(struct graph *graph, enum op_kind kind, uint32_t x, uint32_t dim,
                        uint32_t first, uint32_t count)
{
    const struct graph_tensor base = graph->tensors[x];
    const struct strides strides = graph_strides(graph, x);
    struct shape shape = base.shape;
    shape.dim[dim] = count;
    const uint32_t op = begin(graph, kind, 1, &x);
    const uint32_t out = graph_view(graph, x, shape);
    struct graph_tensor *t = &graph->tensors[out];
    t->root = out;
    t->offset = base.offset + (uint32_t)(first * strides.of[dim]);
    graph_set_strides(graph, out, layout_is_unknown(base.layout) ? &layout_unknown : &strides);
    graph->ops[op].out[graph->ops[op].outs++] = out;
    graph->ops[op].attr.first = first;
    graph->ops[op].attr.dim = dim;
    graph_op_done(graph, op);
    return out;
}

/* The gradient put where x has what was taken, into a new tensor or into `zeros`. */
static struct operand put_back(struct tape *tape, const struct graph *graph,
                               const struct graph_op *op, enum aten label,
                               const struct operand *zeros)
{
    struct operand grad = tape_grad(tape, op, 0);
    const struct operand made =
        zeros ? *zeros
              : tape_birth(tape, label, dtype_of(graph, op->in[0]), *shape_of(graph, op->in[0]));
    struct operand whole = made;
    put_last(tape, &grad, op->attr.dim);
    put_last(tape, &whole, op->attr.dim);
    tape_kernel(tape, WORK_SLICE_BACKWARD, label, -1.0, 1, &grad, 1, &whole);
    return made;
}

uint32_t op_slice_dim(struct graph *graph, uint32_t x, uint32_t dim, uint32_t first, uint32_t count)
{
    return part_of(graph, OP_SLICE_DIM, x, dim, first, count);
}

OP_BACKWARD(slice_dim)
{
    tape_give(tape, op, 0, put_back(tape, graph, op, ATEN_SLICE_BACKWARD, NULL));
}

OP_CLASS(slice_dim) = {.backward = slice_dim_backward};

uint32_t op_select(struct graph *graph, uint32_t x, uint32_t dim, uint32_t place)
{
    return part_of(graph, OP_SELECT, x, dim, place, 1);
}

OP_BACKWARD(select)
{
    tape_give(tape, op, 0, put_back(tape, graph, op, ATEN_SELECT_BACKWARD, NULL));
}

OP_CLASS(select) = {.backward = select_backward};

uint32_t op_pick(struct graph *graph, uint32_t x, uint32_t dim, uint32_t place)
{
    struct shape shape = *shape_of(graph, x);
    const float from_end = (float)place - (float)shape.dim[dim];
    const uint32_t list = op_fill(graph, ATEN_LIFT_FRESH, DTYPE_INT64, SHAPE(1), from_end);
    shape.dim[dim] = 1;
    const uint32_t op = begin(graph, OP_PICK, 2, (uint32_t[]){x, list});
    const uint32_t out = graph_op_birth(graph, op, ATEN_INDEX, dtype_of(graph, x), shape);
    graph->ops[op].attr.first = place;
    graph->ops[op].attr.dim = dim;
    graph_op_done(graph, op);
    graph_drop(graph, list);
    return out;
}

static void pick_forward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    (void)graph;
    struct operand x = tape_tensor(tape, op->in[0]), out = tape_birth_output(tape, op, 0);
    put_last(tape, &x, op->attr.dim);
    put_last(tape, &out, op->attr.dim);
    tape_kernel(tape, WORK_SLICE, ATEN_INDEX, -1.0, 1, &x, 1, &out);
}

/* Put into zeros in place, but for tensors that autograd takes for subclasses: see give_put. */
OP_BACKWARD(pick)
{
    const enum dtype dtype = dtype_of(graph, op->in[0]);
    const struct operand zeros =
        tape_birth(tape, ATEN_NEW_ZEROS, dtype, *shape_of(graph, op->in[0]));
    tape_kernel(tape, WORK_FILL, ATEN_NEW_ZEROS, -1.0, 0, NULL, 1, &zeros);
    if (graph->autograd == AUTOGRAD_GPU) {
        tape_give(tape, op, 0, put_back(tape, graph, op, ATEN_INDEX_PUT_, &zeros));
    } else {
        tape_give(tape, op, 0, put_back(tape, graph, op, ATEN_INDEX_PUT, NULL));
        tape_death(tape, zeros);
    }
}

OP_CLASS(pick) = {
    .label = ATEN_INDEX,
    .work = WORK_SLICE,
    .saved = save_second,
    .backward = pick_backward,
    .forward = pick_forward,
};

uint32_t op_cat_row(struct graph *graph, uint32_t x, uint32_t row)
{
    const struct shape rows = *shape_of(graph, x);
    return simple(graph, OP_CAT_ROW, 2, (uint32_t[]){x, row}, ATEN_CAT, dtype_of(graph, x),
                  SHAPE(rows.dim[0] + 1, rows.dim[1]));
}

static void cat_row_forward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    (void)graph;
    struct operand in[2] = {tape_tensor(tape, op->in[0]), tape_tensor(tape, op->in[1])};
    struct operand out = tape_birth_output(tape, op, 0);
    in[1].shape = SHAPE(1, in[1].shape.dim[0]); /* vstack */
    for (int i = 0; i < 2; i++)
        put_last(tape, &in[i], 0);
    put_last(tape, &out, 0);
    tape_kernel(tape, WORK_CAT, ATEN_CAT, -1.0, 2, in, 1, &out);
}

/* The gradient without its last row: a view. */
OP_BACKWARD(cat_row)
{
    struct operand grad = tape_grad(tape, op, 0);
    grad.shape = *shape_of(graph, op->in[0]);
    tape_give(tape, op, 0, grad);
}

OP_CLASS(cat_row) = {
    .label = ATEN_CAT,
    .work = WORK_CAT,
    .backward = cat_row_backward,
    .forward = cat_row_forward,
};
