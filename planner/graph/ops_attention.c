/* ops_attention.c - attention by the kernels of libraries: cuDNN's, flash and memory-efficient.
 *
 * scaled_dot_product_attention asks each in turn whether it takes the call, and falls back to the
 * last, and then to single ops: of fp32, or of a bias or mask on the scores, which flash does not
 * have. The memory-efficient kernel wants a bias (1, a, s, s_k) padded to rows of a multiple of 8,
 * sliced back (so that it sees aligned strides) and expanded over the batch; when that needs a
 * gradient it writes one for the whole batch, which is then summed. cuDNN's takes a bias as it is,
 * and writes no gradient of it. */
#include "base/layout.h"
#include "graph/attention_scratch.h"
#include "graph/autocast.h"
#include "graph/op_class.h"

#include <math.h>

static struct shape heads_first(const struct shape *s) /* (b, s, a, d) -> (b, a, s, d) */
{
    return SHAPE(s->dim[0], s->dim[2], s->dim[1], s->dim[3]);
}

/* ---- which kernel ---- */

bool attention_takes_cudnn(uint32_t torch, enum attention_gpu gpu,
                           const struct attention_asks *asks)
{
    const uint32_t d = asks->head, v = asks->width;
    const bool newer =
        gpu != ATTENTION_GPU_BLACKWELL || torch_does(torch, TORCH_WIDE_CUDNN_ATTENTION);
    const bool wide =
        gpu != ATTENTION_GPU_AMPERE && ((d == 192 && v == 128) || (d == 256 && v == 256 && newer));
    const bool fits = wide || (d <= 128 && v <= 128);
    const float sixteenths = 16 * asks->dropout;
    return fits && d % 8 == 0 && v % 8 == 0 && !asks->learned && sixteenths == floorf(sixteenths);
}

struct attention_asks op_attention_asks(const struct graph *graph, uint32_t q, uint32_t v,
                                        uint32_t mask, float dropout)
{
    const bool masked = mask != GRAPH_NONE;
    return (struct attention_asks){
        .head = last_dim(shape_of(graph, q)),
        .width = last_dim(shape_of(graph, v)),
        .masked = masked,
        .learned = masked && graph->tensors[mask].requires_grad,
        .dropout = dropout,
    };
}

static bool takes_flash(const struct attention_asks *asks)
{
    return !asks->masked && asks->head == asks->width && asks->head <= 256;
}

enum attention_kernel op_attention_kernel(const struct graph *graph,
                                          const struct attention_asks *asks)
{
    const enum attention_kernel first = graph->attention;
    if (attention_is_asked(first))
        return first;
    if (first != ATTENTION_EFFICIENT && autocast_product(graph) != DTYPE_FP32) {
        if (first == ATTENTION_CUDNN &&
            attention_takes_cudnn(graph->torch, graph->attention_gpu, asks))
            return ATTENTION_CUDNN;
        if (takes_flash(asks))
            return first == ATTENTION_CUDNN ? ATTENTION_FLASH : first;
    }
    return ATTENTION_EFFICIENT;
}

enum op_kind op_attention_kind(const struct graph *graph)
{
    return graph->attention == ATTENTION_EFFICIENT ? OP_EFFICIENT_ATTENTION : OP_FLASH_ATTENTION;
}

/* Whether the op's kernel is cuDNN's, or else the one that its class is called by. */
static bool is_cudnn(const struct graph *graph, const struct graph_op *op)
{
    return graph->storages[graph->tensors[op->out[0]].storage].aten == ATEN_CUDNN_ATTENTION;
}

/* ---- flash, and cuDNN's without a bias ---- */

/* logsumexp, and the generator's state. */
static void birth_cudnn_statistics(struct graph *graph, uint32_t op, const struct shape *q)
{
    const struct shape scalar = {.rank = 0};
    graph_op_birth(graph, op, ATEN_CUDNN_ATTENTION, DTYPE_FP32,
                   SHAPE(q->dim[0], q->dim[2], q->dim[1], 1));
    graph_op_birth(graph, op, ATEN_CUDNN_ATTENTION, DTYPE_INT64, scalar);
    graph_op_birth(graph, op, ATEN_CUDNN_ATTENTION, DTYPE_INT64, scalar);
}

