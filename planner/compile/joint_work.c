/* joint_work.c - what Inductor's decompositions make of each work of the vocabulary (joint.h).
 *
 * Sources: torch/_inductor/decomposition.py, torch/_decomp/decompositions.py (native_layer_norm,
 * _fused_rms_norm, silu, gelu and their backwards), torch/_refs for what they call. Functions that
 * compute in the tensor's dtype stay in it; decompositions with an "opmath" cast to fp32 and back.
 */
#include "base/arena.h"
#include "compile/joint_works.h"

#include <assert.h>

/* ---- products ---- */

static uint32_t rows_of(const struct works *w, uint32_t x)
{
    const struct shape shape = at(w, x)->shape;
    if (shape.rank == 2)
        return x;
    const uint32_t last = shape.dim[shape.rank - 1];
    return joint_view(w->joint, x, SHAPE((uint32_t)(shape_elements(&shape) / last), last));
}

static uint32_t transposed(const struct works *w, uint32_t x)
{
    const struct shape *shape = &at(w, x)->shape;
    assert(shape->rank == 2);
    return joint_node(w->joint, &(struct joint_want){.name = JOINT_PERMUTE,
                                                     .dtype = (enum dtype)at(w, x)->dtype,
                                                     .shape = SHAPE(shape->dim[1], shape->dim[0]),
                                                     .args = 1,
                                                     .arg = {x},
                                                     .detail = JOINT_TRANSPOSED});
}

/* x wᵀ, perhaps with a bias: x is flattened, and the result is seen in x's shape. */
static void product_forward(const struct works *w, bool transposes)
{
    const struct shape shape = at(w, w->in[0])->shape;
    const uint32_t weight = transposes ? transposed(w, w->in[1]) : w->in[1];
    const uint32_t arg[3] = {rows_of(w, w->in[0]), weight, w->kernel->ins > 2 ? w->in[2] : 0};
    const struct shape *x = &at(w, arg[0])->shape, *y = &at(w, weight)->shape;
    const uint32_t args = w->kernel->ins > 2 ? 3 : 2;
    uint32_t node = call(w, args, arg, SHAPE(x->dim[0], y->dim[1]));
    if (shape.rank > 2) {
        struct shape seen = shape;
        seen.dim[seen.rank - 1] = result(w, 0)->shape.dim[result(w, 0)->shape.rank - 1];
        node = joint_view(w->joint, node, seen);
    }
    write(w, 0, node);
}

/* x y; of vectors all products of two of their elements, where neither is one element ("mm" in
 * Inductor's decompositions). */
static uint32_t multiplied(const struct works *w, const uint32_t arg[2])
{
    const struct shape *x = &at(w, arg[0])->shape, *y = &at(w, arg[1])->shape;
    const struct shape shape = SHAPE(x->dim[0], y->dim[1]);
    if (x->dim[1] != 1 || x->dim[0] == 1 || y->dim[1] == 1)
        return call(w, 2, arg, shape);
    const uint32_t left = wide(w, arg[0]), right = wide(w, arg[1]);
    return element(w, JOINT_MUL, DTYPE_FP32, shape, left, right, 0);
}

/* Of the input: dy w, where the weight is transposed twice on the way; nothing of a Conv1D's. */
static void product_of_input(const struct works *w, bool twice)
{
    const uint32_t once = transposed(w, w->in[1]);
    const uint32_t arg[2] = {rows_of(w, w->in[0]), twice ? transposed(w, once) : once};
    write(w, 0, multiplied(w, arg));
}

/* Of the weight: the first factor is transposed. */
static void product_of_weight(const struct works *w)
{
    const uint32_t arg[2] = {transposed(w, rows_of(w, w->in[0])), rows_of(w, w->in[1])};
    write(w, 0, multiplied(w, arg));
}

/* ---- attention ---- */

/* (b, s, a, d) as (b, a, s, d), and back. */
static uint32_t swapped(const struct works *w, uint32_t x)
{
    const struct joint_node *node = at(w, x);
    const struct shape s = node->shape;
    if (node->name == JOINT_PERMUTE && node->detail == JOINT_HEADS_FIRST)
        return node->arg[0];
    return joint_node(w->joint,
                      &(struct joint_want){.name = JOINT_PERMUTE,
                                           .dtype = (enum dtype)node->dtype,
                                           .shape = SHAPE(s.dim[0], s.dim[2], s.dim[1], s.dim[3]),
                                           .args = 1,
                                           .arg = {x},
                                           .detail = JOINT_HEADS_FIRST});
}

