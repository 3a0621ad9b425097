/* ops_fused_loss.c - losses that never have all logits in fp32: `--loss`.
 *
 *     eager    logits, a copy in fp32, log-probabilities in fp32; in backward two gradients in fp32
 *     direct   logits, log-probabilities and two gradients in the logits' dtype
 *     fused    logits; a row's maximum and sum of exponents; their gradient in their place
 *     chunked  an eighth of the logits, of the copy, of the log-probabilities and of their
 * gradients
 *
 * Fused is what Triton kernels (Liger's LigerCrossEntropyFunction) and flash-attn's with
 * inplace_backward do: one kernel each way, one pass over the logits each. Chunked is torchtitan's
 * ChunkedLossWrapper (components/loss.py): for each chunk of the tokens the head, the eager loss
 * and their backward, in forward; gradients of the hidden states are put into one tensor in fp32,
 * which is cast when all are there; those of the head's weight are added up in its dtype as
 * AccumulateGrad does, the first one as it is. Backward hands both on. */
#include "graph/op_class.h"

uint32_t op_fused_cross_entropy(struct graph *graph, uint32_t logits, uint32_t targets)
{
    const struct shape rows = SHAPE(rows_of(shape_of(graph, logits)));
    const uint32_t op = begin(graph, OP_FUSED_CROSS_ENTROPY, 2, (uint32_t[]){logits, targets});
    const uint32_t loss =
        graph_op_birth(graph, op, ATEN_FUSED_CROSS_ENTROPY, DTYPE_FP32, (struct shape){.rank = 0});
    graph_op_birth(graph, op, ATEN_FUSED_CROSS_ENTROPY, DTYPE_FP32, rows); /* logsumexp */
    graph_op_birth(graph, op, ATEN_FUSED_CROSS_ENTROPY, DTYPE_FP32, rows); /* each row's loss */
    graph->ops[op].hidden = 2;
    graph_op_done(graph, op);
    return loss;
}

OP_SAVED(fused_cross_entropy)
{
    (void)graph;
    saved[0] = op->in[0];
    saved[1] = op->in[1];
    saved[2] = op->out[1];
    return 3;
}

/* Maximum, difference, exponent, sum; the target's. */
static double fused_cross_entropy_flops(const struct graph *graph, const struct graph_op *op)
{
    return 4.0 * (double)shape_elements(shape_of(graph, op->in[0]));
}

OP_BACKWARD(fused_cross_entropy)
{
    (void)graph;
    const struct operand in[4] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[0]),
                                  tape_tensor(tape, op->in[1]), tape_tensor(tape, op->out[1])};
    tape_kernel(tape, WORK_CROSS_ENTROPY_BACKWARD, ATEN_FUSED_CROSS_ENTROPY_BACKWARD, -1.0, 4, in,
                1, &in[1]);
    tape_give_saved(tape, op, 0, op->in[0]);
}

OP_CLASS(fused_cross_entropy) = {
    .label = ATEN_FUSED_CROSS_ENTROPY,
    .work = WORK_CROSS_ENTROPY,
    .saved = fused_cross_entropy_saved,
    .backward = fused_cross_entropy_backward,
    .flops = fused_cross_entropy_flops,
};

/* ---- chunked ---- */

enum { CHUNKED_LOSS, CHUNKED_DX, CHUNKED_DWEIGHT };

uint32_t op_chunked_cross_entropy(struct graph *graph, uint32_t x, uint32_t weight,
                                  uint32_t targets)
{
    const uint32_t op = begin(graph, OP_CHUNKED_CROSS_ENTROPY, 3, (uint32_t[]){x, weight, targets});
    const uint32_t loss =
        graph_op_birth(graph, op, ATEN_NEW_ZEROS, DTYPE_FP32, (struct shape){.rank = 0});
    graph_op_birth(graph, op, ATEN_TO_COPY, dtype_of(graph, x), *shape_of(graph, x));
    graph_op_birth(graph, op, ATEN_MM, dtype_of(graph, weight), *shape_of(graph, weight));
    graph->ops[op].hidden = 2;
    graph_op_done(graph, op);
    return loss;
}

