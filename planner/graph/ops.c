/* ops.c - see ops.h.
 *
 * Each operator is written once, as three short functions beside each other: constructor, what
 * is saved, backward. The labels and the order of births are those that PyTorch 2.14 records
 * (tests/data/truth); derivatives.yaml names the same lists. */
#include "graph/ops_table.h"

#include <assert.h>

/* ---- embedding ---- */

uint32_t op_arange(struct graph *graph, uint32_t count)
{
    return simple(graph, OP_ARANGE, 0, NULL, ATEN_ARANGE, DTYPE_INT64, SHAPE(count));
}

uint32_t op_embedding(struct graph *graph, uint32_t ids, uint32_t weight)
{
    struct shape shape = *shape_of(graph, ids);
    assert(shape.rank < SHAPE_DIMS);
    shape.dim[shape.rank++] = shape_of(graph, weight)->dim[1];
    return simple(graph, OP_EMBEDDING, 2, (uint32_t[]){ids, weight}, ATEN_EMBEDDING,
                  dtype_of(graph, weight), shape);
}

static void embedding_backward(struct tape *tape, const struct graph *graph,
                               const struct graph_op *op)
{
    const struct operand in[2] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[0])};
    if (tape_needs(tape, op, 1))
        tape_give(tape, op, 1,
                  tape_call(tape, ATEN_EMBEDDING_DENSE_BACKWARD, dtype_of(graph, op->in[1]),
                            *shape_of(graph, op->in[1]), -1.0, 2, in));
}

/* ---- linear ---- */

uint32_t op_linear(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias)
{
    const struct shape in = *shape_of(graph, x), w = *shape_of(graph, weight);
    assert(last_dim(&in) == w.dim[1]);
    const bool biased = bias != GRAPH_NONE;
    const uint32_t operands[3] = {x, weight, bias};
    const uint32_t out =
        simple(graph, biased ? OP_LINEAR_BIAS : OP_LINEAR, biased ? 3 : 2, operands,
               biased ? ATEN_ADDMM : ATEN_MM, dtype_of(graph, x), SHAPE(rows_of(&in), w.dim[0]));
    return graph_view(graph, out, with_last(in, w.dim[0]));
}

static uint32_t linear_saved(const struct graph *graph, const struct graph_op *op, uint32_t *saved)
{
    uint32_t count = 0;
    if (needs(graph, op->in[0]))
        saved[count++] = op->in[1];
    if (needs(graph, op->in[1]))
        saved[count++] = op->in[0];
    return count;
}

static double linear_flops(const struct graph *graph, const struct graph_op *op)
{
    return 2.0 * (double)shape_elements(shape_of(graph, op->in[0])) *
           shape_of(graph, op->in[1])->dim[0];
}

static struct operand linear_grad_input(struct tape *tape, const struct graph *graph,
                                        const struct graph_op *op)
{
    const struct shape *w = shape_of(graph, op->in[1]);
    const struct operand in[2] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[1])};
    return tape_call(tape, ATEN_MM, dtype_of(graph, op->in[0]),
                     SHAPE(rows_of(shape_of(graph, op->in[0])), w->dim[1]), linear_flops(graph, op),
                     2, in);
}

static struct operand linear_grad_weight(struct tape *tape, const struct graph *graph,
                                         const struct graph_op *op)
{
    const struct operand in[2] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[0])};
    return tape_call(tape, ATEN_MM, dtype_of(graph, op->in[1]), *shape_of(graph, op->in[1]),
                     linear_flops(graph, op), 2, in);
}

/* mm computes the weight's gradient first, addmm the input's. Gradients arrive in another order:
 * the bias is a leaf and goes at once; the input passes the view's node, which was created after
 * the weight's t() and therefore runs before it. */

static void linear_backward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    const struct operand none = {.place = PLACE_NONE};
    const struct operand weight =
        tape_needs(tape, op, 1) ? linear_grad_weight(tape, graph, op) : none;
    if (tape_needs(tape, op, 0))
        tape_give(tape, op, 0, linear_grad_input(tape, graph, op));
    if (tape_needs(tape, op, 1))
        tape_give(tape, op, 1, weight);
}