static struct shape swapped_shape(const struct shape *s)
{
    return SHAPE(s->dim[0], s->dim[2], s->dim[1], s->dim[3]);
}

/* A mask (b, 1, s, s) as every head's: (b, a, s, s). */
static uint32_t for_heads(const struct works *w, uint32_t bias, const struct shape *heads)
{
    struct shape all = at(w, bias)->shape;
    all.dim[1] = heads->dim[2];
    return element(w, JOINT_EXPAND, (enum dtype)at(w, bias)->dtype, all, bias, JOINT_NONE, 0);
}

static void attention(const struct works *w)
{
    struct joint_want want = {.name = JOINT_CALL_MANY, .args = 3, .of = w->index};
    for (uint32_t i = 0; i < 3; i++)
        want.arg[i] = swapped(w, w->in[i]);
    if (w->kernel->ins > 3)
        want.arg[want.args++] = for_heads(w, w->in[3], &w->kernel->operands[0].shape);
    const uint32_t node = joint_node(w->joint, &want);
    for (uint32_t i = 0; i < w->kernel->outs; i++) {
        const struct operand *out = result(w, i);
        uint32_t one =
            one_of(w, node, i, (enum dtype)out->dtype, i ? out->shape : swapped_shape(&out->shape));
        if (i == 0)
            one = swapped(w, one);
        joint_write(w->joint, out, one);
    }
}

/* do, q, k, v, logsumexp, of flash attention o, else perhaps the mask; and what else the forward
 * call gave: the state of its generator, and o, which the efficient kernel takes and does not read.
 */
static void attention_backward(const struct works *w)
{
    struct joint_want want = {.name = JOINT_CALL_MANY, .of = w->index};
    const uint32_t forward = at(w, w->in[4])->arg[0];
    const bool masked = w->kernel->work == WORK_EFFICIENT_ATTENTION_BACKWARD && w->kernel->ins > 5;
    const uint32_t given = w->kernel->ins > 5 && !masked ? 2 : 0; /* results that are operands */
    for (uint32_t i = 0; i < w->kernel->ins; i++)
        want.arg[want.args++] = i == 4             ? w->in[i]
                                : i == 5 && masked ? at(w, forward)->arg[3]
                                                   : swapped(w, w->in[i]);
    for (uint32_t i = 0; i < joint_count(w->joint) && want.args < JOINT_ARGS; i++)
        if (at(w, i)->name == JOINT_RESULT && at(w, i)->arg[0] == forward &&
            at(w, i)->detail != 1 && at(w, i)->detail >= given)
            want.arg[want.args++] = i;
    const uint32_t node = joint_node(w->joint, &want);
    for (uint32_t i = 0; i < w->kernel->outs; i++) {
        const struct operand *out = result(w, i);
        joint_write(
            w->joint, out,
            swapped(w, one_of(w, node, i, (enum dtype)out->dtype, swapped_shape(&out->shape))));
    }
}

/* ---- norms ---- */

static uint32_t inverse_root(const struct works *w, uint32_t variance)
{
    return of_one(w, JOINT_RSQRT, of_one(w, JOINT_ADD, variance, w->kernel->attr.eps), 0);
}

static void rms_norm(const struct works *w)
{
    const uint32_t x = wide(w, w->in[0]);
    const uint32_t rstd = inverse_root(w, over_row(w, JOINT_MEAN, of_one(w, JOINT_POW, x, 2)));
    const uint32_t scaled = of_two(w, JOINT_MUL, of_two(w, JOINT_MUL, x, rstd), w->in[1]);
    write(w, 0, scaled);
    write(w, 1, rstd);
}

static float row_of(const struct works *w, uint32_t x)
{
    return (float)at(w, x)->shape.dim[at(w, x)->shape.rank - 1];
}

