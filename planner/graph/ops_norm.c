/* ops_norm.c - layer norm and RMS norm: fused, or as ATen composes the second before torch 2.9. */
#include "graph/autocast.h"
#include "graph/op_class.h"

/* Mean and rstd are in fp32, as the CUDA kernel keeps them (native/cuda/layer_norm_kernel.cu,
 * toAccumulateType); recordings on fake CPU tensors have them in the input's dtype. */
uint32_t op_layer_norm(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias, float eps)
{
    const struct shape shape = *shape_of(graph, x), row = with_last(shape, 1);
    uint32_t in[3] = {x, weight, bias};
    autocast_arguments(graph, OP_LAYER_NORM, 3, in);
    const enum dtype dtype = dtype_of(graph, in[0]);
    const enum dtype statistics = graph->autograd == AUTOGRAD_GPU ? DTYPE_FP32 : dtype;
    const uint32_t op = begin(graph, OP_LAYER_NORM, 3, in);
    const uint32_t out = graph_op_birth(graph, op, ATEN_NATIVE_LAYER_NORM, dtype, shape);
    graph_op_birth(graph, op, ATEN_NATIVE_LAYER_NORM, statistics, row);
    graph_op_birth(graph, op, ATEN_NATIVE_LAYER_NORM, statistics, row);
    graph->ops[op].hidden = 2;
    graph->ops[op].attr.eps = eps;
    graph_op_done(graph, op);
    return out;
}

/* Bias, input and weight, as the node lists them by name: parameters that live anyway, or casts of
 * them that autocast has made. */
OP_SAVED(norm)
{
    (void)graph;
    uint32_t count = 0;
    if (op->ins > 2 && op->in[2] != GRAPH_NONE)
        saved[count++] = op->in[2];
    saved[count++] = op->in[0];
    if (op->in[1] != GRAPH_NONE)
        saved[count++] = op->in[1];
    for (uint32_t i = 1; i < op->outs; i++)
        saved[count++] = op->out[i];
    return count;
}

OP_BACKWARD(layer_norm)
{
    const bool weighted = op->in[1] != GRAPH_NONE;
    struct operand in[5] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[0]),
                            weighted ? tape_tensor(tape, op->in[1])
                                     : (struct operand){.place = PLACE_NONE},
                            tape_tensor(tape, op->out[1]), tape_tensor(tape, op->out[2])};
    struct operand out[3];
    uint32_t outs = 0;
    for (uint32_t i = 0; i < 3; i++) {
        if (!tape_needs(tape, op, i))
            continue;
        out[outs] = tape_birth(tape, ATEN_NATIVE_LAYER_NORM_BACKWARD, dtype_of(graph, op->in[i]),
                               *shape_of(graph, op->in[i]));
        tape_give(tape, op, i, out[outs++]);
    }
    tape_kernel(tape, WORK_LAYER_NORM_BACKWARD, ATEN_NATIVE_LAYER_NORM_BACKWARD, -1.0, 5, in, outs,
                out);
}

OP_CLASS(layer_norm) = {
    .label = ATEN_NATIVE_LAYER_NORM,
    .work = WORK_LAYER_NORM,
    .saved = norm_saved,
    .backward = layer_norm_backward,
};

/* A name is bound to what was made of it; a cast to the same dtype is the tensor itself. */
static uint32_t rebound(struct graph *graph, uint32_t before, uint32_t after)
{
    if (after != before)
        graph_drop(graph, before);
    return after;
}

/* x * rsqrt(mean(x^2) + eps) * weight as rms_norm of native/layer_norm.cpp wrote it up to 2.5: in
 * one expression, whose temporaries die with its end, the last first. */
static uint32_t rms_norm_in_one(struct graph *graph, uint32_t x, uint32_t weight, float eps)
{
    const uint32_t square = op_scalar(graph, OP_POW, x, 2.0F);
    const uint32_t mean = op_mean_last(graph, square);
    const uint32_t rstd = op_unary(graph, OP_RSQRT, op_add_scalar_in_place(graph, mean, eps));
    const uint32_t out = op_mul(graph, x, rstd);
    graph_drop(graph, rstd);
    graph_drop(graph, mean);
    graph_drop(graph, square);
    return rebound(graph, out, op_mul(graph, out, weight));
}

/* upcast * rsqrt(mean(upcast^2) + eps), as it wrote it then; the weight comes behind the cast back,
 * since 2.7 before it. */
static uint32_t composed_rms_norm(struct graph *graph, uint32_t x, uint32_t weight, float eps)
{
    const enum dtype dtype = dtype_of(graph, x);
    const bool wide = torch_does(graph->torch, TORCH_RMS_NORM_WIDE);
    const uint32_t upcast = op_to(graph, x, DTYPE_FP32);
    const uint32_t square = op_scalar(graph, OP_POW, upcast, 2.0F);
    const uint32_t mean = op_mean_last(graph, square);
    const uint32_t rstd = op_unary(graph, OP_RSQRT, op_add_scalar_in_place(graph, mean, eps));
    graph_drop(graph, mean);
    graph_drop(graph, square);
    uint32_t out = op_mul(graph, upcast, rstd);
    if (!wide)
        out = rebound(graph, out, op_to(graph, out, dtype));
    out = rebound(graph, out, op_mul(graph, out, weight));
    graph_drop(graph, rstd);
    if (upcast != x)
        graph_drop(graph, upcast);
    return wide ? rebound(graph, out, op_to(graph, out, dtype)) : out;
}

uint32_t op_rms_norm(struct graph *graph, uint32_t x, uint32_t weight, float eps)
{
    if (!torch_does(graph->torch, TORCH_RMS_NORM_UPCASTS))
        return rms_norm_in_one(graph, x, weight, eps);
    if (!torch_does(graph->torch, TORCH_RMS_NORM_FUSED))
        return composed_rms_norm(graph, x, weight, eps);
    const struct shape shape = *shape_of(graph, x);
    uint32_t in[2] = {x, weight};
    autocast_arguments(graph, OP_RMS_NORM, 2, in);
    const uint32_t op = begin(graph, OP_RMS_NORM, 2, in);
    const uint32_t out = graph_op_birth(graph, op, ATEN_EMPTY_LIKE, dtype_of(graph, in[0]), shape);
    graph_op_birth(graph, op, ATEN_EMPTY, DTYPE_FP32, with_last(shape, 1));
    graph->ops[op].hidden = 1;
    graph->ops[op].attr.eps = eps;
    graph_op_done(graph, op);
    return out;
}

OP_BACKWARD(rms_norm)
{
    const struct operand in[4] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[0]),
                                  tape_tensor(tape, op->in[1]), tape_tensor(tape, op->out[1])};
    struct operand out[2];
    uint32_t outs = 0;
    for (uint32_t i = 0; i < 2; i++) {
        if (!tape_needs(tape, op, i))
            continue;
        out[outs] = tape_birth(tape, ATEN_EMPTY_LIKE, dtype_of(graph, op->in[i]),
                               *shape_of(graph, op->in[i]));
        tape_give(tape, op, i, out[outs++]);
    }
    tape_kernel(tape, WORK_RMS_NORM_BACKWARD, ATEN_FUSED_RMS_NORM_BACKWARD, -1.0, 4, in, outs, out);
}

OP_CLASS(rms_norm) = {
    .label = ATEN_FUSED_RMS_NORM,
    .work = WORK_RMS_NORM,
    .saved = norm_saved,
    .backward = rms_norm_backward,
};