static void linear_bias_backward(struct tape *tape, const struct graph *graph,
                                 const struct graph_op *op)
{
    const struct operand none = {.place = PLACE_NONE};
    const struct operand input =
        tape_needs(tape, op, 0) ? linear_grad_input(tape, graph, op) : none;
    const struct operand weight =
        tape_needs(tape, op, 1) ? linear_grad_weight(tape, graph, op) : none;
    if (tape_needs(tape, op, 2))
        tape_give_summed(tape, op, 2, tape_grad(tape, op, 0));
    if (tape_needs(tape, op, 0))
        tape_give(tape, op, 0, input);
    if (tape_needs(tape, op, 1))
        tape_give(tape, op, 1, weight);
}

/* ---- elementwise ---- */

uint32_t op_add(struct graph *graph, uint32_t x, uint32_t y)
{
    return simple(graph, OP_ADD, 2, (uint32_t[]){x, y}, ATEN_ADD, dtype_of(graph, x),
                  *shape_of(graph, x));
}

/* The gradient of a sum goes to both sides as it is; where y was broadcast it is summed first,
 * keeping the dims (sum_to_size). */
static void add_backward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    const struct operand grad = tape_grad(tape, op, 0);
    if (tape_needs(tape, op, 0))
        tape_give(tape, op, 0, grad);
    if (!tape_needs(tape, op, 1))
        return;
    const struct shape *x = shape_of(graph, op->in[0]), *y = shape_of(graph, op->in[1]);
    if (x->rank == y->rank && shape_elements(x) == shape_elements(y))
        tape_give(tape, op, 1, grad);
    else
        tape_give_summed(tape, op, 1, grad);
}

/* The shape of an elementwise result: sizes aligned at the last dim, ones stretched. */
static struct shape broadcast(const struct shape *x, const struct shape *y)
{
    struct shape shape = x->rank >= y->rank ? *x : *y;
    const struct shape *other = x->rank >= y->rank ? y : x;
    for (uint32_t i = 0; i < other->rank; i++) {
        uint32_t *dim = &shape.dim[shape.rank - other->rank + i];
        *dim = *dim == 1 ? other->dim[i] : *dim;
    }
    return shape;
}

uint32_t op_mul(struct graph *graph, uint32_t x, uint32_t y)
{
    const enum dtype dtype =
        dtype_of(graph, x) == dtype_of(graph, y) ? dtype_of(graph, x) : DTYPE_FP32;
    return simple(graph, OP_MUL, 2, (uint32_t[]){x, y}, ATEN_MUL, dtype,
                  broadcast(shape_of(graph, x), shape_of(graph, y)));
}

static uint32_t mul_saved(const struct graph *graph, const struct graph_op *op, uint32_t *saved)
{
    uint32_t count = 0;
    if (needs(graph, op->in[0]))
        saved[count++] = op->in[1];
    if (needs(graph, op->in[1]))
        saved[count++] = op->in[0];
    return count;
}

static void mul_backward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    for (uint32_t i = 0; i < 2; i++) {
        if (!tape_needs(tape, op, i))
            continue;
        const struct operand in[2] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[1 - i])};
        const struct operand product = tape_call(tape, ATEN_MUL, dtype_of(graph, op->out[0]),
                                                 *shape_of(graph, op->out[0]), -1.0, 2, in);
        if (shape_elements(&product.shape) == shape_elements(shape_of(graph, op->in[i])))
            tape_give(tape, op, i, product);
        else
            tape_give_summed(tape, op, i, product);
    }
}

uint32_t op_scalar(struct graph *graph, enum op_kind kind, uint32_t x, float number)
{
    const enum aten births[] = {
        [OP_ADD_SCALAR] = ATEN_ADD, [OP_MUL_SCALAR] = ATEN_MUL, [OP_POW] = ATEN_POW};
    const uint32_t op = begin(graph, kind, 1, &x);
    graph->ops[op].attr.p = number;
    const uint32_t out =
        graph_op_birth(graph, op, births[kind], dtype_of(graph, x), *shape_of(graph, x));
    graph_op_done(graph, op);
    return out;
}