/* The results of a norm's backward in order: the input's is as large as the input. */
static void write_gradients(const struct works *w, uint32_t input, uint32_t weight, uint32_t bias)
{
    const uint64_t all = shape_elements(&w->kernel->operands[1].shape);
    uint32_t vectors = 0;
    for (uint32_t i = 0; i < w->kernel->outs; i++)
        if (shape_elements(&result(w, i)->shape) == all)
            write(w, i, input);
        else
            write(w, i, vectors++ ? bias : weight);
}

static void rms_norm_backward(const struct works *w)
{
    const uint32_t dy = wide(w, w->in[0]), rstd = w->in[3];
    const uint32_t g = of_two(w, JOINT_MUL, dy, wide(w, w->in[2]));
    const uint32_t n = of_two(w, JOINT_MUL, wide(w, w->in[1]), rstd);
    const uint32_t sum = over_row(w, JOINT_SUM, of_two(w, JOINT_MUL, n, g));
    const uint32_t mean = of_one(w, JOINT_DIV, n, row_of(w, n));
    const uint32_t less = of_two(w, JOINT_SUB, g, of_two(w, JOINT_MUL, mean, sum));
    const uint32_t dx = of_two(w, JOINT_MUL, less, rstd);
    write_gradients(w, dx, over_rows(w, of_two(w, JOINT_MUL, dy, n)), JOINT_NONE);
}

static void layer_norm(const struct works *w)
{
    const uint32_t x = wide(w, w->in[0]);
    struct shape row = at(w, x)->shape;
    row.dim[row.rank - 1] = 1;
    const uint32_t both = joint_node(
        w->joint,
        &(struct joint_want){
            .name = JOINT_VARIANCE, .dtype = DTYPE_FP32, .shape = row, .args = 1, .arg = {x}});
    const uint32_t variance = one_of(w, both, 0, DTYPE_FP32, row);
    const uint32_t mean = one_of(w, both, 1, DTYPE_FP32, row);
    const uint32_t rstd = inverse_root(w, variance);
    const uint32_t n = of_two(w, JOINT_MUL, of_two(w, JOINT_SUB, x, mean), rstd);
    uint32_t y = w->kernel->ins > 1 ? of_two(w, JOINT_MUL, n, w->in[1]) : n;
    if (w->kernel->ins > 2)
        y = of_two(w, JOINT_ADD, y, w->in[2]);
    write(w, 0, y);
    joint_write(w->joint, result(w, 1), mean); /* fp32 on a GPU */
    joint_write(w->joint, result(w, 2), rstd);
}

static void layer_norm_backward(const struct works *w)
{
    const bool weighted = w->kernel->ins > 4;
    const uint32_t first = weighted ? 3 : 2;
    const uint32_t dy = wide(w, w->in[0]), mean = w->in[first], rstd = w->in[first + 1];
    const uint32_t n = of_two(w, JOINT_MUL, of_two(w, JOINT_SUB, wide(w, w->in[1]), mean), rstd);
    const uint32_t g = weighted ? of_two(w, JOINT_MUL, dy, wide(w, w->in[2])) : dy;
    const uint32_t a = of_one(w, JOINT_MUL, g, row_of(w, g));
    const uint32_t b = over_row(w, JOINT_SUM, g);
    const uint32_t c = over_row(w, JOINT_SUM, of_two(w, JOINT_MUL, g, n));
    const uint32_t d = of_two(w, JOINT_MUL, n, c);
    const uint32_t less = of_two(w, JOINT_SUB, of_two(w, JOINT_SUB, a, b), d);
    const uint32_t dx = of_two(w, JOINT_MUL, of_one(w, JOINT_DIV, rstd, row_of(w, g)), less);
    write_gradients(w, dx, over_rows(w, of_two(w, JOINT_MUL, dy, n)), over_rows(w, dy));
}

/* ---- activations ---- */

static void silu(const struct works *w)
{
    const uint32_t x = wide(w, w->in[0]);
    const uint32_t e = of_one(w, JOINT_EXP, of_one(w, JOINT_NEG, x, 0), 0);
    write(w, 0, of_two(w, JOINT_DIV, x, of_one(w, JOINT_ADD, e, 1)));
}

static void silu_backward(const struct works *w)
{
    const uint32_t dy = wide(w, w->in[0]), x = wide(w, w->in[1]);
    const uint32_t s = of_one(w, JOINT_SIGMOID, x, 0);
    const uint32_t ds = of_two(w, JOINT_MUL, dy, s);
    const uint32_t rest = of_two(w, JOINT_MUL, x, of_one(w, JOINT_SUB, s, 1));
    write(w, 0, of_two(w, JOINT_MUL, ds, of_one(w, JOINT_ADD, rest, 1)));
}

