/* ops_float8.c - a Linear whose products are of float8: torchao's Float8Linear, eager.
 *
 * x, the weight and dy are scaled so that their largest element is float8's largest, cast, and
 * multiplied by _scaled_mm, which divides by both scales. One scale a tensor or one a row; each is
 * found anew where it is needed: nothing in float8 is saved, x is. A weight that FSDP2 gathers in
 * float8 comes with its scale, a third operand. A policy of selective checkpointing sees one mm of
 * two tensors in float8, and the max that each scale is made of: what is behind the mm does not run
 * again where its result was kept; the casts do. What its functions birth, in order, is that of
 * torchao 0.18 (float8_linear.py, float8_utils.py, float8_training_tensor.py, float8_ops.py). */
#include "base/layout.h"
#include "graph/op_class.h"

#include <assert.h>

/* Over what a scale goes. */
enum scaled_over { OVER_ALL, OVER_ROWS, OVER_COLUMNS };

struct scaled { /* a tensor in float8 */
    struct operand bits, scale;
    enum scaled_over over;
};

static bool of_rows(const struct graph *graph)
{
    return graph->float8 != FLOAT8_TENSORWISE;
}

/* The scale that a weight was gathered with. */
static uint32_t scale_of_weight(struct graph *graph, uint32_t weight)
{
    const struct buffer_values one = {.kind = VALUES_NUMBER, .number = 1};
    struct graph_param *param =
        &graph->params[graph->storages[graph->tensors[weight].storage].index];
    if (param->scale == GRAPH_NONE) {
        const uint32_t scale = graph_buffer(graph, DTYPE_FP32, (struct shape){.rank = 0}, &one);
        param->scale = scale;
    }
    return param->scale;
}

uint32_t op_float8_linear(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias)
{
    const struct shape in = *shape_of(graph, x), w = *shape_of(graph, weight);
    assert(graph->float8 != FLOAT8_NONE && last_dim(&in) == w.dim[1]);
    const bool given = graph->float8_gather != FLOAT8_GATHER_NOT;
    const uint32_t args[3] = {x, weight, given ? scale_of_weight(graph, weight) : GRAPH_NONE};
    const uint32_t out = simple(graph, OP_FLOAT8_LINEAR, given ? 3 : 2, args, ATEN_SCALED_MM,
                                dtype_of(graph, x), SHAPE(rows_of(&in), w.dim[0]));
    const uint32_t product = graph_view(graph, out, with_last(in, w.dim[0]));
    if (bias == GRAPH_NONE)
        return product;
    const uint32_t sum = op_add(graph, product, bias);
    graph_drop(graph, product);
    return sum;
}

/* save_for_backward: both, whatever is asked for. */
OP_SAVED(float8_linear)
{
    (void)graph;
    saved[0] = op->in[0];
    saved[1] = op->in[1];
    return 2;
}

/* ---- casting ---- */

static struct operand transposed(struct tape *tape, struct operand x)
{
    struct strides strides = layout_of(&x.shape, x.pitch, x.layout);
    assert(x.shape.rank == 2);
    if (!layout_is_unknown(&strides))
        strides = (struct strides){{strides.of[1], strides.of[0]}};
    x.shape = SHAPE(x.shape.dim[1], x.shape.dim[0]);
    x.pitch = 0;
    tape_lay_out(tape, &x, &strides);
    return x;
}

static bool is_row_major(const struct operand *x)
{
    return !x->layout && !x->pitch;
}

/* amax_to_scale: the largest the dtype has, over the largest there is, in fp64 on the way. */
static struct operand scale_of(struct tape *tape, const struct graph *graph, struct operand amax,
                               enum dtype dtype)
{
    static const float e4m3_most = 448, e5m2_most = 57344;
    const struct operand wide =
        tape_call(tape, WORK_CAST, ATEN_TO_COPY, DTYPE_FP64, amax.shape, -1.0, 1, &amax);
    const struct operand least = call_number(tape, WORK_WITHIN, ATEN_CLAMP, wide, 0);
    const struct operand inverse = call1(tape, WORK_RECIPROCAL, ATEN_RECIPROCAL, least);
    const struct operand quotient = call_number(tape, WORK_MUL_NUMBER, ATEN_MUL, inverse,
                                                dtype == DTYPE_FLOAT8_E4M3 ? e4m3_most : e5m2_most);
    tape_death(tape, inverse);
    tape_death(tape, least);
    struct operand scale =
        tape_call(tape, WORK_CAST, ATEN_TO_COPY, DTYPE_FP32, amax.shape, -1.0, 1, &quotient);
    tape_death(tape, quotient);
    if (of_rows(graph)) { /* rounded down to a power of two */
        const struct operand exponent = call1(tape, WORK_LOG2, ATEN_LOG2, scale);
        const struct operand whole = call1(tape, WORK_FLOOR, ATEN_FLOOR, exponent);
        tape_death(tape, exponent);
        const struct operand power = call1(tape, WORK_EXP2, ATEN_EXP2, whole);
        tape_death(tape, whole);
        tape_death(tape, scale);
        scale = power;
    }
    tape_death(tape, wide);
    return scale;
}