static void mul_scalar_backward(struct tape *tape, const struct graph *graph,
                                const struct graph_op *op)
{
    give_elementwise(tape, graph, op, ATEN_MUL, GRAPH_NONE);
}

/* grad · (n · x^(n-1)), from the inside out. */
static void pow_backward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    (void)graph;
    const struct operand none = {.place = PLACE_NONE};
    const struct operand power = call2(tape, ATEN_POW, tape_tensor(tape, op->in[0]), none);
    const struct operand scaled = call2(tape, ATEN_MUL_SCALAR, power, none);
    tape_give(tape, op, 0, call2(tape, ATEN_MUL, tape_grad(tape, op, 0), scaled));
    tape_death(tape, scaled);
    tape_death(tape, power);
}

uint32_t op_mean_last(struct graph *graph, uint32_t x)
{
    return simple(graph, OP_MEAN_LAST, 1, &x, ATEN_MEAN_DIM, dtype_of(graph, x),
                  with_last(*shape_of(graph, x), 1));
}

static void mean_last_backward(struct tape *tape, const struct graph *graph,
                               const struct graph_op *op)
{
    give_elementwise(tape, graph, op, ATEN_DIV_SCALAR, GRAPH_NONE);
}

/* (-0.5 · grad) · result^3: the power first. */
static void rsqrt_backward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    (void)graph;
    const struct operand none = {.place = PLACE_NONE};
    const struct operand power = call2(tape, ATEN_POW, tape_tensor(tape, op->out[0]), none);
    const struct operand scaled = call2(tape, ATEN_MUL_SCALAR, tape_grad(tape, op, 0), none);
    tape_give(tape, op, 0, call2(tape, ATEN_MUL, scaled, power));
    tape_death(tape, scaled);
    tape_death(tape, power);
}

uint32_t op_dropout(struct graph *graph, uint32_t x, float p)
{
    if (p <= 0.0F)
        return x;
    const uint32_t op = begin(graph, OP_DROPOUT, 1, &x);
    graph->ops[op].attr.p = p;
    const struct shape shape = *shape_of(graph, x);
    const uint32_t out = graph_op_birth(graph, op, ATEN_NATIVE_DROPOUT, dtype_of(graph, x), shape);
    graph_op_birth(graph, op, ATEN_NATIVE_DROPOUT, DTYPE_BOOL, shape);
    graph->ops[op].hidden = 1;
    graph_op_done(graph, op);
    return out;
}

static uint32_t dropout_saved(const struct graph *graph, const struct graph_op *op, uint32_t *saved)
{
    (void)graph;
    saved[0] = op->out[1];
    return 1;
}

static void dropout_backward(struct tape *tape, const struct graph *graph,
                             const struct graph_op *op)
{
    give_elementwise(tape, graph, op, ATEN_NATIVE_DROPOUT_BACKWARD, op->out[1]);
}

uint32_t op_no_grad(struct graph *graph, enum aten aten, enum dtype dtype, struct shape shape,
                    uint32_t ins, const uint32_t *in)
{
    const uint32_t op = begin(graph, OP_NO_GRAD, ins, in);
    const uint32_t out = graph_op_birth(graph, op, aten, dtype, shape);
    graph_op_done(graph, op);
    graph->ops[op].requires_grad = false;
    graph->tensors[out].requires_grad = false;
    return out;
}

uint32_t op_mul_constant(struct graph *graph, uint32_t x, uint32_t constant)
{
    return simple(graph, OP_MUL_CONSTANT, 2, (uint32_t[]){x, constant}, ATEN_MUL,
                  dtype_of(graph, x), *shape_of(graph, x));
}

static uint32_t mul_constant_saved(const struct graph *graph, const struct graph_op *op,
                                   uint32_t *saved)
{
    (void)graph;
    saved[0] = op->in[1];
    return 1;
}