#define GELU_KAPPA 0.044715F
#define GELU_BETA 0.79788456F /* the square root of 2 / pi */

struct gelu {
    uint32_t half, square, tanh, above;
};

static struct gelu gelu_parts(const struct works *w, uint32_t x)
{
    struct gelu g;
    g.square = of_two(w, JOINT_MUL, x, x);
    const uint32_t cube = of_two(w, JOINT_MUL, g.square, x);
    const uint32_t sum = of_two(w, JOINT_ADD, x, of_one(w, JOINT_MUL, cube, GELU_KAPPA));
    const uint32_t inner = of_one(w, JOINT_MUL, sum, GELU_BETA);
    g.half = of_one(w, JOINT_MUL, x, 0.5F);
    g.tanh = of_one(w, JOINT_TANH, inner, 0);
    g.above = of_one(w, JOINT_ADD, g.tanh, 1);
    return g;
}

static void gelu_tanh(const struct works *w)
{
    const struct gelu g = gelu_parts(w, wide(w, w->in[0]));
    write(w, 0, of_two(w, JOINT_MUL, g.half, g.above));
}

static void gelu_tanh_backward(const struct works *w)
{
    const uint32_t dy = wide(w, w->in[0]);
    const struct gelu g = gelu_parts(w, wide(w, w->in[1]));
    const uint32_t left = of_one(w, JOINT_MUL, g.above, 0.5F);
    const uint32_t slope = of_one(w, JOINT_SUB, of_two(w, JOINT_MUL, g.tanh, g.tanh), 1);
    const uint32_t inner = of_one(w, JOINT_ADD, of_one(w, JOINT_MUL, g.square, 3 * GELU_KAPPA), 1);
    const uint32_t scaled = of_one(w, JOINT_MUL, inner, GELU_BETA);
    const uint32_t right = of_two(w, JOINT_MUL, of_two(w, JOINT_MUL, g.half, slope), scaled);
    write(w, 0, of_two(w, JOINT_MUL, dy, of_two(w, JOINT_ADD, left, right)));
}

#define ROOT_OF_HALF 0.70710678F
#define NORMAL_DENSITY 0.39894228F /* 1 / the square root of 2 pi */

/* 1 + erf(x / the square root of 2) */
static uint32_t gelu_above(const struct works *w, uint32_t x)
{
    return of_one(w, JOINT_ADD, of_one(w, JOINT_ERF, of_one(w, JOINT_MUL, x, ROOT_OF_HALF), 0), 1);
}

static void gelu(const struct works *w)
{
    const uint32_t x = wide(w, w->in[0]);
    const uint32_t half = of_one(w, JOINT_MUL, x, 0.5F);
    write(w, 0, of_two(w, JOINT_MUL, half, gelu_above(w, x)));
}

static void gelu_backward(const struct works *w)
{
    const uint32_t dy = wide(w, w->in[0]), x = wide(w, w->in[1]);
    const uint32_t left = of_one(w, JOINT_MUL, gelu_above(w, x), 0.5F);
    const uint32_t square = of_one(w, JOINT_MUL, of_two(w, JOINT_MUL, x, x), -0.5F);
    const uint32_t density = of_one(w, JOINT_MUL, of_one(w, JOINT_EXP, square, 0), NORMAL_DENSITY);
    const uint32_t slope = of_two(w, JOINT_ADD, left, of_two(w, JOINT_MUL, x, density));
    write(w, 0, of_two(w, JOINT_MUL, dy, slope));
}

static void tanh_backward(const struct works *w)
{
    const uint32_t y = wide(w, w->in[1]);
    const uint32_t slope = of_one(w, JOINT_SUB, of_two(w, JOINT_MUL, y, y), 1);
    write(w, 0, of_two(w, JOINT_MUL, wide(w, w->in[0]), slope));
}

static uint32_t chosen(const struct works *w, uint32_t condition, uint32_t x, uint32_t y)
{
    return choose(w, (enum dtype)at(w, x)->dtype, at(w, condition)->shape,
                  (uint32_t[]){condition, x, y});
}

