/* ops_classify.c - what the heads of sequence classification (hf/classify.h) have beside other
 * operators. */
#include "graph/autocast.h"
#include "graph/op_class.h"

uint32_t op_arange_of(struct graph *graph, enum dtype dtype, uint32_t count)
{
    return op_no_grad(graph, WORK_ARANGE, ATEN_ARANGE, dtype, SHAPE(count), 0, NULL);
}

uint32_t op_argmax_no_grad(struct graph *graph, uint32_t x)
{
    struct shape shape = *shape_of(graph, x);
    shape.rank--;
    return op_no_grad(graph, WORK_OTHER, ATEN_ARGMAX, DTYPE_INT64, shape, 1, &x);
}

/* ---- one token of each sequence ---- */

uint32_t op_index_pair(struct graph *graph, uint32_t x, uint32_t rows, uint32_t places)
{
    const struct shape *shape = shape_of(graph, x);
    return simple(graph, OP_INDEX_PAIR, 3, (uint32_t[]){x, rows, places}, ATEN_INDEX,
                  dtype_of(graph, x), SHAPE(shape_of(graph, rows)->dim[0], last_dim(shape)));
}

OP_SAVED(index_pair)
{
    (void)graph;
    saved[0] = op->in[1];
    saved[1] = op->in[2];
    return 2;
}

/* Put into zeros in place, but for tensors that autograd takes for subclasses: see give_put
 * (ops_index.c). */
OP_BACKWARD(index_pair)
{
    const enum dtype dtype = dtype_of(graph, op->in[0]);
    const struct shape shape = *shape_of(graph, op->in[0]);
    const struct operand zeros = tape_birth(tape, ATEN_NEW_ZEROS, dtype, shape);
    tape_kernel(tape, WORK_FILL, ATEN_NEW_ZEROS, -1.0, 0, NULL, 1, &zeros);
    const struct operand in[4] = {zeros, tape_tensor(tape, op->in[1]), tape_tensor(tape, op->in[2]),
                                  tape_grad(tape, op, 0)};
    if (graph->autograd == AUTOGRAD_GPU) {
        tape_kernel(tape, WORK_OTHER, ATEN_INDEX_PUT_, -1.0, 4, in, 1, &zeros);
        tape_give(tape, op, 0, zeros);
    } else {
        tape_give(tape, op, 0,
                  tape_call(tape, WORK_OTHER, ATEN_INDEX_PUT, dtype, shape, -1.0, 4, in));
        tape_death(tape, zeros);
    }
}

OP_CLASS(index_pair) = {
    .label = ATEN_INDEX,
    .work = WORK_OTHER,
    .saved = index_pair_saved,
    .backward = index_pair_backward,
};

/* ---- all tokens of each sequence ---- */

uint32_t op_mean_tokens(struct graph *graph, uint32_t x)
{
    const struct shape *shape = shape_of(graph, x);
    return simple(graph, OP_MEAN_TOKENS, 1, &x, ATEN_MEAN_DIM, dtype_of(graph, x),
                  SHAPE(shape->dim[0], last_dim(shape)));
}

/* Of the gradient expanded. */
OP_BACKWARD(mean_tokens)
{
    give_elementwise(tape, graph, op, WORK_OTHER, ATEN_DIV_SCALAR, GRAPH_NONE);
}

OP_CLASS(mean_tokens) = {
    .label = ATEN_MEAN_DIM, .work = WORK_OTHER, .backward = mean_tokens_backward};

/* ---- losses ---- */

/* Of two operands, one of which may be wider: it is then. */
static uint32_t loss_of(struct graph *graph, enum op_kind kind, enum aten aten, uint32_t x,
                        uint32_t targets)
{
    uint32_t in[2] = {x, targets};
    autocast_arguments(graph, kind, 2, in);
    const enum dtype dtype =
        dtype_of(graph, in[0]) == dtype_of(graph, in[1]) ? dtype_of(graph, in[0]) : DTYPE_FP32;
    return simple(graph, kind, 2, in, aten, dtype, (struct shape){.rank = 0});
}