/* max() of all makes what it reads contiguous (ReduceAllOps.cpp); amax() does not. */
static struct operand largest(struct tape *tape, struct operand x, enum scaled_over over)
{
    const enum dtype dtype = (enum dtype)x.dtype;
    if (over != OVER_ALL) {
        struct shape shape = x.shape;
        shape.dim[over == OVER_ROWS ? shape.rank - 1 : 0] = 1;
        return tape_call(tape, WORK_LARGEST, ATEN_AMAX, dtype, shape, -1.0, 1, &x);
    }
    struct operand out; /* torchtitan's policy names aten.max for this one */
    if (tape_call_kept(tape, ATEN_MAX, dtype, (struct shape){.rank = 0}, &out))
        return out;
    const bool copies = !is_row_major(&x);
    if (copies) {
        const struct operand copy = tape_birth(tape, ATEN_CLONE, dtype, x.shape);
        tape_kernel(tape, WORK_REORDER, ATEN_CLONE, -1.0, 1, &x, 1, &copy);
        x = copy;
    }
    tape_kernel(tape, WORK_MAXIMUM, ATEN_MAX, (double)shape_elements(&x.shape), 1, &x, 1, &out);
    if (copies)
        tape_death(tape, x);
    return out;
}

/* hp_tensor_to_float8_dynamic */
static struct scaled cast_to(struct tape *tape, const struct graph *graph, struct operand x,
                             enum dtype dtype, enum scaled_over over)
{
    const struct operand size = call1(tape, WORK_ABS, ATEN_ABS, x);
    const struct operand amax = largest(tape, size, over);
    tape_death(tape, size);
    struct scaled out = {.over = over};
    out.scale = scale_of(tape, graph, amax, dtype);
    tape_death(tape, amax);

    struct operand wide = x;
    const bool casts = x.dtype != DTYPE_FP32;
    if (casts)
        wide = tape_call(tape, WORK_CAST, ATEN_TO_COPY, DTYPE_FP32, x.shape, -1.0, 1, &x);
    const struct operand product = call2(tape, WORK_MUL, ATEN_MUL, wide, out.scale);
    if (casts)
        tape_death(tape, wide);
    const struct operand within = call1(tape, WORK_WITHIN, ATEN_CLAMP, product);
    out.bits = tape_call(tape, WORK_CAST, ATEN_TO_COPY, dtype, x.shape, -1.0, 1, &within);
    tape_death(tape, within);
    tape_death(tape, product);
    return out;
}

static void let_go(struct tape *tape, struct scaled x)
{
    tape_death(tape, x.bits);
    tape_death(tape, x.scale);
}

/* The weight as the products take it, transposed: cast here, or gathered in float8. */
static struct scaled weight_of(struct tape *tape, const struct graph *graph,
                               const struct graph_op *op, enum scaled_over over)
{
    struct operand weight = tape_tensor(tape, op->in[1]);
    if (op->ins < 3)
        return cast_to(tape, graph, transposed(tape, weight), DTYPE_FLOAT8_E4M3, over);
    weight.dtype = DTYPE_FLOAT8_E4M3;
    return (struct scaled){transposed(tape, weight), tape_tensor(tape, op->in[2]), over};
}

static void let_weight_go(struct tape *tape, const struct graph_op *op, struct scaled weight)
{
    if (op->ins < 3)
        let_go(tape, weight);
}

/* ---- a product ---- */

struct factor { /* as _scaled_mm takes it */
    struct operand bits, scale, inverse;
    bool copied, repeated;
};

/* x in the order that _scaled_mm reads: rows one after the other, which are those of the first
 * factor and the columns of the second. */
static struct factor factor_of(struct tape *tape, const struct scaled *x, struct operand rows)
{
    struct factor f = {.bits = rows, .scale = x->scale};
    if (!is_row_major(&rows)) {
        f.bits = tape_birth(tape, ATEN_CLONE, (enum dtype)rows.dtype, rows.shape);
        tape_kernel(tape, WORK_REORDER, ATEN_CLONE, -1.0, 1, &rows, 1, &f.bits);
        f.copied = true;
    }
    return f;
}