/* In fp32, as all that has an "opmath"; what is no number of 16 bits is joint_float8's. */
static bool limit(const struct works *w)
{
    const float p = w->kernel->attr.p;
    const bool both = w->kernel->work == WORK_WITHIN;
    if (both && dtype_bytes((enum dtype)at(w, w->in[0])->dtype) != 2)
        return false;
    const uint32_t x = wide(w, w->in[0]);
    write(w, 0, of_one(w, JOINT_AT_MOST, both ? of_one(w, JOINT_AT_LEAST, x, -p) : x, p));
    return true;
}

#define SOFTPLUS_THRESHOLD 20.0F

static uint32_t is_line(const struct works *w, uint32_t x)
{
    return element(w, JOINT_GREATER, DTYPE_BOOL, at(w, x)->shape, x, JOINT_NONE,
                   SOFTPLUS_THRESHOLD);
}

static void softplus(const struct works *w)
{
    const uint32_t x = wide(w, w->in[0]);
    const uint32_t curve = of_one(w, JOINT_LOG1P, of_one(w, JOINT_EXP, x, 0), 0);
    write(w, 0, chosen(w, is_line(w, x), x, curve));
}

static void softplus_backward(const struct works *w)
{
    const uint32_t dy = wide(w, w->in[0]), x = wide(w, w->in[1]);
    const uint32_t e = of_one(w, JOINT_EXP, x, 0);
    const uint32_t slope =
        of_two(w, JOINT_DIV, of_two(w, JOINT_MUL, dy, e), of_one(w, JOINT_ADD, e, 1));
    write(w, 0, chosen(w, is_line(w, x), dy, slope));
}

/* ---- shapes ---- */

/* By expand and reshape, or by aten.repeat, which may not run again. */
static void repeat(const struct works *w)
{
    const bool repeats = w->kernel->label == ATEN_REPEAT;
    const struct shape to = result(w, 0)->shape;
    struct shape one = to;
    one.dim[w->kernel->attr.dim] = 1;
    const uint32_t x = joint_view(w->joint, w->in[0], one);
    const uint32_t expanded =
        element(w, JOINT_EXPAND, (enum dtype)at(w, x)->dtype, to, x, JOINT_NONE, 0);
    write(w, 0, of_one(w, repeats ? JOINT_COPY : JOINT_CLONE, expanded, 0));
}

static void sum(const struct works *w)
{
    const enum dtype dtype = (enum dtype)result(w, 0)->dtype;
    write(w, 0, element(w, JOINT_SUM, dtype, result(w, 0)->shape, w->in[0], JOINT_NONE, 0));
}

/* One part alone, twice: (..., d) as (..., 2, d) as (..., 2 d). */
static void twice(const struct works *w)
{
    const struct shape shape = result(w, 0)->shape;
    struct shape pairs = shape;
    pairs.dim[pairs.rank - 1] = 2;
    pairs.dim[pairs.rank++] = shape.dim[shape.rank - 1] / 2;
    struct shape one = pairs;
    one.dim[one.rank - 2] = 1;
    const uint32_t x = joint_view(w->joint, w->in[0], one);
    const uint32_t both =
        element(w, JOINT_EXPAND, (enum dtype)at(w, x)->dtype, pairs, x, JOINT_NONE, 0);
    write(w, 0, joint_view(w->joint, of_one(w, JOINT_CLONE, both, 0), shape));
}

static void join(const struct works *w)
{
    if (w->kernel->ins == 1) {
        twice(w);
        return;
    }
    struct joint_want want = {.name = JOINT_CAT,
                              .dtype = (enum dtype)result(w, 0)->dtype,
                              .shape = result(w, 0)->shape,
                              .args = w->kernel->ins};
    for (uint32_t i = 0; i < w->kernel->ins; i++) {
        struct shape part = want.shape; /* of heads as one row */
        const uint64_t rows = shape_elements(&part) / part.dim[part.rank - 1];
        part.dim[part.rank - 1] = (uint32_t)(shape_elements(&at(w, w->in[i])->shape) / rows);
        want.arg[i] = joint_view(w->joint, w->in[i], part);
    }
    write(w, 0, joint_node(w->joint, &want));
}