static void birth_statistics(struct graph *graph, uint32_t op, const struct shape *q, bool cudnn)
{
    const struct shape scalar = {.rank = 0};
    if (cudnn) {
        birth_cudnn_statistics(graph, op, q);
        return;
    }
    graph_op_birth(graph, op, ATEN_FLASH_ATTENTION, DTYPE_FP32,
                   SHAPE(q->dim[0], q->dim[2], q->dim[1])); /* logsumexp */
    if (!torch_does(graph->torch, TORCH_FLASH_STATE_ON_DEVICE)) {
        /* seed and offset: of a GPU's, nothing is on the GPU */
        const struct shape state = graph->autograd == AUTOGRAD_GPU ? SHAPE(0) : scalar;
        graph_op_birth(graph, op, ATEN_FLASH_ATTENTION, DTYPE_INT64, state);
        graph_op_birth(graph, op, ATEN_FLASH_ATTENTION, DTYPE_INT64, state);
        return;
    }
    graph_op_birth(graph, op, ATEN_FLASH_ATTENTION, DTYPE_UINT64, SHAPE(2)); /* rng state */
    graph_op_birth(graph, op, ATEN_FLASH_ATTENTION, DTYPE_UINT64, scalar);
}

uint32_t op_attention(struct graph *graph, uint32_t q, uint32_t k, uint32_t v, bool causal,
                      float dropout)
{
    const struct shape shape = *shape_of(graph, q);
    uint32_t in[3] = {q, k, v};
    if (graph->attention == ATTENTION_MATH)
        return op_math_attention(
            graph,
            &(struct math_attention){
                .q = q, .k = k, .v = v, .mask = GRAPH_NONE, .causal = causal, .dropout = dropout});
    if (graph->attention == ATTENTION_EFFICIENT)
        return op_efficient_attention(graph, q, k, v, GRAPH_NONE, causal, dropout);
    const struct attention_asks asks = op_attention_asks(graph, q, v, GRAPH_NONE, dropout);
    const bool cudnn = graph->attention == ATTENTION_CUDNN &&
                       attention_takes_cudnn(graph->torch, graph->attention_gpu, &asks);
    autocast_attention_arguments(graph, OP_FLASH_ATTENTION, 3, in);
    const uint32_t op = begin(graph, OP_FLASH_ATTENTION, 3, in);
    const enum aten label = cudnn ? ATEN_CUDNN_ATTENTION : ATEN_FLASH_ATTENTION;
    const uint32_t born =
        graph_op_birth(graph, op, label, dtype_of(graph, in[0]), heads_first(&shape));
    birth_statistics(graph, op, &shape, cudnn);
    graph->ops[op].hidden = 3;
    graph->ops[op].attr.causal = causal;
    graph->ops[op].attr.p = dropout;
    graph_op_done(graph, op);
    /* It is born (b, a, s, d) with the memory of (b, s, a, d): transposing back is free. */
    graph->tensors[born].shape = shape;
    return graph_view(graph, born, shape);
}

void op_attention_scale(struct graph *graph, uint32_t attended, float scale)
{
    const struct graph_storage *born = &graph->storages[graph->tensors[attended].storage];
    graph->ops[born->index].attr.scale = scale;
}

OP_SAVED(attention)
{
    (void)graph;
    const uint32_t order[] = {op->in[1],  op->in[0],  op->in[2], op->out[1],
                              op->out[0], op->out[2], op->out[3]};
    for (uint32_t i = 0; i < 7; i++)
        saved[i] = order[i];
    return 7;
}

/* Two matmuls, halved where the upper triangle is skipped (compute-cost: 4·b·s²·h_q, or less where
 * values are narrower than keys). */
static double attention_flops(const struct graph *graph, const struct graph_op *op)
{
    const struct shape *q = shape_of(graph, op->in[0]), *k = shape_of(graph, op->in[1]);
    const struct shape *v = shape_of(graph, op->in[2]);
    const double full =
        2.0 * (double)shape_elements(q) * k->dim[1] * (1 + (double)v->dim[3] / q->dim[3]);
    return op->attr.causal ? full / 2 : full;
}

/* Workspaces that a kernel has while it runs. */
static void hold(struct tape *tape, uint32_t count, const uint64_t *bytes, struct operand *scratch)
{
    for (uint32_t i = 0; i < count; i++)
        scratch[i] = tape_scratch(tape, bytes[i]);
}

static void let_go(struct tape *tape, uint32_t count, const struct operand *scratch)
{
    while (count > 0)
        tape_death(tape, scratch[--count]);
}

/* Its gradients are born by empty_like, which keeps the order in which dims lie. */
static void lie_like(struct tape *tape, const struct operand *x, struct operand *gradient)
{
    if (!x->layout || layout_is_unknown(x->layout))
        return;
    const struct strides own = layout_of(&x->shape, x->pitch, x->layout);
    const struct strides dense = layout_like(&x->shape, 1, &own);
    tape_lay_out(tape, gradient, &dense);
}

