/* ops_causal_conv.c - a short causal convolution, as causal-conv1d 1.7 computes it: a function of
 * torch.autograd whose kernels write what Python has allocated, so what it allocates, and when, is
 * in its source (causal_conv1d_interface.py, cpp_functions.py). */
#include "graph/causal_conv.h"
#include "graph/op_class.h"

uint32_t op_causal_conv(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias, bool silu)
{
    const struct shape s = *shape_of(graph, x), channels = SHAPE(s.dim[0], s.dim[2], s.dim[1]);
    const struct shape w = *shape_of(graph, weight);
    const uint32_t in[3] = {x, graph_view(graph, weight, SHAPE(w.dim[0], last_dim(&w))), bias};
    const uint32_t op = begin(graph, OP_CAUSAL_CONV, bias == GRAPH_NONE ? 2 : 3, in);
    graph->ops[op].work = silu ? WORK_CAUSAL_CONV_SILU : WORK_CAUSAL_CONV;
    const uint32_t out = graph_op_birth(graph, op, ATEN_EMPTY_LIKE, dtype_of(graph, x), channels);
    graph_op_done(graph, op);
    graph->tensors[out].shape = s; /* in the memory of x, of which PyTorch's is a transposed view */
    return graph_view(graph, out, s);
}

OP_SAVED(causal_conv)
{
    (void)graph;
    for (uint32_t i = 0; i < op->ins; i++)
        saved[i] = op->in[i];
    return op->ins;
}

static double causal_conv_flops(const struct graph *graph, const struct graph_op *op)
{
    return 2.0 * (double)shape_elements(shape_of(graph, op->in[0])) *
           last_dim(shape_of(graph, op->in[1]));
}

void causal_conv_gradients(struct tape *tape, enum work_kind work, double flops, uint32_t count,
                           const struct operand *in, struct operand *out)
{
    for (uint32_t i = 1; i < count; i++)
        out[i] = tape_birth(tape, ATEN_ZEROS_LIKE, DTYPE_FP32, in[i].shape);
    for (uint32_t i = 1; i < count; i++)
        tape_kernel(tape, WORK_FILL, ATEN_ZEROS_LIKE, -1.0, 0, NULL, 1, &out[i]);
    tape_kernel(tape, work, ATEN_CAUSAL_CONV_BACKWARD, flops, count + 1U, in, count, out);
    for (uint32_t i = 1; i < count; i++)
        out[i] = as_stored(tape, out[i], (enum dtype)in[i].dtype);
}

OP_BACKWARD(causal_conv)
{
    const bool silu = op->work == WORK_CAUSAL_CONV_SILU;
    const struct shape s = *shape_of(graph, op->in[0]);
    struct operand in[4], out[3];
    for (uint32_t i = 0; i < op->ins; i++)
        in[i] = tape_tensor(tape, op->in[i]);
    in[op->ins] = tape_grad(tape, op, 0);
    out[0] = tape_birth(tape, ATEN_EMPTY_LIKE, (enum dtype)in[0].dtype,
                        SHAPE(s.dim[0], s.dim[2], s.dim[1]));
    out[0].shape = s;
    causal_conv_gradients(tape, silu ? WORK_CAUSAL_CONV_SILU_BACKWARD : WORK_CAUSAL_CONV_BACKWARD,
                          3 * causal_conv_flops(graph, op), op->ins, in, out);
    for (uint32_t n = 0; n < op->ins; n++) {
        const uint32_t i = n ? op->ins - n : 0; /* a bias is a leaf, the weight was squeezed */
        if (tape_needs(tape, op, i))
            tape_give(tape, op, i, out[i]);
    }
    for (uint32_t i = 0; i < op->ins; i++)
        if (!tape_needs(tape, op, i))
            tape_give_unasked(tape, out[i]);
    tape_end_frame(tape, op);
}

OP_CLASS(causal_conv) = {
    .label = ATEN_CAUSAL_CONV,
    .saved = causal_conv_saved,
    .backward = causal_conv_backward,
    .flops = causal_conv_flops,
    .in_python = true,
};