/* Where one factor has a scale a row and the other one in all, that is repeated. */
static void repeat_scale(struct tape *tape, struct factor *f)
{
    f->scale = tape_call(tape, WORK_REPEAT, ATEN_REPEAT, DTYPE_FP32, SHAPE(f->bits.shape.dim[0]),
                         -1.0, 1, &f->scale);
    f->repeated = true;
}

static void invert(struct tape *tape, struct factor *f)
{
    f->inverse = call1(tape, WORK_RECIPROCAL, ATEN_RECIPROCAL, f->scale);
}

static void end_factor(struct tape *tape, const struct factor *f)
{
    if (f->copied)
        tape_death(tape, f->bits);
    if (f->repeated)
        tape_death(tape, f->scale);
}

static struct operand one_instead(struct tape *tape, struct operand inverse)
{
    const struct operand one =
        tape_birth(tape, ATEN_NEW_ONES, DTYPE_FP32, (struct shape){.rank = 0});
    tape_kernel(tape, WORK_FILL, ATEN_NEW_ONES, -1.0, 0, NULL, 1, &one);
    tape_number(tape, 1);
    tape_death(tape, inverse);
    return one;
}

/* addmm_float8_unwrapped: a bᵀ in `dtype` (m, n), of a (m, k) and b (n, k). Scales a row without
 * fast accumulation are multiplied by afterwards. The result is the output of `op`,
 * which is born here; of NULL a new one. */
static struct operand product_of(struct tape *tape, const struct graph_op *op, struct factor *a,
                                 struct factor *b, bool by_rows, bool fast, enum dtype dtype)
{
    const uint32_t m = a->bits.shape.dim[0], n = b->bits.shape.dim[0], k = a->bits.shape.dim[1];
    const bool after = by_rows && !fast;
    const bool narrow = by_rows && dtype != DTYPE_BF16; /* it has no other result then */
    struct operand factor = {.place = PLACE_NONE};
    invert(tape, a);
    invert(tape, b);
    if (after) {
        factor = tape_call(tape, WORK_MUL, ATEN_MUL, DTYPE_FP32, SHAPE(m, n), -1.0, 2,
                           (struct operand[]){a->inverse, b->inverse});
        a->inverse = one_instead(tape, a->inverse);
        b->inverse = one_instead(tape, b->inverse);
    }
    struct operand out =
        op && !narrow ? tape_birth_output(tape, op, 0)
                      : tape_birth(tape, ATEN_SCALED_MM, narrow ? DTYPE_BF16 : dtype, SHAPE(m, n));
    const struct operand in[4] = {a->bits, b->bits, a->inverse, b->inverse};
    tape_kernel(tape, WORK_SCALED_MM_NT, ATEN_SCALED_MM, 2.0 * m * n * k, 4, in, 1, &out);
    if (after)
        tape_kernel(tape, WORK_MUL, ATEN_MUL_, -1.0, 2, (struct operand[]){out, factor}, 1, &out);
    if (narrow) {
        const struct operand first = out;
        out = op ? tape_birth_output(tape, op, 0)
                 : tape_birth(tape, ATEN_TO_COPY, dtype, SHAPE(m, n));
        tape_kernel(tape, WORK_CAST, ATEN_TO_COPY, -1.0, 1, &first, 1, &out);
        tape_death(tape, first);
    }
    tape_death(tape, a->inverse);
    tape_death(tape, b->inverse);
    if (after)
        tape_death(tape, factor);
    end_factor(tape, a);
    end_factor(tape, b);
    return out;
}

/* ---- forward and backward ---- */

static struct operand as_rows(struct tape *tape, struct operand x)
{
    if (x.shape.rank != 2)
        tape_view(tape, &x, SHAPE(rows_of(&x.shape), last_dim(&x.shape)));
    return x;
}

static void float8_linear_forward(struct tape *tape, const struct graph *graph,
                                  const struct graph_op *op)
{
    const bool by_rows = of_rows(graph);
    const struct scaled x = cast_to(tape, graph, tape_tensor(tape, op->in[0]), DTYPE_FLOAT8_E4M3,
                                    by_rows ? OVER_ROWS : OVER_ALL);
    const struct scaled w = weight_of(tape, graph, op, by_rows ? OVER_COLUMNS : OVER_ALL);
    if (!tape_takes_output(tape, op, 0)) { /* a dispatch mode sees the product of both as one mm */
        struct factor a = factor_of(tape, &x, as_rows(tape, x.bits));
        struct factor b = factor_of(tape, &w, transposed(tape, w.bits));
        product_of(tape, op, &a, &b, by_rows, true, dtype_of(graph, op->in[0]));
    }
    let_weight_go(tape, op, w);
    let_go(tape, x);
}