/* A complex factor is conjugated first, and the conjugate is a copy. */
static void mul_constant_backward(struct tape *tape, const struct graph *graph,
                                  const struct graph_op *op)
{
    struct operand in[2] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[1])};
    const bool complex = in[1].dtype == DTYPE_COMPLEX64;
    if (complex)
        in[1] = tape_call(tape, ATEN_CLONE, DTYPE_COMPLEX64, in[1].shape, -1.0, 1, &in[1]);
    tape_give(tape, op, 0,
              tape_call(tape, ATEN_MUL, dtype_of(graph, op->in[0]), *shape_of(graph, op->in[0]),
                        -1.0, 2, in));
    if (complex)
        tape_death(tape, in[1]);
}

uint32_t op_to(struct graph *graph, uint32_t x, enum dtype dtype)
{
    if (dtype_of(graph, x) == dtype)
        return x;
    return simple(graph, OP_TO_COPY, 1, &x, ATEN_TO_COPY, dtype, *shape_of(graph, x));
}

static void to_copy_backward(struct tape *tape, const struct graph *graph,
                             const struct graph_op *op)
{
    give_elementwise(tape, graph, op, ATEN_TO_COPY, GRAPH_NONE);
}

uint32_t op_unary(struct graph *graph, enum op_kind kind, uint32_t x)
{
    static const enum aten births[OP_KIND_COUNT] = {
        [OP_SILU] = ATEN_SILU,   [OP_GELU] = ATEN_GELU,   [OP_GELU_TANH] = ATEN_GELU,
        [OP_RELU] = ATEN_RELU,   [OP_TANH] = ATEN_TANH,   [OP_NEG] = ATEN_NEG,
        [OP_RSQRT] = ATEN_RSQRT, [OP_CLONE] = ATEN_CLONE,
    };
    assert(births[kind] != ATEN_NONE);
    return simple(graph, kind, 1, &x, births[kind], dtype_of(graph, x), *shape_of(graph, x));
}

static void silu_backward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    give_elementwise(tape, graph, op, ATEN_SILU_BACKWARD, op->in[0]);
}

static void gelu_backward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    give_elementwise(tape, graph, op, ATEN_GELU_BACKWARD, op->in[0]);
}

static void relu_backward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    give_elementwise(tape, graph, op, ATEN_THRESHOLD_BACKWARD, op->out[0]);
}

static void tanh_backward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    give_elementwise(tape, graph, op, ATEN_TANH_BACKWARD, op->out[0]);
}

static void neg_backward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    give_elementwise(tape, graph, op, ATEN_NEG, GRAPH_NONE);
}

static void clone_backward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    (void)graph;
    tape_give(tape, op, 0, tape_grad(tape, op, 0));
}

/* ---- shapes ---- */

uint32_t op_repeat(struct graph *graph, uint32_t x, struct shape repeated, uint32_t dim)
{
    const uint32_t op = begin(graph, OP_REPEAT, 1, &x);
    graph->ops[op].attr.dim = dim;
    if (repeated.dim[dim - 1] == 1) { /* one head: the expanded tensor reshapes without a copy */
        const uint32_t view = graph_view(graph, x, repeated);
        graph->tensors[view].root = view;
        graph->ops[op].out[graph->ops[op].outs++] = view;
        graph_op_done(graph, op);
        return view;
    }
    const uint32_t out = graph_op_birth(graph, op, ATEN_CLONE, dtype_of(graph, x), repeated);
    graph_op_done(graph, op);
    return out;
}

static void repeat_backward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    const struct operand grad = tape_grad(tape, op, 0);
    struct shape summed = *shape_of(graph, op->out[0]);
    summed.dim[op->attr.dim] = 1;
    tape_give(tape, op, 0,
              tape_call(tape, ATEN_SUM_DIM, (enum dtype)grad.dtype, summed,
                        (double)shape_elements(&grad.shape), 1, &grad));
}

void op_chunk(struct graph *graph, uint32_t x, uint32_t count, uint32_t *out)
{
    const struct graph_tensor base = graph->tensors[x];
    const uint32_t width = last_dim(&base.shape) / count;
    const uint32_t op = begin(graph, OP_CHUNK, 1, &x);
    for (uint32_t i = 0; i < count; i++) {
        out[i] = graph_view(graph, x, with_last(base.shape, width));
        struct graph_tensor *t = &graph->tensors[out[i]];
        t->root = out[i]; /* its gradient is its own: cat joins them */
        t->offset = base.offset + i * width;
        t->pitch = base.pitch ? base.pitch : last_dim(&base.shape);
        graph->ops[op].out[graph->ops[op].outs++] = out[i];
    }
    graph_op_done(graph, op);
}

