/* ops_attention.c - memory-efficient attention and what its additive bias goes through; inputs that
 * blocks share; clamping.
 *
 * scaled_dot_product_attention falls back to this kernel where flash attention has no answer: fp32,
 * or a bias or mask on the scores. A bias (1, a, s, s_k) is padded to rows of a multiple of 8,
 * sliced back (so that the kernel sees aligned strides) and expanded over the batch; when it needs
 * a gradient the kernel writes one for the whole batch, which is then summed. */
#include "graph/ops_table.h"

static struct shape heads_first(const struct shape *s) /* (b, s, a, d) -> (b, a, s, d) */
{
    return SHAPE(s->dim[0], s->dim[2], s->dim[1], s->dim[3]);
}

uint32_t op_efficient_attention(struct graph *graph, uint32_t q, uint32_t k, uint32_t v,
                                uint32_t bias, bool causal, float dropout)
{
    const struct shape shape = *shape_of(graph, q), scalar = {.rank = 0};
    const uint32_t op = begin(graph, OP_EFFICIENT_ATTENTION, 4, (uint32_t[]){q, k, v, bias});
    const uint32_t born = graph_op_birth(graph, op, ATEN_EFFICIENT_ATTENTION, dtype_of(graph, q),
                                         heads_first(&shape));
    /* logsumexp, its rows rounded to the kernel's 32 queries */
    graph_op_birth(graph, op, ATEN_EFFICIENT_ATTENTION, DTYPE_FP32,
                   SHAPE(shape.dim[0], shape.dim[2], (shape.dim[1] + 31U) & ~31U));
    graph_op_birth(graph, op, ATEN_EFFICIENT_ATTENTION, DTYPE_INT64, scalar); /* rng seed */
    graph_op_birth(graph, op, ATEN_EFFICIENT_ATTENTION, DTYPE_INT64, scalar); /* and offset */
    graph->ops[op].hidden = 3;
    graph->ops[op].attr.causal = causal;
    graph->ops[op].attr.p = dropout;
    graph_op_done(graph, op);
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

double efficient_attention_flops(const struct graph *graph, const struct graph_op *op)
{
    const double full = 4.0 * (double)shape_elements(shape_of(graph, op->in[0])) *
                        shape_of(graph, op->in[1])->dim[1];
    return op->attr.causal ? full / 2 : full;
}

/* Rows of the bias's gradient are aligned to 16 elements. */
OP_BACKWARD(efficient_attention)
{
    const bool biased = op->in[3] != GRAPH_NONE;
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
        out[outs] =
            i < 3 ? tape_birth(tape, ATEN_EFFICIENT_ATTENTION_BACKWARD, dtype_of(graph, op->in[i]),
                               heads_first(s))
                  : tape_birth_pitched(tape, ATEN_EFFICIENT_ATTENTION_BACKWARD,
                                       dtype_of(graph, op->in[i]), *s, (last_dim(s) + 15U) & ~15U);
        tape_give(tape, op, i, out[outs++]);
    }
    tape_kernel(tape, WORK_EFFICIENT_ATTENTION_BACKWARD, ATEN_EFFICIENT_ATTENTION_BACKWARD,
                2.5 * efficient_attention_flops(graph, op), 6, in, outs, out);
}

/* ---- the way of a bias ---- */

uint32_t op_where(struct graph *graph, uint32_t condition, uint32_t x, float number)
{
    const uint32_t other =
        op_fill(graph, ATEN_SCALAR_TENSOR, dtype_of(graph, x), (struct shape){.rank = 0}, number);
    const uint32_t out = simple(graph, OP_WHERE, 3, (uint32_t[]){condition, x, other}, ATEN_WHERE,
                                dtype_of(graph, x), *shape_of(graph, x));
    graph_drop(graph, other);
    return out;
}

OP_BACKWARD(where)
{
    const struct operand zero =
        tape_birth(tape, ATEN_SCALAR_TENSOR, dtype_of(graph, op->in[1]), (struct shape){.rank = 0});
    tape_kernel(tape, WORK_FILL, ATEN_SCALAR_TENSOR, -1.0, 0, NULL, 1, &zero);
    const struct operand in[3] = {tape_tensor(tape, op->in[0]), tape_grad(tape, op, 0), zero};
    tape_give(tape, op, 1,
              tape_call(tape, WORK_WHERE, ATEN_WHERE, dtype_of(graph, op->in[1]),
                        *shape_of(graph, op->in[1]), -1.0, 3, in));
    tape_death(tape, zero);
}

uint32_t op_pad_last(struct graph *graph, uint32_t x, uint32_t last)
{
    return simple(graph, OP_PAD_LAST, 1, &x, ATEN_CONSTANT_PAD, dtype_of(graph, x),
                  with_last(*shape_of(graph, x), last));
}

OP_BACKWARD(pad_last) /* a pad by a negative number */
{
    give_elementwise(tape, graph, op, WORK_PAD, ATEN_CONSTANT_PAD, GRAPH_NONE);
}