/* Elements in turn: (..., d) and (..., d) as (..., d, 2); of a tensor with itself, each one twice.
 */
static void interleave(const struct works *w)
{
    const struct operand *x = &w->kernel->operands[0], *y = &w->kernel->operands[1];
    const struct shape shape = result(w, 0)->shape;
    struct shape one = shape;
    one.dim[one.rank - 1] = 1;
    if (x->place != y->place || x->offset != y->offset) {
        join(w);
        return;
    }
    const uint32_t single = joint_view(w->joint, w->in[0], one);
    const uint32_t both =
        element(w, JOINT_EXPAND, (enum dtype)at(w, single)->dtype, shape, single, JOINT_NONE, 0);
    write(w, 0, of_one(w, JOINT_CLONE, both, 0));
}

/* slice_scatter into zeros, in steps of `step` */
static void slice_backward(const struct works *w, uint32_t step)
{
    const enum dtype dtype = (enum dtype)result(w, 0)->dtype;
    const struct shape shape = result(w, 0)->shape;
    const uint32_t zeros = joint_node(
        w->joint, &(struct joint_want){.name = JOINT_FULL, .dtype = dtype, .shape = shape});
    write(w, 0,
          joint_node(w->joint, &(struct joint_want){.name = JOINT_PUT_SLICE,
                                                    .dtype = dtype,
                                                    .shape = shape,
                                                    .args = 2,
                                                    .arg = {zeros, w->in[0]},
                                                    .detail = w->kernel->attr.first +
                                                              (step > 1 ? JOINT_STEP * step : 0)}));
}

/* The conjugate is lazy: a copy where it is used. */
static void conjugate(const struct works *w)
{
    write(w, 0, of_one(w, JOINT_CLONE, of_one(w, JOINT_CONJUGATE, w->in[0], 0), 0));
}

/* ---- elementwise, as it is ---- */

static uint32_t stretched(const struct works *w, uint32_t x)
{
    const struct shape shape = result(w, 0)->shape;
    if (shape_elements(&at(w, x)->shape) == shape_elements(&shape))
        return x;
    return element(w, JOINT_EXPAND, (enum dtype)at(w, x)->dtype, shape, x, JOINT_NONE, 0);
}

/* What changes nothing is left out (joint_graph.py: constant_fold_uniform_value). */
static bool is_nothing(enum joint_name name, float number)
{
    return (name == JOINT_ADD && number == 0) ||
           ((name == JOINT_MUL || name == JOINT_DIV) && number == 1);
}

static void number(const struct works *w, enum joint_name name)
{
    if (is_nothing(name, w->kernel->attr.p)) {
        write(w, 0, stretched(w, w->in[0]));
        return;
    }
    write(w, 0, of_one(w, name, stretched(w, w->in[0]), w->kernel->attr.p));
}

/* Numbers of its own for each call, in the dtype of x: kept where they are above p. */
static void dropout(const struct works *w)
{
    const uint32_t x = w->in[0];
    const float p = w->kernel->attr.p;
    const struct shape shape = at(w, x)->shape;
    const uint32_t drawn = joint_node(
        w->joint, &(struct joint_want){.name = JOINT_RANDOM, .dtype = DTYPE_FP32, .shape = shape});
    const uint32_t kept = element(w, JOINT_LESS, DTYPE_BOOL, shape,
                                  cast(w, drawn, (enum dtype)at(w, x)->dtype), JOINT_NONE, p);
    const uint32_t y = element(w, JOINT_MUL, (enum dtype)at(w, x)->dtype, shape, kept, x, 0);
    write(w, 0, of_one(w, JOINT_MUL, y, 1 / (1 - p)));
    joint_write(w->joint, result(w, 1), kept);
}

static void dropout_backward(const struct works *w)
{
    const enum dtype dtype = (enum dtype)at(w, w->in[0])->dtype;
    const uint32_t kept =
        of_one(w, JOINT_MUL, cast(w, w->in[1], dtype), 1 / (1 - w->kernel->attr.p));
    write(w, 0, of_two(w, JOINT_MUL, w->in[0], kept));
}

