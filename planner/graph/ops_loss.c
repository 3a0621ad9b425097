/* ops_loss.c - softmax and the loss. */
#include "graph/autocast.h"
#include "graph/op_class.h"

uint32_t op_softmax(struct graph *graph, uint32_t x)
{
    autocast_arguments(graph, OP_SOFTMAX, 1, &x);
    return op_softmax_as_is(graph, x);
}

uint32_t op_softmax_as_is(struct graph *graph, uint32_t x)
{
    return simple(graph, OP_SOFTMAX, 1, &x, ATEN_SOFTMAX, dtype_of(graph, x), *shape_of(graph, x));
}

OP_BACKWARD(softmax)
{
    give_elementwise(tape, graph, op, WORK_SOFTMAX_BACKWARD, ATEN_SOFTMAX_BACKWARD, op->out[0]);
}

OP_CLASS(softmax) = {
    .label = ATEN_SOFTMAX,
    .work = WORK_SOFTMAX,
    .saved = save_output,
    .backward = softmax_backward,
};

/* A softmax, then a mask of what is minus infinity and of rows that are all so, which are zeroed
 * (pytorch native/SoftMax.cpp, _safe_softmax); a dispatch mode sees one call. */
uint32_t op_safe_softmax(struct graph *graph, uint32_t x)
{
    const struct shape shape = *shape_of(graph, x);
    const uint32_t op = begin(graph, OP_SAFE_SOFTMAX, 1, &x);
    const uint32_t out = graph_op_birth(graph, op, ATEN_SAFE_SOFTMAX, dtype_of(graph, x), shape);
    if (graph->autograd == AUTOGRAD_GPU) {
        graph_op_birth(graph, op, ATEN_ISNEGINF, DTYPE_BOOL, shape);
        graph_op_birth(graph, op, ATEN_ALL, DTYPE_BOOL, with_last(shape, 1));
        graph->ops[op].hidden = 2;
    }
    graph_op_done(graph, op);
    return out;
}

OP_BACKWARD(safe_softmax)
{
    give_elementwise(tape, graph, op, WORK_SOFTMAX_BACKWARD, ATEN_SOFTMAX_BACKWARD, op->out[0]);
}

OP_CLASS(safe_softmax) = {
    .label = ATEN_SAFE_SOFTMAX,
    .work = WORK_SAFE_SOFTMAX,
    .saved = save_output,
    .backward = safe_softmax_backward,
};

/* ---- mean cross-entropy ---- */

/* cross_entropy_loss names the dtype of its argument to log_softmax, so that autocast, which would
 * choose fp32, leaves it alone; nll_loss then casts (pytorch LossNLL.cpp). */

static uint32_t log_softmax(struct graph *graph, uint32_t logits)
{
    return simple(graph, OP_LOG_SOFTMAX, 1, &logits, ATEN_LOG_SOFTMAX, dtype_of(graph, logits),
                  *shape_of(graph, logits));
}

OP_BACKWARD(log_softmax)
{
    give_elementwise(tape, graph, op, WORK_LOG_SOFTMAX_BACKWARD, ATEN_LOG_SOFTMAX_BACKWARD,
                     op->out[0]);
}

OP_CLASS(log_softmax) = {
    .label = ATEN_LOG_SOFTMAX,
    .work = WORK_LOG_SOFTMAX,
    .saved = save_output,
    .backward = log_softmax_backward,
};

/* `kind`: nll_loss of all rows, or of each; `shape` is what it gives. */
static uint32_t cross_entropy(struct graph *graph, int kind, uint32_t logits, uint32_t targets,
                              struct shape shape)
{
    const uint32_t log_probabilities = log_softmax(graph, logits);
    uint32_t scores = log_probabilities;
    autocast_arguments(graph, kind, 1, &scores);
    const uint32_t op = begin(graph, kind, 2, (uint32_t[]){scores, targets});
    const enum dtype dtype = dtype_of(graph, scores);
    const uint32_t loss = graph_op_birth(graph, op, ATEN_NLL_LOSS, dtype, shape);
    graph_op_birth(graph, op, ATEN_NLL_LOSS, dtype, (struct shape){.rank = 0}); /* total weight */
    graph->ops[op].hidden = 1;
    graph_op_done(graph, op);
    graph_drop(graph, log_probabilities);
    return loss;
}

OP_SAVED(nll_loss)
{
    (void)graph;
    saved[0] = op->in[0];
    saved[1] = op->in[1];
    saved[2] = op->out[1];
    return 3;
}

OP_BACKWARD(nll_loss)
{
    give_elementwise(tape, graph, op, WORK_NLL_LOSS_BACKWARD, ATEN_NLL_LOSS_BACKWARD, op->in[1]);
}

OP_CLASS(nll_loss) = {
    .label = ATEN_NLL_LOSS,
    .work = WORK_NLL_LOSS,
    .saved = nll_loss_saved,
    .backward = nll_loss_backward,
};

uint32_t op_cross_entropy(struct graph *graph, uint32_t logits, uint32_t targets)
{
    return cross_entropy(graph, OP_NLL_LOSS, logits, targets, (struct shape){.rank = 0});
}

/* ---- of each row ---- */

OP_BACKWARD(nll_losses)
{
    give_elementwise(tape, graph, op, WORK_NLL_LOSSES_BACKWARD, ATEN_NLL_LOSS_BACKWARD, op->in[1]);
}

OP_CLASS(nll_losses) = {
    .label = ATEN_NLL_LOSS,
    .work = WORK_NLL_LOSSES,
    .saved = nll_loss_saved,
    .backward = nll_losses_backward,
};

uint32_t op_cross_entropies(struct graph *graph, uint32_t logits, uint32_t targets)
{
    return cross_entropy(graph, OP_NLL_LOSSES, logits, targets, *shape_of(graph, targets));
}

struct idle_loss op_cross_entropy_idle(struct graph *graph, uint32_t logits, uint32_t targets)
{
    const struct shape scalar = {.rank = 0};
    struct idle_loss idle;
    idle.log_probabilities = op_no_grad(graph, WORK_LOG_SOFTMAX, ATEN_LOG_SOFTMAX, DTYPE_FP32,
                                        *shape_of(graph, logits), 1, &logits);
    const uint32_t op = begin(graph, OP_NLL_LOSS, 2, (uint32_t[]){idle.log_probabilities, targets});
    idle.loss = graph_op_birth(graph, op, ATEN_NLL_LOSS, DTYPE_FP32, scalar);
    idle.weight = graph_op_birth(graph, op, ATEN_NLL_LOSS, DTYPE_FP32, scalar);
    graph_op_done(graph, op);
    return idle;
}