uint32_t op_slice_last(struct graph *graph, uint32_t x, uint32_t first, uint32_t count)
{
    const struct graph_tensor base = graph->tensors[x];
    const uint32_t op = begin(graph, OP_SLICE, 1, &x);
    const uint32_t out = graph_view(graph, x, with_last(base.shape, count));
    struct graph_tensor *t = &graph->tensors[out];
    t->root = out; /* its gradient is its own: put into zeros of x's shape */
    t->offset = base.offset + first;
    t->pitch = base.pitch ? base.pitch : last_dim(&base.shape);
    graph->ops[op].attr.first = first;
    graph->ops[op].out[graph->ops[op].outs++] = out;
    graph_op_done(graph, op);
    return out;
}

OP_BACKWARD(slice_last)
{
    give_elementwise(tape, graph, op, WORK_SLICE_BACKWARD, ATEN_SLICE_BACKWARD, GRAPH_NONE);
}

uint32_t op_expand(struct graph *graph, uint32_t x, struct shape shape)
{
    if (shape_elements(&shape) == shape_elements(shape_of(graph, x)))
        return graph_view(graph, x, shape);
    const uint32_t op = begin(graph, OP_EXPAND, 1, &x);
    const uint32_t out = graph_view(graph, x, shape);
    graph->tensors[out].root = out; /* its gradient is summed */
    graph->ops[op].out[graph->ops[op].outs++] = out;
    graph_op_done(graph, op);
    return out;
}

OP_BACKWARD(expand)
{
    const struct operand grad = tape_grad(tape, op, 0);
    tape_give(tape, op, 0,
              tape_call(tape, WORK_SUM, ATEN_SUM_DIM, dtype_of(graph, op->in[0]),
                        *shape_of(graph, op->in[0]), (double)shape_elements(&grad.shape), 1,
                        &grad));
}

uint32_t op_alias(struct graph *graph, uint32_t x)
{
    const uint32_t op = begin(graph, OP_ALIAS, 1, &x);
    const uint32_t out = graph_view(graph, x, *shape_of(graph, x));
    graph->tensors[out].root = out;
    graph->ops[op].out[graph->ops[op].outs++] = out;
    graph_op_done(graph, op);
    return out;
}

OP_BACKWARD(alias)
{
    (void)graph;
    tape_give(tape, op, 0, tape_grad(tape, op, 0));
}

/* ---- clamp ---- */

uint32_t op_clamp(struct graph *graph, uint32_t x, uint32_t least, uint32_t most)
{
    return simple(graph, OP_CLAMP, 3, (uint32_t[]){x, least, most}, ATEN_CLAMP_TENSOR,
                  dtype_of(graph, x), *shape_of(graph, x));
}

OP_SAVED(clamp)
{
    (void)graph;
    saved[0] = op->in[2];
    saved[1] = op->in[1];
    saved[2] = op->in[0];
    return 3;
}

static struct operand ask(struct tape *tape, enum work_kind work, enum aten aten, struct operand x,
                          struct operand y)
{
    const struct operand in[2] = {x, y};
    return tape_call(tape, work, aten, DTYPE_BOOL, x.shape, -1.0, 2, in);
}

/* where(x at a limit, and the limits in order, grad / 2, grad), and zero outside the limits. */
OP_BACKWARD(clamp)
{
    (void)graph;
    const struct operand grad = tape_grad(tape, op, 0), x = tape_tensor(tape, op->in[0]);
    const struct operand least = tape_tensor(tape, op->in[1]), most = tape_tensor(tape, op->in[2]);
    const struct operand ordered = ask(tape, WORK_LESS, ATEN_LT_TENSOR, least, most);
    const struct operand at_least = ask(tape, WORK_EQUAL, ATEN_EQ_TENSOR, x, least);
    const struct operand at_most = ask(tape, WORK_EQUAL, ATEN_EQ_TENSOR, x, most);
    const struct operand at_any = ask(tape, WORK_OR, ATEN_LOGICAL_OR, at_least, at_most);
    const struct operand halved = ask(tape, WORK_AND, ATEN_LOGICAL_AND, at_any, ordered);
    tape_death(tape, at_any);
    tape_death(tape, at_most);
    tape_death(tape, at_least);
    const struct operand below = ask(tape, WORK_LESS, ATEN_LT_TENSOR, x, least);
    const struct operand above = ask(tape, WORK_GREATER, ATEN_GT_TENSOR, x, most);
    const struct operand outside = ask(tape, WORK_OR, ATEN_LOGICAL_OR, below, above);
    tape_death(tape, above);
    tape_death(tape, below);
    const struct operand half = call_number(tape, WORK_DIV_NUMBER, ATEN_DIV_SCALAR, grad, 2.0F);
    const struct operand choice[3] = {halved, half, grad};
    const struct operand chosen = tape_call(tape, WORK_WHERE, ATEN_WHERE, (enum dtype)grad.dtype,
                                            grad.shape, -1.0, 3, choice);
    tape_give(tape, op, 0, call2(tape, WORK_MASKED_FILL, ATEN_MASKED_FILL, chosen, outside));
    tape_death(tape, chosen);
    tape_death(tape, half);
    tape_death(tape, outside);
    tape_death(tape, halved);
    tape_death(tape, ordered);
}
