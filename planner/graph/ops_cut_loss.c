/* ops_cut_loss.c - cut cross entropy (`--loss cut-cross-entropy`): the loss of hidden states and
 * the head's weight without logits, as axolotl's fork of cut-cross-entropy computes it (its cce.py,
 * cce_lse_forward.py, indexed_dot.py, cce_backward.py).
 *
 * The loss takes the model's labels as they are: which tokens count is looked up first (all, but
 * the last of each sequence), and the host waits for how many these are. Then
 *
 *     forward    a product whose tiles become a row's logsumexp and a column's average where they
 *                are; the logit of each target; their difference, and its mean
 *     backward   columns by their averages, so that those of next to no gradient lie together; a
 *                kernel that computes the tiles again, skips those without, and adds the others'
 *                products to the gradients
 *
 * Blocks of both add up what they share one after the other: by locks, an integer for 128 rows of
 * what is added to (backward: and for 64 columns). Two of its functions are compiled: Inductor's
 * program of the order is PyTorch's sort, whose values die at once, and one cast. */
#include "graph/op_class.h"

enum { LOSS, VALID, LOGSUMEXP, AVERAGE };
enum { ROWS_A_LOCK = 128, COLUMNS_A_LOCK = 64 };

uint32_t op_cut_cross_entropy(struct graph *graph, uint32_t x, uint32_t weight, uint32_t labels,
                              float softcap)
{
    const struct shape s = *shape_of(graph, labels);
    const uint32_t valid = s.dim[0] * (s.dim[1] - 1) - graph_unlabelled(graph, s.dim[0]),
                   v = shape_of(graph, weight)->dim[0];
    const uint32_t op = begin(graph, OP_CUT_CROSS_ENTROPY, 3, (uint32_t[]){x, weight, labels});
    graph->ops[op].attr.p = softcap;
    const uint32_t loss =
        graph_op_birth(graph, op, ATEN_MEAN_ALL, DTYPE_FP32, (struct shape){.rank = 0});
    graph_op_birth(graph, op, ATEN_SUM_DIM, DTYPE_INT64, SHAPE(valid));
    graph_op_birth(graph, op, ATEN_NEW_FULL, DTYPE_FP32, SHAPE(valid));
    graph_op_birth(graph, op, ATEN_NEW_FULL, DTYPE_FP32, SHAPE(v));
    graph->ops[op].hidden = 3;
    graph_op_done(graph, op);
    return loss;
}

OP_SAVED(cut_cross_entropy)
{
    (void)graph;
    saved[0] = op->in[0];
    saved[1] = op->in[1];
    saved[2] = op->out[LOGSUMEXP];
    saved[3] = op->in[2];
    saved[4] = op->out[VALID];
    saved[5] = op->out[AVERAGE];
    return 6;
}

/* ctx.params has it, too. */
static uint32_t which_are_valid(const struct graph_op *op)
{
    return op->out[VALID];
}

static struct operand filled(struct tape *tape, enum aten aten, enum dtype dtype,
                             struct shape shape)
{
    return tape_call(tape, WORK_FILL, aten, dtype, shape, -1.0, 0, NULL);
}

static struct operand output(struct tape *tape, const struct graph_op *op, uint32_t o,
                             enum aten aten)
{
    const struct operand y = tape_birth_output(tape, op, o);
    tape_kernel(tape, WORK_FILL, aten, -1.0, 0, NULL, 1, &y);
    return y;
}

/* Of rows or columns: one for each `of` of them. */
static uint32_t locks(uint32_t count, uint32_t of)
{
    return (count + of - 1) / of;
}

/* (labels[..., 1:] != -100).nonzero(), each index of a sequence times its tokens, and their sum:
 * where the tokens that count are. */
static struct operand find_valid(struct tape *tape, const struct graph_op *op,
                                 struct operand labels, uint32_t valid)
{
    struct operand next = labels;
    next.shape = SHAPE(labels.shape.dim[0], labels.shape.dim[1] - 1);
    next.offset += 1;
    next.pitch = labels.shape.dim[1];
    const struct operand mask =
        tape_call(tape, WORK_NOT_EQUAL_NUMBER, ATEN_NE, DTYPE_BOOL, next.shape, -1.0, 1, &next);
    tape_number(tape, -100.0F);
    const struct operand wide =
        tape_call(tape, WORK_OTHER, ATEN_NONZERO, DTYPE_INT64, SHAPE(valid, 2), -1.0, 1, &mask);
    tape_death(tape, mask);
    const struct operand where =
        tape_call(tape, WORK_CAST, ATEN_TO_COPY, DTYPE_INT32, wide.shape, -1.0, 1, &wide);
    tape_death(tape, wide);
    struct operand sequence = where;
    sequence.shape = SHAPE(valid);
    tape_kernel(tape, WORK_MUL_NUMBER, ATEN_MUL_, -1.0, 1, &sequence, 1, &sequence);
    tape_number(tape, (float)labels.shape.dim[1]);
    const struct operand rows = tape_birth_output(tape, op, VALID);
    tape_kernel(tape, WORK_SUM_DIM, ATEN_SUM_DIM, -1.0, 1, &where, 1, &rows);
    tape_dim(tape, 1);
    tape_death(tape, where);
    return rows;
}