/* dy w: the weight's scale is one in all where rows of w would be summed over in high precision. */
static struct operand input_gradient(struct tape *tape, const struct graph *graph,
                                     const struct graph_op *op, struct scaled *dy, struct scaled *w)
{
    const bool by_rows = of_rows(graph), one = graph->float8 != FLOAT8_ROWWISE;
    const enum dtype dtype = by_rows ? DTYPE_FLOAT8_E4M3 : DTYPE_FLOAT8_E5M2;
    *dy = cast_to(tape, graph, tape_grad(tape, op, 0), dtype, by_rows ? OVER_ROWS : OVER_ALL);
    *w = weight_of(tape, graph, op, one ? OVER_ALL : OVER_ROWS);
    struct factor a = factor_of(tape, dy, dy->bits), b = factor_of(tape, w, w->bits);
    if (by_rows && one)
        repeat_scale(tape, &b);
    return product_of(tape, NULL, &a, &b, by_rows, false, dtype_of(graph, op->in[0]));
}

/* dyᵀ x, each of whose scales is of a column. */
static struct operand weight_gradient(struct tape *tape, const struct graph *graph,
                                      const struct graph_op *op, struct scaled *dy,
                                      struct scaled *x)
{
    const bool by_rows = of_rows(graph);
    const enum dtype dtype = by_rows ? DTYPE_FLOAT8_E4M3 : DTYPE_FLOAT8_E5M2;
    const enum scaled_over over = by_rows ? OVER_COLUMNS : OVER_ALL;
    const struct operand input = as_rows(tape, tape_tensor(tape, op->in[0]));
    *dy = cast_to(tape, graph, tape_grad(tape, op, 0), dtype, over);
    *x = cast_to(tape, graph, input, DTYPE_FLOAT8_E4M3, over);
    struct factor a = factor_of(tape, dy, transposed(tape, dy->bits));
    struct factor b = factor_of(tape, x, transposed(tape, x->bits));
    return product_of(tape, NULL, &a, &b, by_rows, false, dtype_of(graph, op->in[1]));
}

static void give(struct tape *tape, const struct graph_op *op, uint32_t i, struct operand gradient)
{
    if (!tape_needs(tape, op, i))
        tape_give_unasked(tape, gradient);
    else if (i == 1)
        tape_give_view(tape, op, i, gradient); /* transposed back */
    else
        tape_give(tape, op, i, gradient);
}

/* dyᵀ x as it is. */
static struct operand plain_weight_gradient(struct tape *tape, const struct graph *graph,
                                            const struct graph_op *op)
{
    const struct operand in[2] = {tape_grad(tape, op, 0),
                                  as_rows(tape, tape_tensor(tape, op->in[0]))};
    const double flops = 2.0 * (double)shape_elements(&in[1].shape) * last_dim(&in[0].shape);
    return tape_call(tape, WORK_MATMUL_TN, ATEN_MM, dtype_of(graph, op->in[1]),
                     *shape_of(graph, op->in[1]), flops, 2, in);
}

/* Both gradients are computed, whichever are asked for. */
OP_BACKWARD(float8_linear)
{
    const bool in_float8 = graph->float8 != FLOAT8_ROWWISE_GW_HP;
    struct scaled made[4] = {{.over = OVER_ALL}}; /* dy, w; dy again, x */
    const struct operand input = input_gradient(tape, graph, op, &made[0], &made[1]);
    const struct operand weight = in_float8 ? weight_gradient(tape, graph, op, &made[2], &made[3])
                                            : plain_weight_gradient(tape, graph, op);
    let_go(tape, made[0]);
    let_weight_go(tape, op, made[1]);
    tape_end_frame(tape, op); /* x goes with its view, a local in between */
    for (uint32_t i = 2; i < 4 && in_float8; i++)
        let_go(tape, made[i]);
    give(tape, op, 0, input);
    give(tape, op, 1, weight);
}

OP_CLASS(float8_linear) = {
    .label = ATEN_SCALED_MM,
    .saved = float8_linear_saved,
    .backward = float8_linear_backward,
    .forward = float8_linear_forward,
    .keep = KEEP_EVERY_SECOND,
    .in_python = true,
};
