/* ops_selective_scan.c - Mamba-1's selective scan, as mamba-ssm 2.3 computes it: a function of
 * torch.autograd (SelectiveScanFn) around two kernels of an extension, which allocates what they
 * write: ops/selective_scan_interface.py, csrc/selective_scan/selective_scan.cpp.
 *
 *     S_t = exp(A d_t) S_{t-1} + d_t B_t u_tT     y_t = (S_t C_t + D u_t) silu(z_t)
 *     d = softplus(delta + bias)
 *
 * Kernels want tokens to be the last dim in memory, so what is not so is copied. The state is kept
 * of each chunk of 2,048 tokens' end.
 *
 * Letters: b sequences of s tokens; i channels, n numbers of state for each. */
#include "graph/op_class.h"

enum { IN_U, IN_DELTA, IN_A, IN_B, IN_C, IN_D, IN_Z, IN_BIAS, INS };
/* The last is the first to be let go of. */
enum { OUT, OUT_UNGATED, OUT_STATES, OUT_Z, OUT_C, OUT_B, OUT_U, OUTS };
enum { CHUNK = 2048 };

struct scan { /* its sizes */
    enum dtype dtype;
    uint32_t b, s, i, n;
    struct shape channels; /* (b, i, s) */
    struct shape parts;    /* (b, n, s) */
    struct shape states;   /* (b, i, chunks, 2 n) */
    double steps;          /* b s i n */
};

static struct scan scan_of(const struct graph *graph, const struct graph_op *op)
{
    const struct shape *u = shape_of(graph, op->in[IN_U]);
    struct scan m = {.dtype = dtype_of(graph, op->in[IN_U]),
                     .b = u->dim[0],
                     .s = u->dim[1],
                     .i = u->dim[2],
                     .n = shape_of(graph, op->in[IN_A])->dim[1]};
    m.channels = SHAPE(m.b, m.i, m.s);
    m.parts = SHAPE(m.b, m.n, m.s);
    m.states = SHAPE(m.b, m.i, (m.s + CHUNK - 1) / CHUNK, 2 * m.n);
    m.steps = (double)m.b * m.s * m.i * m.n;
    return m;
}

/* Of a state's number at each token: its step's exponent, a product to decay it, two and a sum for
 * what is new, a product and a sum for y. */
enum { STEP_FLOPS = 7 };

uint32_t op_selective_scan(struct graph *graph, const struct selective_scan *called)
{
    const uint32_t in[INS] = {called->u, called->delta, called->decay, called->b,
                              called->c, called->skip,  called->z,     called->bias};
    const uint32_t op = begin(graph, OP_SELECTIVE_SCAN, INS, in);
    const struct scan m = scan_of(graph, &graph->ops[op]);
    const uint32_t out = graph_op_birth(graph, op, ATEN_EMPTY_LIKE, m.dtype, m.channels);
    graph_op_birth(graph, op, ATEN_EMPTY_LIKE, m.dtype, m.channels);
    graph_op_birth(graph, op, ATEN_EMPTY, DTYPE_FP32, m.states);
    graph_op_birth(graph, op, ATEN_CLONE, m.dtype, m.channels);
    graph_op_birth(graph, op, ATEN_CLONE, m.dtype, m.parts);
    graph_op_birth(graph, op, ATEN_CLONE, m.dtype, m.parts);
    graph_op_birth(graph, op, ATEN_CLONE, m.dtype, m.channels);
    graph->ops[op].hidden = OUTS - 1;
    graph_op_done(graph, op);
    return out;
}

OP_SAVED(selective_scan)
{
    (void)graph;
    const uint32_t order[] = {op->out[OUT_U],      op->in[IN_DELTA], op->in[IN_A],
                              op->out[OUT_B],      op->out[OUT_C],   op->in[IN_D],
                              op->out[OUT_Z],      op->in[IN_BIAS],  op->out[OUT_STATES],
                              op->out[OUT_UNGATED]};
    for (uint32_t i = 0; i < sizeof order / sizeof *order; i++)
        saved[i] = order[i];
    return sizeof order / sizeof *order;
}

/* x (b, s, .) as PyTorch sees it, (b, ., s), where that is memory's order. */
static struct operand by_token(struct tape *tape, struct operand x)
{
    const uint64_t tokens = x.shape.dim[2], row = x.shape.dim[1];
    x.shape = SHAPE(x.shape.dim[0], x.shape.dim[2], x.shape.dim[1]);
    tape_lay_out(tape, &x, &(struct strides){.of = {row * tokens, 1, tokens}});
    return x;
}

/* A copy of an input (b, s, .) in that order. */
static struct operand copied(struct tape *tape, const struct graph_op *op, uint32_t input,
                             uint32_t output)
{
    const struct operand x = tape_tensor(tape, op->in[input]),
                         out = tape_birth_output(tape, op, output), seen = by_token(tape, out);
    tape_kernel(tape, WORK_REORDER, ATEN_CLONE, -1.0, 1, &x, 1, &seen);
    return out;
}