static void chunk_backward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    struct operand in[GRAPH_OUTPUTS];
    for (uint32_t i = 0; i < op->outs; i++)
        in[i] = tape_grad(tape, op, i);
    tape_give(tape, op, 0,
              tape_call(tape, ATEN_CAT, dtype_of(graph, op->in[0]), *shape_of(graph, op->in[0]),
                        0.0, op->outs, in));
}

/* ---- norms ---- */

/* Mean and rstd are in the input's dtype, as recorded; the CUDA kernel keeps them in fp32, which
 * is 2 bytes a token more for 16-bit inputs. */
uint32_t op_layer_norm(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias, float eps)
{
    const struct shape shape = *shape_of(graph, x), row = with_last(shape, 1);
    const enum dtype dtype = dtype_of(graph, x);
    const uint32_t op = begin(graph, OP_LAYER_NORM, 3, (uint32_t[]){x, weight, bias});
    const uint32_t out = graph_op_birth(graph, op, ATEN_NATIVE_LAYER_NORM, dtype, shape);
    graph_op_birth(graph, op, ATEN_NATIVE_LAYER_NORM, dtype, row);
    graph_op_birth(graph, op, ATEN_NATIVE_LAYER_NORM, dtype, row);
    graph->ops[op].hidden = 2;
    graph->ops[op].attr.eps = eps;
    graph_op_done(graph, op);
    return out;
}

static uint32_t norm_saved(const struct graph *graph, const struct graph_op *op, uint32_t *saved)
{
    (void)graph;
    saved[0] = op->in[0];
    for (uint32_t i = 1; i < op->outs; i++)
        saved[i] = op->out[i];
    return op->outs;
}

static void layer_norm_backward(struct tape *tape, const struct graph *graph,
                                const struct graph_op *op)
{
    struct operand in[5] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[0]),
                            tape_tensor(tape, op->in[1]), tape_tensor(tape, op->out[1]),
                            tape_tensor(tape, op->out[2])};
    struct operand out[3];
    uint32_t outs = 0;
    for (uint32_t i = 0; i < 3; i++) {
        if (!tape_needs(tape, op, i))
            continue;
        out[outs] = tape_birth(tape, ATEN_NATIVE_LAYER_NORM_BACKWARD, dtype_of(graph, op->in[i]),
                               *shape_of(graph, op->in[i]));
        tape_give(tape, op, i, out[outs++]);
    }
    tape_kernel(tape, ATEN_NATIVE_LAYER_NORM_BACKWARD, -1.0, 5, in, outs, out);
}

uint32_t op_rms_norm(struct graph *graph, uint32_t x, uint32_t weight, float eps)
{
    const struct shape shape = *shape_of(graph, x);
    const uint32_t op = begin(graph, OP_RMS_NORM, 2, (uint32_t[]){x, weight});
    const uint32_t out = graph_op_birth(graph, op, ATEN_EMPTY_LIKE, dtype_of(graph, x), shape);
    graph_op_birth(graph, op, ATEN_EMPTY, DTYPE_FP32, with_last(shape, 1));
    graph->ops[op].hidden = 1;
    graph->ops[op].attr.eps = eps;
    graph_op_done(graph, op);
    return out;
}

static void rms_norm_backward(struct tape *tape, const struct graph *graph,
                              const struct graph_op *op)
{
    const struct operand in[4] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[0]),
                                  tape_tensor(tape, op->in[1]), tape_tensor(tape, op->out[1])};
    struct operand out[2];
    for (uint32_t i = 0; i < 2; i++) { /* the kernel writes both, asked for or not */
        out[i] = tape_birth(tape, ATEN_EMPTY_LIKE, dtype_of(graph, op->in[i]),
                            *shape_of(graph, op->in[i]));
        if (tape_needs(tape, op, i))
            tape_give(tape, op, i, out[i]);
    }
    tape_kernel(tape, ATEN_FUSED_RMS_NORM_BACKWARD, -1.0, 4, in, 2, out);
    for (uint32_t i = 0; i < 2; i++)
        if (!tape_needs(tape, op, i))
            tape_death(tape, out[i]);
}