/* The logit of each target, negative. */
static struct operand negative_logits(struct tape *tape, const struct operand in[3],
                                      struct operand rows, float softcap)
{
    const struct shape s = rows.shape;
    const struct operand all[4] = {in[0], in[1], in[2], rows};
    struct operand logits = filled(tape, ATEN_NEW_ZEROS, DTYPE_FP32, s);
    tape_kernel(tape, WORK_INDEXED_DOT, ATEN_INDEXED_NEG_DOT,
                2.0 * (double)s.dim[0] * last_dim(&in[0].shape), 4, all, 1, &logits);
    if (softcap > 0) {
        const struct operand capped = tape_birth(tape, ATEN_EMPTY_STRIDED, DTYPE_FP32, s);
        tape_kernel(tape, WORK_FUSED, ATEN_FUSED, -1.0, 1, &logits, 1, &capped);
        tape_death(tape, logits);
        logits = capped;
    }
    return logits;
}

/* Of one product of hidden states and weight. */
static double product_flops(uint32_t valid, const struct shape *weight)
{
    return 2.0 * valid * (double)shape_elements(weight);
}

static void cut_cross_entropy_forward(struct tape *tape, const struct graph *graph,
                                      const struct graph_op *op)
{
    const uint32_t valid = shape_of(graph, op->out[LOGSUMEXP])->dim[0];
    const struct operand in[3] = {tape_tensor(tape, op->in[0]), tape_tensor(tape, op->in[1]),
                                  tape_tensor(tape, op->in[2])};
    const struct operand rows = find_valid(tape, op, in[2], valid);
    const struct operand logsumexp = output(tape, op, LOGSUMEXP, ATEN_NEW_FULL);
    const struct operand locked =
        filled(tape, ATEN_NEW_FULL, DTYPE_UINT32, SHAPE(locks(valid, ROWS_A_LOCK)));
    const struct operand average = output(tape, op, AVERAGE, ATEN_NEW_FULL);
    tape_kernel(tape, WORK_CUT_CROSS_ENTROPY, ATEN_CUT_CROSS_ENTROPY,
                product_flops(valid, &in[1].shape), 3, (struct operand[]){in[0], in[1], rows}, 2,
                (struct operand[]){logsumexp, average});
    tape_death(tape, locked);

    const struct operand losses = negative_logits(tape, in, rows, op->attr.p);
    add_to(tape, logsumexp, losses);
    const struct operand loss = tape_birth_output(tape, op, LOSS);
    tape_kernel(tape, WORK_SUM, ATEN_MEAN_ALL, -1.0, 1, &losses, 1, &loss);
    tape_death(tape, losses);
}

/* argsort(averages).to(int32), compiled. */
static struct operand order_columns(struct tape *tape, struct operand averages)
{
    const struct shape s = averages.shape;
    const struct operand in_order[2] = {tape_birth(tape, ATEN_SORT_STABLE, DTYPE_FP32, s),
                                        tape_birth(tape, ATEN_SORT_STABLE, DTYPE_INT64, s)};
    tape_kernel(tape, WORK_SORT, ATEN_SORT_STABLE, -1.0, 1, &averages, 2, in_order);
    tape_death(tape, in_order[0]);
    const struct operand order = tape_birth(tape, ATEN_EMPTY_STRIDED, DTYPE_INT32, s);
    tape_kernel(tape, WORK_CAST, ATEN_FUSED, -1.0, 1, &in_order[1], 1, &order);
    tape_death(tape, in_order[1]);
    return order;
}

OP_BACKWARD(cut_cross_entropy)
{
    const uint32_t valid = shape_of(graph, op->out[LOGSUMEXP])->dim[0];
    const struct operand x = tape_tensor(tape, op->in[0]), weight = tape_tensor(tape, op->in[1]);
    const uint32_t across = locks(last_dim(&x.shape), COLUMNS_A_LOCK);
    const struct operand order = order_columns(tape, tape_tensor(tape, op->out[AVERAGE]));
    const bool needed[2] = {tape_needs(tape, op, 0), tape_needs(tape, op, 1)};
    const uint32_t count[2] = {valid, weight.shape.dim[0]};
    struct operand out[2], locked[2];
    uint32_t outs = 0;
    for (uint32_t i = 0; i < 2; i++)
        if (needed[i])
            out[outs++] = filled(tape, ATEN_ZEROS_LIKE, (enum dtype)(i ? weight : x).dtype,
                                 (i ? weight : x).shape);
    for (uint32_t i = 0; i < 2; i++)
        if (needed[i])
            locked[i] = filled(tape, ATEN_NEW_ZEROS, DTYPE_INT32,
                               SHAPE(locks(count[i], ROWS_A_LOCK), across));
    const struct operand in[5] = {x, weight, tape_tensor(tape, op->out[LOGSUMEXP]),
                                  tape_tensor(tape, op->out[VALID]), order};
    tape_kernel(tape, WORK_CUT_CROSS_ENTROPY_BACKWARD, ATEN_CUT_CROSS_ENTROPY_BACKWARD,
                product_flops(valid, &weight.shape), 5, in, outs, out);
    for (uint32_t i = 0; i < 2; i++)
        if (needed[i])
            tape_death(tape, locked[i]);
    tape_end_locals(tape, op, 2, (uint32_t[]){op->out[LOGSUMEXP], op->out[AVERAGE]}, false);
    tape_death(tape, order);
    tape_end_locals(tape, op, 3, (uint32_t[]){op->in[0], op->in[1], op->in[2]}, true);
    outs = 0;
    for (uint32_t i = 0; i < 2; i++)
        if (needed[i])
            tape_give(tape, op, i, out[outs++]);
}

OP_CLASS(cut_cross_entropy) = {
    .label = ATEN_CUT_CROSS_ENTROPY,
    .saved = cut_cross_entropy_saved,
    .backward = cut_cross_entropy_backward,
    .forward = cut_cross_entropy_forward,
    .attribute = which_are_valid,
    .in_python = true,
};