static enum attention_kernel flash_or_cudnn(const struct graph *graph, const struct graph_op *op)
{
    return is_cudnn(graph, op)                   ? ATTENTION_CUDNN
           : graph->attention == ATTENTION_CUDNN ? ATTENTION_FLASH
                                                 : graph->attention;
}

OP_BACKWARD(flash_attention)
{
    const enum attention_kernel kernel = flash_or_cudnn(graph, op);
    const enum aten label =
        kernel == ATTENTION_CUDNN ? ATEN_CUDNN_ATTENTION_BACKWARD : ATEN_FLASH_ATTENTION_BACKWARD;
    const struct operand in[6] = {tape_grad(tape, op, 0),        tape_tensor(tape, op->in[0]),
                                  tape_tensor(tape, op->in[1]),  tape_tensor(tape, op->in[2]),
                                  tape_tensor(tape, op->out[1]), tape_tensor(tape, op->out[0])};
    struct operand out[3], scratch[ATTENTION_SCRATCHES];
    uint64_t bytes[ATTENTION_SCRATCHES];
    for (uint32_t i = 0; i < 3; i++) {
        out[i] = tape_birth(tape, label, dtype_of(graph, op->in[i]),
                            heads_first(shape_of(graph, op->in[i])));
        const struct operand born = out[i];
        out[i].shape = *shape_of(graph, op->in[i]); /* the memory is (b, s, a, d) */
        lie_like(tape, &in[1 + i], &out[i]);
        if (tape_needs(tape, op, i) && out[i].layout)
            tape_give_view(tape, op, i, out[i]);
        else if (tape_needs(tape, op, i))
            tape_give(tape, op, i, born);
    }
    const uint32_t scratches =
        attention_scratch(kernel, graph->attention_gpu, &in[1].shape, &in[2].shape, &in[3].shape,
                          dtype_bytes(dtype_of(graph, op->in[1])), bytes);
    hold(tape, scratches, bytes, scratch);
    tape_kernel(tape, WORK_ATTENTION_BACKWARD, label, 2.5 * attention_flops(graph, op), 6, in, 3,
                out);
    let_go(tape, scratches, scratch);
    drop_unneeded(tape, op, 3, out);
}

static uint64_t scratch_of(const struct graph *graph, const struct graph_op *op,
                           enum attention_kernel kernel)
{
    return attention_forward_scratch(kernel, graph->attention_gpu, shape_of(graph, op->in[0]),
                                     shape_of(graph, op->in[2]),
                                     dtype_bytes(dtype_of(graph, op->in[0])));
}

static uint64_t flash_attention_scratch(const struct graph *graph, const struct graph_op *op)
{
    return scratch_of(graph, op, flash_or_cudnn(graph, op));
}

OP_CLASS(flash_attention) = {
    .for_backward = 2,
    .label = ATEN_NONE, /* that of o: flash or cudnn */
    .work = WORK_ATTENTION,
    .saved = attention_saved,
    .turns_heads = true,
    .backward = flash_attention_backward,
    .scratch = flash_attention_scratch,
    .flops = attention_flops,
    .keep = KEEP_ALWAYS,
};

/* ---- memory-efficient, and cuDNN's with a bias or with narrower values ---- */

uint32_t op_efficient_attention(struct graph *graph, uint32_t q, uint32_t k, uint32_t v,
                                uint32_t bias, bool causal, float dropout)
{
    const struct shape shape = with_last(*shape_of(graph, q), last_dim(shape_of(graph, v)));
    const struct shape scalar = {.rank = 0};
    const struct attention_asks asks = op_attention_asks(graph, q, v, bias, dropout);
    const bool cudnn = op_attention_kernel(graph, &asks) == ATTENTION_CUDNN;
    const enum aten label = cudnn ? ATEN_CUDNN_ATTENTION : ATEN_EFFICIENT_ATTENTION;
    uint32_t in[4] = {q, k, v, bias};
    autocast_attention_arguments(graph, OP_EFFICIENT_ATTENTION, 4, in);
    const uint32_t op = begin(graph, OP_EFFICIENT_ATTENTION, 4, in);
    const uint32_t born =
        graph_op_birth(graph, op, label, dtype_of(graph, in[0]), heads_first(&shape));
    if (cudnn) {
        birth_cudnn_statistics(graph, op, &shape);
    } else { /* logsumexp, its rows rounded to the kernel's 32 queries */
        graph_op_birth(graph, op, label, DTYPE_FP32,
                       SHAPE(shape.dim[0], shape.dim[2], (shape.dim[1] + 31U) & ~31U));
        graph_op_birth(graph, op, label, DTYPE_INT64, scalar); /* rng seed */
        graph_op_birth(graph, op, label, DTYPE_INT64, scalar); /* and offset */
    }
    graph->ops[op].hidden = 3;
    graph->ops[op].attr.causal = causal;
    graph->ops[op].attr.p = dropout;
    graph_op_done(graph, op);
    graph->tensors[born].shape = shape; /* as op_attention's */
    return graph_view(graph, born, shape);
}

