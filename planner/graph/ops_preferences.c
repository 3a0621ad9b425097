/* ops_preferences.c - what the loss of preferences (model/dpo.h) has beside other operators. */
#include "graph/op_class.h"

#include <assert.h>

uint32_t op_sum_tokens(struct graph *graph, uint32_t x)
{
    struct shape shape = *shape_of(graph, x);
    assert(shape.rank == 2 || shape.rank == 3);
    shape.dim[1] = shape.dim[--shape.rank];
    return simple(graph, OP_SUM_TOKENS, 1, &x, ATEN_SUM_DIM, dtype_of(graph, x), shape);
}

/* The gradient expanded: a view. */
OP_BACKWARD(sum_tokens)
{
    struct operand grad = tape_grad(tape, op, 0);
    struct shape shape = *shape_of(graph, op->in[0]);
    shape.dim[1] = 1;
    tape_view(tape, &grad, shape);
    tape_give(tape, op, 0, grad);
}

OP_CLASS(sum_tokens) = {.label = ATEN_SUM_DIM, .work = WORK_SUM, .backward = sum_tokens_backward};

uint32_t op_mean_all(struct graph *graph, uint32_t x)
{
    return simple(graph, OP_MEAN_ALL, 1, &x, ATEN_MEAN_ALL, dtype_of(graph, x),
                  (struct shape){.rank = 0});
}

OP_BACKWARD(mean_all)
{
    give_elementwise(tape, graph, op, WORK_DIV_NUMBER, ATEN_DIV_SCALAR, GRAPH_NONE);
    tape_number(tape, (float)shape_elements(shape_of(graph, op->in[0])));
}

OP_CLASS(mean_all) = {.label = ATEN_MEAN_ALL, .work = WORK_MEAN, .backward = mean_all_backward};

/* The buffer that it returns, too, is empty on a GPU (native/cuda/Activation.cpp). */
uint32_t op_log_sigmoid(struct graph *graph, uint32_t x)
{
    return simple(graph, OP_LOG_SIGMOID, 1, &x, ATEN_LOG_SIGMOID, dtype_of(graph, x),
                  *shape_of(graph, x));
}

OP_BACKWARD(log_sigmoid)
{
    give_elementwise(tape, graph, op, WORK_OTHER, ATEN_LOG_SIGMOID_BACKWARD, op->in[0]);
}

OP_CLASS(log_sigmoid) = {
    .label = ATEN_LOG_SIGMOID,
    .work = WORK_OTHER,
    .saved = save_input,
    .backward = log_sigmoid_backward,
};

void op_read(struct graph *graph, uint32_t x)
{
    const uint32_t op = begin(graph, OP_READ, 1, &x);
    graph->ops[op].out[graph->ops[op].outs++] = graph_view(graph, x, *shape_of(graph, x));
    graph->ops[op].no_grad = true;
    graph_op_done(graph, op);
}

static void read_forward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    (void)graph;
    (void)op;
    tape_host_reads(tape);
}

OP_CLASS(read) = {.label = ATEN_LOCAL_SCALAR, .forward = read_forward};