/* ---- attention ---- */

static struct shape heads_first(const struct shape *s) /* (b, s, a, d) -> (b, a, s, d) */
{
    return SHAPE(s->dim[0], s->dim[2], s->dim[1], s->dim[3]);
}

uint32_t op_attention(struct graph *graph, uint32_t q, uint32_t k, uint32_t v, bool causal,
                      float dropout)
{
    const struct shape shape = *shape_of(graph, q);
    const uint32_t op = begin(graph, OP_FLASH_ATTENTION, 3, (uint32_t[]){q, k, v});
    const uint32_t born =
        graph_op_birth(graph, op, ATEN_FLASH_ATTENTION, dtype_of(graph, q), heads_first(&shape));
    graph_op_birth(graph, op, ATEN_FLASH_ATTENTION, DTYPE_FP32,
                   SHAPE(shape.dim[0], shape.dim[2], shape.dim[1]));         /* logsumexp */
    graph_op_birth(graph, op, ATEN_FLASH_ATTENTION, DTYPE_UINT64, SHAPE(2)); /* rng state */
    graph_op_birth(graph, op, ATEN_FLASH_ATTENTION, DTYPE_UINT64, (struct shape){.rank = 0});
    graph->ops[op].hidden = 3;
    graph->ops[op].attr.causal = causal;
    graph->ops[op].attr.p = dropout;
    graph_op_done(graph, op);
    /* It is born (b, a, s, d) with the memory of (b, s, a, d): transposing back is free. */
    graph->tensors[born].shape = shape;
    return graph_view(graph, born, shape);
}

static uint32_t attention_saved(const struct graph *graph, const struct graph_op *op,
                                uint32_t *saved)
{
    (void)graph;
    const uint32_t order[] = {op->in[1],  op->in[0],  op->in[2], op->out[1],
                              op->out[0], op->out[2], op->out[3]};
    for (uint32_t i = 0; i < 7; i++)
        saved[i] = order[i];
    return 7;
}

/* Two matmuls, halved where the upper triangle is skipped (compute-cost: 4·b·s²·h_q). */
static double attention_flops(const struct graph *graph, const struct graph_op *op)
{
    const struct shape *q = shape_of(graph, op->in[0]), *k = shape_of(graph, op->in[1]);
    const double full = 4.0 * (double)shape_elements(q) * k->dim[1];
    return op->attr.causal ? full / 2 : full;
}

/* FlashAttention-2's backward accumulates dq in fp32 over key blocks: dq_accum (b, s', a, d') and
 * softmax_d (b, a, s'), s' rounded to 128 and d' to 32 (pytorch flash_api.cpp, mha_bwd). */
static uint64_t attention_scratch_bytes(const struct shape *q)
{
    const uint64_t s = (q->dim[1] + 127U) & ~127ULL, d = (q->dim[3] + 31U) & ~31ULL;
    return 4 * (uint64_t)q->dim[0] * s * q->dim[2] * (d + 1);
}

static void attention_backward(struct tape *tape, const struct graph *graph,
                               const struct graph_op *op)
{
    const struct operand in[6] = {tape_grad(tape, op, 0),        tape_tensor(tape, op->in[0]),
                                  tape_tensor(tape, op->in[1]),  tape_tensor(tape, op->in[2]),
                                  tape_tensor(tape, op->out[1]), tape_tensor(tape, op->out[0])};
    struct operand out[3];
    for (uint32_t i = 0; i < 3; i++) {
        out[i] = tape_birth(tape, ATEN_FLASH_ATTENTION_BACKWARD, dtype_of(graph, op->in[i]),
                            heads_first(shape_of(graph, op->in[i])));
        tape_give(tape, op, i, out[i]);
        out[i].shape = *shape_of(graph, op->in[i]); /* the memory is (b, s, a, d) */
    }
    const struct operand scratch =
        tape_scratch(tape, attention_scratch_bytes(shape_of(graph, op->in[0])));
    tape_kernel(tape, ATEN_FLASH_ATTENTION_BACKWARD, 2.5 * attention_flops(graph, op), 6, in, 3,
                out);
    tape_death(tape, scratch);
}