OP_SAVED(chunked_cross_entropy)
{
    uint32_t count = 0;
    if (needs(graph, op->in[0]))
        saved[count++] = op->out[CHUNKED_DX];
    if (needs(graph, op->in[1]))
        saved[count++] = op->out[CHUNKED_DWEIGHT];
    return count;
}

struct chunk {
    struct operand x, targets, weight;
    double flops;          /* of one product */
    struct operand logits; /* the last chunk's: the name still has them while the next are made */
};

static struct operand rows_from(struct operand whole, uint32_t first, uint32_t rows)
{
    const uint32_t width = whole.shape.rank > 1 ? last_dim(&whole.shape) : 1;
    whole.offset += (uint64_t)first * width;
    whole.shape = width > 1 ? SHAPE(rows, width) : SHAPE(rows);
    return whole;
}

/* The loss of a chunk's logits as PyTorch computes it, and back: the gradient of the logits. */
static struct operand chunk_loss(struct tape *tape, const struct chunk *c, struct operand total)
{
    const struct shape scalar = {.rank = 0};
    const bool casts = c->logits.dtype != DTYPE_FP32;
    struct operand wide = c->logits;
    if (casts) {
        wide = tape_birth(tape, ATEN_TO_COPY, DTYPE_FP32, c->logits.shape);
        tape_kernel(tape, WORK_CAST, ATEN_TO_COPY, -1.0, 1, &c->logits, 1, &wide);
    }
    const struct operand in = call1(tape, WORK_LOG_SOFTMAX, ATEN_LOG_SOFTMAX, wide);
    struct operand loss[2];
    for (int i = 0; i < 2; i++)
        loss[i] = tape_birth(tape, ATEN_NLL_LOSS, DTYPE_FP32, scalar);
    tape_kernel(tape, WORK_NLL_LOSS, ATEN_NLL_LOSS, -1.0, 2, (struct operand[]){in, c->targets}, 2,
                loss);
    if (casts)
        tape_death(tape, wide);
    tape_kernel(tape, WORK_ADD_IN_PLACE, ATEN_ADD_, -1.0, 1, loss, 1, &total);

    const struct operand one = tape_birth(tape, ATEN_ONES_LIKE, DTYPE_FP32, scalar);
    tape_kernel(tape, WORK_SEED, ATEN_ONES_LIKE, -1.0, 0, NULL, 1, &one);
    const struct operand picked[2] = {one, c->targets};
    const struct operand of_log = tape_call(tape, WORK_NLL_LOSS_BACKWARD, ATEN_NLL_LOSS_BACKWARD,
                                            DTYPE_FP32, in.shape, -1.0, 2, picked);
    tape_death(tape, one);
    struct operand gradient =
        call2(tape, WORK_LOG_SOFTMAX_BACKWARD, ATEN_LOG_SOFTMAX_BACKWARD, of_log, in);
    tape_death(tape, of_log);
    tape_death(tape, in);
    tape_death(tape, loss[1]);
    tape_death(tape, loss[0]);
    if (casts) {
        wide = gradient;
        gradient = tape_call(tape, WORK_CAST, ATEN_TO_COPY, (enum dtype)c->logits.dtype, wide.shape,
                             -1.0, 1, &wide);
        tape_death(tape, wide);
    }
    return gradient;
}