/* y: backward compares what forward gave (_inductor's decomposition of threshold_backward). */
static void relu_backward(const struct works *w)
{
    const enum dtype dtype = (enum dtype)result(w, 0)->dtype;
    const struct shape shape = result(w, 0)->shape;
    const uint32_t off = element(w, JOINT_LESS_EQUAL, DTYPE_BOOL, shape, w->in[1], JOINT_NONE, 0);
    const uint32_t zero =
        joint_node(w->joint, &(struct joint_want){.name = JOINT_FULL, .dtype = dtype});
    write(w, 0, choose(w, dtype, shape, (uint32_t[]){off, zero, w->in[0]}));
}

static void two(const struct works *w, enum joint_name name)
{
    const enum dtype dtype = (enum dtype)result(w, 0)->dtype;
    joint_write(w->joint, result(w, 0),
                element(w, name, dtype, result(w, 0)->shape, w->in[0], w->in[1], 0));
}

static bool is_ones(const struct works *w, uint32_t x)
{
    return at(w, x)->name == JOINT_FULL && is_nothing(JOINT_MUL, at(w, x)->number);
}

/* A 16-bit tensor multiplied by an fp32 one in place: in fp32, and cast back. */
static void product(const struct works *w)
{
    if (is_ones(w, w->in[1])) {
        write(w, 0, w->in[0]);
        return;
    }
    const enum dtype to = (enum dtype)result(w, 0)->dtype;
    const bool wide = at(w, w->in[0])->dtype == DTYPE_FP32 || at(w, w->in[1])->dtype == DTYPE_FP32;
    const enum dtype dtype = wide && (to == DTYPE_BF16 || to == DTYPE_FP16) ? DTYPE_FP32 : to;
    write(w, 0, element(w, JOINT_MUL, dtype, result(w, 0)->shape, w->in[0], w->in[1], 0));
}

/* x, y -> y += x: a new y. */
static enum err_code add_in_place(const struct works *w, struct err *err)
{
    uint32_t y;
    TRY(joint_operand(w->joint, result(w, 0), &y, err));
    joint_write(w->joint, result(w, 0), of_two(w, JOINT_ADD, y, w->in[0]));
    return ERR_OK;
}

/* x, y -> x + y in x */
static void add_to(const struct works *w)
{
    joint_write(w->joint, &w->kernel->operands[0], of_two(w, JOINT_ADD, w->in[0], w->in[1]));
}

static bool elementwise(const struct works *w)
{
    switch ((enum work_kind)w->kernel->work) {
    case WORK_ADD:
        two(w, JOINT_ADD);
        return true;
    case WORK_SUB:
        two(w, JOINT_SUB);
        return true;
    case WORK_MUL:
        product(w);
        return true;
    case WORK_ADD_NUMBER:
        number(w, JOINT_ADD);
        return true;
    case WORK_MUL_NUMBER:
        number(w, JOINT_MUL);
        return true;
    case WORK_DIV_NUMBER:
        number(w, JOINT_DIV);
        return true;
    case WORK_POW:
        number(w, JOINT_POW);
        return true;
    case WORK_POWER_OF:
        number(w, JOINT_EXP2);
        return true;
    case WORK_NEG:
        number(w, JOINT_NEG);
        return true;
    case WORK_RSQRT:
        number(w, JOINT_RSQRT);
        return true;
    case WORK_TANH:
        number(w, JOINT_TANH);
        return true;
    case WORK_EXPM1:
        number(w, JOINT_EXPM1);
        return true;
    case WORK_MINIMUM:
        two(w, JOINT_MINIMUM);
        return true;
    case WORK_CAST:
        write(w, 0, w->in[0]);
        return true;
    case WORK_REORDER:
        write(w, 0, of_one(w, JOINT_CLONE, stretched(w, w->in[0]), 0));
        return true;
    default:
        return false;
    }
}

/* ---- all of them ---- */