/* ---- loss ---- */

uint32_t op_log_softmax(struct graph *graph, uint32_t logits)
{
    return simple(graph, OP_LOG_SOFTMAX, 1, &logits, ATEN_LOG_SOFTMAX, dtype_of(graph, logits),
                  *shape_of(graph, logits));
}

static void log_softmax_backward(struct tape *tape, const struct graph *graph,
                                 const struct graph_op *op)
{
    give_elementwise(tape, graph, op, ATEN_LOG_SOFTMAX_BACKWARD, op->out[0]);
}

uint32_t op_nll_loss(struct graph *graph, uint32_t log_probabilities, uint32_t targets)
{
    const struct shape scalar = {.rank = 0};
    const uint32_t op = begin(graph, OP_NLL_LOSS, 2, (uint32_t[]){log_probabilities, targets});
    const enum dtype dtype = dtype_of(graph, log_probabilities);
    const uint32_t loss = graph_op_birth(graph, op, ATEN_NLL_LOSS, dtype, scalar);
    graph_op_birth(graph, op, ATEN_NLL_LOSS, dtype, scalar); /* total weight */
    graph->ops[op].hidden = 1;
    graph_op_done(graph, op);
    return loss;
}

static uint32_t nll_loss_saved(const struct graph *graph, const struct graph_op *op,
                               uint32_t *saved)
{
    (void)graph;
    saved[0] = op->in[0];
    saved[1] = op->in[1];
    saved[2] = op->out[1];
    return 3;
}

static void nll_loss_backward(struct tape *tape, const struct graph *graph,
                              const struct graph_op *op)
{
    give_elementwise(tape, graph, op, ATEN_NLL_LOSS_BACKWARD, op->in[1]);
}

/* ---- the table ---- */