/* The weight's gradient so far, and this chunk's added to it. */
static void add_weight_gradient(struct tape *tape, const struct graph_op *op, const struct chunk *c,
                                struct operand gradient, struct operand *dweight)
{
    const struct operand in[2] = {gradient, c->x};
    if (dweight->place == PLACE_NONE) {
        *dweight = tape_birth_output(tape, op, CHUNKED_DWEIGHT);
        tape_kernel(tape, WORK_MATMUL_TN, ATEN_MM, c->flops, 2, in, 1, dweight);
        return;
    }
    const struct operand more =
        tape_call(tape, WORK_MATMUL_TN, ATEN_MM, (enum dtype)c->weight.dtype, c->weight.shape,
                  c->flops, 2, in);
    tape_kernel(tape, WORK_ADD_IN_PLACE, ATEN_ADD_, -1.0, 1, &more, 1, dweight);
    tape_death(tape, more);
}

static void chunked_cross_entropy_forward(struct tape *tape, const struct graph *graph,
                                          const struct graph_op *op)
{
    const struct operand x = tape_tensor(tape, op->in[0]), targets = tape_tensor(tape, op->in[2]);
    const uint32_t tokens = rows_of(&x.shape), rows = tokens / LOSS_CHUNKS, h = last_dim(&x.shape);
    const uint32_t vocabulary = shape_of(graph, op->in[1])->dim[0];
    struct operand dweight = {.place = PLACE_NONE};
    struct chunk c = {.weight = tape_tensor(tape, op->in[1]), .logits.place = PLACE_NONE};
    c.flops = 2.0 * rows * h * vocabulary;

    const struct operand sum = tape_birth(tape, ATEN_ZEROS_LIKE, DTYPE_FP32, SHAPE(tokens, h));
    tape_kernel(tape, WORK_FILL, ATEN_ZEROS_LIKE, -1.0, 0, NULL, 1, &sum);
    const struct operand total = tape_birth_output(tape, op, CHUNKED_LOSS);
    tape_kernel(tape, WORK_FILL, ATEN_NEW_ZEROS, -1.0, 0, NULL, 1, &total);
    for (uint32_t i = 0; i < LOSS_CHUNKS; i++) {
        const struct operand before = c.logits;
        c.x = rows_from(x, i * rows, rows);
        c.targets = rows_from(targets, i * rows, rows);
        c.logits =
            tape_call(tape, WORK_MATMUL_NT, ATEN_MM, (enum dtype)x.dtype, SHAPE(rows, vocabulary),
                      c.flops, 2, (struct operand[]){c.x, c.weight});
        if (before.place != PLACE_NONE)
            tape_death(tape, before);
        const struct operand gradient = chunk_loss(tape, &c, total);
        if (needs(graph, op->in[1]))
            add_weight_gradient(tape, op, &c, gradient, &dweight);
        const struct operand dx =
            tape_call(tape, WORK_MATMUL_NN, ATEN_MM, (enum dtype)x.dtype, SHAPE(rows, h), c.flops,
                      2, (struct operand[]){gradient, c.weight});
        tape_death(tape, gradient);
        const struct operand part = rows_from(sum, i * rows, rows);
        tape_kernel(tape, WORK_PUT_ROWS, ATEN_COPY_, -1.0, 1, &dx, 1, &part);
        tape_death(tape, dx);
    }
    tape_death(tape, c.logits);
    if (dweight.place == PLACE_NONE)
        tape_birth_output(tape, op, CHUNKED_DWEIGHT);
    const struct operand dx = tape_birth_output(tape, op, CHUNKED_DX);
    tape_kernel(tape, WORK_CAST, ATEN_TO_COPY, -1.0, 1, &sum, 1, &dx);
    tape_death(tape, sum);
}

OP_BACKWARD(chunked_cross_entropy)
{
    (void)graph;
    if (tape_needs(tape, op, 0))
        tape_give_saved(tape, op, 0, op->out[CHUNKED_DX]);
    if (tape_needs(tape, op, 1))
        tape_give_saved(tape, op, 1, op->out[CHUNKED_DWEIGHT]);
}

OP_CLASS(chunked_cross_entropy) = {
    .label = ATEN_MM,
    .saved = chunked_cross_entropy_saved,
    .backward = chunked_cross_entropy_backward,
    .forward = chunked_cross_entropy_forward,
};