static bool whole(const struct works *w)
{
    switch ((enum work_kind)w->kernel->work) {
    case WORK_MATMUL_NT:
    case WORK_MATMUL_NT_BIAS:
        if (w->kernel->backward && !w->kernel->recomputed)
            product_of_input(w, false);
        else
            product_forward(w, true);
        return true;
    case WORK_MATMUL_NN_BIAS:
        product_forward(w, false);
        return true;
    case WORK_MATMUL_NN:
        product_of_input(w, true);
        return true;
    case WORK_MATMUL_TN:
        product_of_weight(w);
        return true;
    case WORK_ATTENTION:
        attention(w);
        return true;
    case WORK_ATTENTION_BACKWARD:
        attention_backward(w);
        return true;
    case WORK_EFFICIENT_ATTENTION:
        attention(w);
        return true;
    case WORK_EFFICIENT_ATTENTION_BACKWARD:
        if (w->kernel->outs > 3) /* a bias that is trained */
            return false;
        attention_backward(w);
        return true;
    case WORK_RMS_NORM:
        rms_norm(w);
        return true;
    case WORK_RMS_NORM_BACKWARD:
        rms_norm_backward(w);
        return true;
    case WORK_LAYER_NORM:
        layer_norm(w);
        return true;
    case WORK_LAYER_NORM_BACKWARD:
        layer_norm_backward(w);
        return true;
    default:
        return false;
    }
}

static bool fused(const struct works *w)
{
    switch ((enum work_kind)w->kernel->work) {
    case WORK_SILU:
        silu(w);
        return true;
    case WORK_SILU_BACKWARD:
        silu_backward(w);
        return true;
    case WORK_GELU:
        gelu(w);
        return true;
    case WORK_GELU_BACKWARD:
        gelu_backward(w);
        return true;
    case WORK_GELU_TANH:
        gelu_tanh(w);
        return true;
    case WORK_GELU_TANH_BACKWARD:
        gelu_tanh_backward(w);
        return true;
    case WORK_TANH_BACKWARD:
        tanh_backward(w);
        return true;
    case WORK_AT_MOST:
    case WORK_WITHIN:
        return limit(w);
    case WORK_SOFTPLUS:
        softplus(w);
        return true;
    case WORK_SOFTPLUS_BACKWARD:
        softplus_backward(w);
        return true;
    case WORK_DROPOUT:
        dropout(w);
        return true;
    case WORK_DROPOUT_BACKWARD:
        dropout_backward(w);
        return true;
    case WORK_RELU:
        write(w, 0, of_one(w, JOINT_AT_LEAST, w->in[0], 0));
        return true;
    case WORK_RELU_BACKWARD:
        relu_backward(w);
        return true;
    case WORK_REPEAT:
        repeat(w);
        return true;
    case WORK_SUM:
        sum(w);
        return true;
    case WORK_MEAN:
        write(w, 0, over_row(w, JOINT_MEAN, w->in[0]));
        return true;
    case WORK_CAT:
        join(w);
        return true;
    case WORK_SLICE_BACKWARD:
        slice_backward(w, 1);
        return true;
    case WORK_STRIDE_BACKWARD:
        slice_backward(w, w->kernel->attr.dim);
        return true;
    case WORK_INTERLEAVE:
        interleave(w);
        return true;
    case WORK_CONJUGATE:
        conjugate(w);
        return true;
    case WORK_POLAR: /* of eager PyTorch */
        joint_write(w->joint, result(w, 0),
                    call_of(w, JOINT_CALL_OWN, 2, w->in, result(w, 0)->shape));
        return true;
    default:
        return false;
    }
}

enum err_code joint_kernel(struct joint *joint, const struct kernel *kernel, uint32_t index,
                           struct err *err)
{
    struct works w = {.joint = joint, .kernel = kernel, .index = index};
    if (kernel->ins > JOINT_ARGS)
        return err_set(err, ERR_UNSUPPORTED, "--compile: a call of %u tensors is not planned",
                       kernel->ins);
    for (uint32_t i = 0; i < kernel->ins; i++)
        TRY(joint_operand(joint, &kernel->operands[i], &w.in[i], err));
    if (kernel->work == WORK_ADD_IN_PLACE)
        return add_in_place(&w, err);
    TRY(joint_check_experts(&w, err));
    if (kernel->work == WORK_ADD_TO)
        add_to(&w);
    else if (!joint_by_index(&w) && !joint_mask(&w) && !whole(&w) && !fused(&w) &&
             !elementwise(&w) && !joint_loss(&w) && !joint_weights(&w) && !joint_experts(&w) &&
             !joint_float8(joint, kernel, index, w.in))
        return err_set(err, ERR_UNSUPPORTED, "--compile: what Inductor makes of %s is not planned",
                       work_name((enum work_kind)kernel->work));
    return ERR_OK;
}