OP_SAVED(mse_loss)
{
    (void)graph;
    saved[0] = op->in[0];
    saved[1] = op->in[1];
    return 2;
}

/* A gradient of another dtype is cast as it is handed on (validate_outputs). */
static void give_as_input(struct tape *tape, const struct graph *graph, const struct graph_op *op,
                          struct operand gradient)
{
    const enum dtype dtype = dtype_of(graph, op->in[0]);
    if ((enum dtype)gradient.dtype == dtype) {
        tape_give(tape, op, 0, gradient);
        return;
    }
    const struct operand cast =
        tape_call(tape, WORK_CAST, ATEN_TO_COPY, dtype, gradient.shape, -1.0, 1, &gradient);
    tape_death(tape, gradient);
    tape_give(tape, op, 0, cast);
}

uint32_t op_mse_loss(struct graph *graph, uint32_t x, uint32_t targets)
{
    return loss_of(graph, OP_MSE_LOSS, ATEN_MSE_LOSS, x, targets);
}

OP_BACKWARD(mse_loss)
{
    const struct operand in[3] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[0]),
                                  tape_tensor(tape, op->in[1])};
    give_as_input(tape, graph, op,
                  tape_call(tape, WORK_OTHER, ATEN_MSE_LOSS_BACKWARD, dtype_of(graph, op->out[0]),
                            *shape_of(graph, op->in[0]), -1.0, 3, in));
}

OP_CLASS(mse_loss) = {
    .label = ATEN_MSE_LOSS,
    .work = WORK_OTHER,
    .saved = mse_loss_saved,
    .backward = mse_loss_backward,
};

uint32_t op_bce_loss(struct graph *graph, uint32_t x, uint32_t targets)
{
    return loss_of(graph, OP_BCE_LOSS, ATEN_BCE_LOSS, x, targets);
}

/* The logarithm of the sigmoid and 1 - targets, of which the losses are made in place (native
 * Loss.cpp). */
static uint64_t bce_loss_scratch(const struct graph *graph, const struct graph_op *op)
{
    return 2 * shape_bytes(shape_of(graph, op->in[0]), dtype_of(graph, op->out[0]));
}

/* (sigmoid of x - targets) times the gradient over their number, in place, but for tensors that
 * autograd takes for subclasses: see give_put (ops_index.c). */
OP_BACKWARD(bce_loss)
{
    const struct operand x = tape_tensor(tape, op->in[0]), grad = tape_grad(tape, op, 0);
    const struct operand targets = tape_tensor(tape, op->in[1]);
    const struct operand chance = call1(tape, WORK_SIGMOID, ATEN_SIGMOID, x);
    const struct operand over[2] = {chance, targets};
    if (graph->autograd == AUTOGRAD_GPU) {
        tape_kernel(tape, WORK_SUB, ATEN_SUB, -1.0, 2, over, 1, &chance);
        const struct operand of[2] = {chance, grad};
        tape_kernel(tape, WORK_OTHER, ATEN_MUL, -1.0, 2, of, 1, &chance);
        tape_give(tape, op, 0, chance);
        return;
    }
    const struct operand excess =
        tape_call(tape, WORK_SUB, ATEN_SUB, dtype_of(graph, op->out[0]), x.shape, -1.0, 2, over);
    tape_death(tape, chance);
    const struct operand of[2] = {excess, grad};
    const struct operand out =
        tape_call(tape, WORK_OTHER, ATEN_MUL, (enum dtype)excess.dtype, x.shape, -1.0, 2, of);
    tape_death(tape, excess);
    give_as_input(tape, graph, op, out);
}

OP_CLASS(bce_loss) = {
    .label = ATEN_BCE_LOSS,
    .work = WORK_OTHER,
    .saved = mse_loss_saved,
    .backward = bce_loss_backward,
    .scratch = bce_loss_scratch,
};