static void selective_scan_forward(struct tape *tape, const struct graph *graph,
                                   const struct graph_op *op)
{
    const struct scan m = scan_of(graph, op);
    struct operand in[INS];
    for (uint32_t i = 0; i < INS; i++)
        in[i] = tape_tensor(tape, op->in[i]);
    in[IN_U] = copied(tape, op, IN_U, OUT_U);
    in[IN_B] = copied(tape, op, IN_B, OUT_B);
    in[IN_C] = copied(tape, op, IN_C, OUT_C);
    in[IN_Z] = copied(tape, op, IN_Z, OUT_Z);
    struct operand out[3];
    out[0] = tape_birth_output(tape, op, OUT);
    out[1] = tape_birth_output(tape, op, OUT_UNGATED);
    out[2] = tape_birth_output(tape, op, OUT_STATES);
    tape_kernel(tape, WORK_SELECTIVE_SCAN, ATEN_SELECTIVE_SCAN, STEP_FLOPS * m.steps, INS, in, 3,
                out);
}

static struct operand zeros(struct tape *tape, struct shape shape)
{
    return tape_call(tape, WORK_FILL, ATEN_ZEROS_LIKE, DTYPE_FP32, shape, -1.0, 0, NULL);
}

/* Of B or C: summed in fp32, and cast, which takes its place. */
static struct operand cast(struct tape *tape, enum dtype dtype, struct operand x)
{
    if (dtype == DTYPE_FP32)
        return x;
    return tape_call(tape, WORK_CAST, ATEN_TO_COPY, dtype, x.shape, -1.0, 1, &x);
}

OP_BACKWARD(selective_scan)
{
    const struct scan m = scan_of(graph, op);
    enum { SAVED = 10, D_OUT = SAVED, READ };
    const struct shape of_tokens = SHAPE(m.b, 1, m.n, m.s);
    const struct operand grad = tape_grad(tape, op, OUT);
    struct operand in[READ] = {
        tape_tensor(tape, op->out[OUT_U]),      tape_tensor(tape, op->in[IN_DELTA]),
        tape_tensor(tape, op->in[IN_A]),        tape_tensor(tape, op->out[OUT_B]),
        tape_tensor(tape, op->out[OUT_C]),      tape_tensor(tape, op->in[IN_D]),
        tape_tensor(tape, op->out[OUT_Z]),      tape_tensor(tape, op->in[IN_BIAS]),
        tape_tensor(tape, op->out[OUT_STATES]), tape_tensor(tape, op->out[OUT_UNGATED])};
    struct operand g[INS];
    /* of one sequence the product behind it gives the gradient in the order of what it was given */
    const bool copies = m.b > 1;
    in[D_OUT] = grad;
    if (copies)
        in[D_OUT] = tape_call(tape, WORK_REORDER, ATEN_CLONE, m.dtype, m.channels, -1.0, 1, &grad);
    g[IN_Z] = tape_birth(tape, ATEN_EMPTY_LIKE, m.dtype, m.channels);
    g[IN_U] = tape_birth(tape, ATEN_EMPTY_LIKE, m.dtype, m.channels);
    g[IN_DELTA] = tape_birth(tape, ATEN_EMPTY_LIKE, m.dtype, m.channels);
    g[IN_A] = zeros(tape, SHAPE(m.i, m.n));
    const struct operand b = zeros(tape, of_tokens), c = zeros(tape, of_tokens);
    g[IN_D] = zeros(tape, SHAPE(m.i));
    g[IN_BIAS] = zeros(tape, SHAPE(m.i));
    tape_kernel(
        tape, WORK_SELECTIVE_SCAN_BACKWARD, ATEN_SELECTIVE_SCAN_BACKWARD, 3 * STEP_FLOPS * m.steps,
        READ, in, INS,
        (struct operand[]){g[IN_U], g[IN_DELTA], g[IN_A], b, c, g[IN_D], g[IN_Z], g[IN_BIAS]});
    g[IN_B] = cast(tape, m.dtype, b);
    g[IN_C] = cast(tape, m.dtype, c);
    if (m.dtype != DTYPE_FP32) {
        tape_death(tape, b);
        tape_death(tape, c);
    }
    if (copies)
        tape_death(tape, in[D_OUT]);
    g[IN_B].shape = g[IN_C].shape = m.parts;
    g[IN_U] = by_token(tape, g[IN_U]);
    g[IN_B] = by_token(tape, g[IN_B]);
    g[IN_C] = by_token(tape, g[IN_C]);
    g[IN_Z] = by_token(tape, g[IN_Z]);
    for (uint32_t i = 0; i < INS; i++)
        if (tape_needs(tape, op, i))
            tape_give(tape, op, i, g[i]);
        else
            tape_give_unasked(tape, g[i]);
    /* locals of its frame, where they are not the context's */
    const uint32_t locals[] = {op->out[OUT_U],      op->in[IN_DELTA],    op->in[IN_A],
                               op->out[OUT_B],      op->out[OUT_C],      op->in[IN_D],
                               op->in[IN_BIAS],     op->out[OUT_STATES], op->out[OUT_Z],
                               op->out[OUT_UNGATED]};
    tape_end_locals(tape, op, sizeof locals / sizeof *locals, locals, true);
}

OP_CLASS(selective_scan) = {
    .label = ATEN_SELECTIVE_SCAN,
    .saved = selective_scan_saved,
    .backward = selective_scan_backward,
    .forward = selective_scan_forward,
    .in_python = true,
};