const struct op_class *op_class(const struct graph_op *op)
{
    static const struct op_class table[OP_KIND_COUNT] = {
        [OP_ARANGE] = {"arange", ATEN_ARANGE},
        [OP_EMBEDDING] = {"embedding", ATEN_EMBEDDING, save_input, embedding_backward},
        [OP_LINEAR] = {"linear", ATEN_MM, linear_saved, linear_backward, linear_flops,
                       KEEP_EVERY_SECOND},
        [OP_LINEAR_BIAS] = {"linear_bias", ATEN_ADDMM, linear_saved, linear_bias_backward,
                            linear_flops, KEEP_ALWAYS},
        [OP_CONV1D] = {"conv1d", ATEN_ADDMM, conv1d_saved, conv1d_backward, conv1d_flops,
                       KEEP_ALWAYS},
        [OP_ADD] = {"add", ATEN_ADD, NULL, add_backward},
        [OP_MUL] = {"mul", ATEN_MUL, mul_saved, mul_backward},
        [OP_ADD_SCALAR] = {"add_scalar", ATEN_ADD, NULL, clone_backward},
        [OP_MUL_SCALAR] = {"mul_scalar", ATEN_MUL, NULL, mul_scalar_backward},
        [OP_POW] = {"pow", ATEN_POW, save_input, pow_backward},
        [OP_MEAN_LAST] = {"mean_last", ATEN_MEAN_DIM, NULL, mean_last_backward},
        [OP_RSQRT] = {"rsqrt", ATEN_RSQRT, save_output, rsqrt_backward},
        [OP_DROPOUT] = {"dropout", ATEN_NATIVE_DROPOUT, dropout_saved, dropout_backward},
        [OP_NO_GRAD] = {"no_grad", ATEN_NONE}, /* the label of what it births */
        [OP_MUL_CONSTANT] = {"mul_constant", ATEN_MUL, mul_constant_saved, mul_constant_backward},
        [OP_TO_COPY] = {"to_copy", ATEN_TO_COPY, NULL, to_copy_backward},
        [OP_CLONE] = {"clone", ATEN_CLONE, NULL, clone_backward},
        [OP_REPEAT] = {"repeat", ATEN_CLONE, NULL, repeat_backward},
        [OP_CHUNK] = {"chunk", ATEN_NONE, NULL, chunk_backward},
        [OP_CAT] = {"cat", ATEN_CAT, NULL, cat_last_backward},
        [OP_VIEW] = {"view", ATEN_NONE, NULL, view_copied_backward},
        [OP_SCALE] = {"scale", ATEN_MUL_SCALAR, NULL, scale_backward},
        [OP_BMM] = {"bmm", ATEN_BMM, bmm_saved, bmm_backward, bmm_flops, KEEP_ALWAYS},
        [OP_SAFE_SOFTMAX] = {"safe_softmax", ATEN_SAFE_SOFTMAX, save_output, safe_softmax_backward},
        [OP_NEG] = {"neg", ATEN_NEG, NULL, neg_backward},
        [OP_TANH] = {"tanh", ATEN_TANH, save_output, tanh_backward},
        [OP_SILU] = {"silu", ATEN_SILU, save_input, silu_backward},
        [OP_GELU] = {"gelu", ATEN_GELU, save_input, gelu_backward},
        [OP_GELU_TANH] = {"gelu_tanh", ATEN_GELU, save_input, gelu_backward},
        [OP_RELU] = {"relu", ATEN_RELU, save_output, relu_backward},
        [OP_LAYER_NORM] = {"layer_norm", ATEN_NATIVE_LAYER_NORM, norm_saved, layer_norm_backward},
        [OP_RMS_NORM] = {"rms_norm", ATEN_FUSED_RMS_NORM, norm_saved, rms_norm_backward},
        [OP_FLASH_ATTENTION] = {"flash_attention", ATEN_FLASH_ATTENTION, attention_saved,
                                attention_backward, attention_flops, KEEP_ALWAYS},
        [OP_EFFICIENT_ATTENTION] = {"efficient_attention", ATEN_EFFICIENT_ATTENTION,
                                    efficient_attention_saved, efficient_attention_backward,
                                    efficient_attention_flops, KEEP_ALWAYS},
        [OP_WHERE] = {"where", ATEN_WHERE, save_input, where_backward},
        [OP_PAD_LAST] = {"pad_last", ATEN_CONSTANT_PAD, NULL, pad_last_backward},
        [OP_SLICE] = {"slice", ATEN_NONE, NULL, slice_last_backward},
        [OP_EXPAND] = {"expand", ATEN_NONE, NULL, expand_backward},
        [OP_ALIAS] = {"alias", ATEN_NONE, NULL, alias_backward},
        [OP_CLAMP] = {"clamp", ATEN_CLAMP_TENSOR, clamp_saved, clamp_backward},
        [OP_SOFTMAX] = {"softmax", ATEN_SOFTMAX, save_output, softmax_backward},
        [OP_TOPK] = {"topk", ATEN_TOPK, topk_saved, topk_backward},
        [OP_SUM_LAST] = {"sum_last", ATEN_SUM_DIM, NULL, sum_last_backward},
        [OP_DIV_INPLACE] = {"div_inplace", ATEN_DIV, div_inplace_saved, div_inplace_backward},
        [OP_INDEX] = {"index", ATEN_INDEX, index_saved, index_backward},
        [OP_SUM_GROUPS] = {"sum_groups", ATEN_SUM_DIM, NULL, sum_groups_backward},
        [OP_GROUPED_MM] = {"grouped_mm", ATEN_GROUPED_MM, grouped_mm_saved, grouped_mm_backward,
                           grouped_mm_flops, KEEP_NEVER},
        [OP_LOG_SOFTMAX] = {"log_softmax", ATEN_LOG_SOFTMAX, save_output, log_softmax_backward},
        [OP_NLL_LOSS] = {"nll_loss", ATEN_NLL_LOSS, nll_loss_saved, nll_loss_backward},
    };
    return &table[op->kind];
}