OP_SAVED(efficient_attention)
{
    (void)graph;
    uint32_t count = 0;
    if (op->in[3] != GRAPH_NONE)
        saved[count++] = op->in[3];
    const uint32_t others[] = {op->in[1],  op->in[0],  op->in[2], op->out[1],
                               op->out[0], op->out[2], op->out[3]};
    for (uint32_t i = 0; i < 7; i++)
        saved[count++] = others[i];
    return count;
}

/* Rows of the bias's gradient are aligned to 16 elements. */
OP_BACKWARD(efficient_attention)
{
    const bool biased = op->in[3] != GRAPH_NONE, cudnn = is_cudnn(graph, op);
    const enum attention_kernel kernel = cudnn ? ATTENTION_CUDNN : ATTENTION_EFFICIENT;
    const enum aten label =
        cudnn ? ATEN_CUDNN_ATTENTION_BACKWARD : ATEN_EFFICIENT_ATTENTION_BACKWARD;
    const struct operand in[6] = {
        tape_grad(tape, op, 0),
        tape_tensor(tape, op->in[0]),
        tape_tensor(tape, op->in[1]),
        tape_tensor(tape, op->in[2]),
        tape_tensor(tape, op->out[1]),
        biased ? tape_tensor(tape, op->in[3]) : (struct operand){.place = PLACE_NONE},
    };
    struct operand out[4];
    uint32_t outs = 0;
    for (uint32_t i = 0; i < 4; i++) {
        if (i == 3 && !tape_needs(tape, op, 3))
            break;
        const struct shape *s = shape_of(graph, op->in[i]);
        out[outs] = i < 3 ? tape_birth(tape, label, dtype_of(graph, op->in[i]), heads_first(s))
                          : tape_birth_pitched(tape, label, dtype_of(graph, op->in[i]), *s,
                                               (last_dim(s) + 15U) & ~15U);
        const struct operand born = out[outs];
        if (i < 3)
            out[outs].shape = *s; /* the memory is (b, s, a, d) */
        if (i < 3 && cudnn)
            lie_like(tape, &in[1 + i], &out[outs]);
        if (tape_needs(tape, op, i) && out[outs].layout)
            tape_give_view(tape, op, i, out[outs]);
        else if (tape_needs(tape, op, i))
            tape_give(tape, op, i, born);
        outs++;
    }
    const enum attention_gpu gpu = graph->attention_gpu;
    const uint32_t element = dtype_bytes(dtype_of(graph, op->in[1]));
    struct operand scratch[ATTENTION_SCRATCHES];
    uint64_t bytes[ATTENTION_SCRATCHES];
    uint32_t scratches =
        attention_scratch_before(kernel, gpu, &in[1].shape, &in[3].shape, element, bytes);
    hold(tape, scratches, bytes, scratch);
    let_go(tape, scratches, scratch);
    scratches =
        attention_scratch(kernel, gpu, &in[1].shape, &in[2].shape, &in[3].shape, element, bytes);
    hold(tape, scratches, bytes, scratch);
    tape_kernel(tape, WORK_EFFICIENT_ATTENTION_BACKWARD, label, 2.5 * attention_flops(graph, op), 6,
                in, outs, out);
    let_go(tape, scratches, scratch);
    drop_unneeded(tape, op, 3, out);
}

static uint64_t efficient_attention_scratch(const struct graph *graph, const struct graph_op *op)
{
    return scratch_of(graph, op, is_cudnn(graph, op) ? ATTENTION_CUDNN : ATTENTION_EFFICIENT);
}

OP_CLASS(efficient_attention) = {
    .for_backward = 2,
    .label = ATEN_NONE, /* that of o: efficient or cudnn */
    .work = WORK_EFFICIENT_ATTENTION,
    .saved = efficient_attention_saved,
    .turns_heads = true,
    .backward = efficient_attention_backward,
    .scratch = efficient_attention_scratch,
    .flops = attention_flops,
    .keep = KEEP_ALWAYS,
};
