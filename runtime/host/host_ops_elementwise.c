/* host_ops_elementwise.c - kernels that see one element of each operand at a time.
 *
 * One walk for all of them: operands are stretched to the result's shape and gone through in blocks
 * on the stack: load as fp32, compute, store. A kernel is a row of the table, with the function of
 * a block. Comparisons are written so that a NaN takes the branch that keeps it. */
#include "runtime/host/host_ops_internal.h"

#include <math.h>
#include <string.h>

enum { MOST_OPERANDS = 3 };

/* `in`: the operands' blocks of n elements, `p` is attr.p. */
typedef void block_function(uint64_t n, float p, float (*in)[HOST_BLOCK], float *out);

#define EACH(name, expression)                                                                     \
    static void name(uint64_t n, float p, float(*in)[HOST_BLOCK], float *out)                      \
    {                                                                                              \
        (void)p;                                                                                   \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            const float x = in[0][i];                                                              \
            out[i] = (expression);                                                                 \
        }                                                                                          \
    }
#define EACH_OF_TWO(name, expression)                                                              \
    static void name(uint64_t n, float p, float(*in)[HOST_BLOCK], float *out)                      \
    {                                                                                              \
        (void)p;                                                                                   \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            const float x = in[0][i], y = in[1][i];                                                \
            out[i] = (expression);                                                                 \
        }                                                                                          \
    }
#define EACH_OF_THREE(name, expression)                                                            \
    static void name(uint64_t n, float p, float(*in)[HOST_BLOCK], float *out)                      \
    {                                                                                              \
        (void)p;                                                                                   \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            const float x = in[0][i], y = in[1][i], z = in[2][i];                                  \
            out[i] = (expression);                                                                 \
        }                                                                                          \
    }
/* A truth as a number. */
#define TRUTH(condition) ((condition) ? 1.0F : 0.0F)

/* ---- arithmetic ---- */

EACH(same, x)
EACH_OF_TWO(add, x + y)
EACH(add_number, x + p)
EACH_OF_TWO(sub, x - y)
EACH_OF_TWO(mul, x *y)
EACH(mul_number, x *p)
EACH_OF_TWO(divide, x / y)
EACH(div_number, x / p)
EACH(floor_div_number, floorf(x / p))
EACH_OF_TWO(minimum, x > y ? y : x)
EACH_OF_THREE(clamp, x<y ? y : x> z ? z : x)
EACH(at_most, x > p ? p : x)
EACH(at_least, x < p ? p : x)
EACH(within, x<-p ? -p : x> p ? p : x)
EACH(neg, -x)
EACH(absolute, fabsf(x))
EACH(square, x *x)
EACH(square_root, sqrtf(x))
EACH(rsqrt, 1 / sqrtf(x))
EACH(logarithm, logf(p + x))
EACH(cosine, cosf(x))
EACH(sine, sinf(x))

EACH(power_of, powf(p, x))

/* Small whole exponents are products, as PyTorch computes them. */
static void power(uint64_t n, float p, float (*in)[HOST_BLOCK], float *out)
{
    const int whole = p >= 0 && p <= 3 ? (int)p : -1;
    const bool is_whole = whole >= 0 && !((float)whole < p);
    for (uint64_t i = 0; i < n; i++) {
        const float x = in[0][i];
        if (!is_whole)
            out[i] = powf(x, p);
        else
            out[i] = whole == 0 ? 1 : whole == 1 ? x : whole == 2 ? x * x : x * x * x;
    }
}

/* ---- true or false ---- */

EACH_OF_TWO(equal, TRUTH(!(x < y) && !(x > y) && !isnan(x) && !isnan(y)))
EACH(equal_number, TRUTH(!(x < p) && !(x > p) && !isnan(x)))
EACH(not_equal_number, TRUTH(x<p || x> p || isnan(x)))
EACH_OF_TWO(less, TRUTH(x < y))
EACH(less_number, TRUTH(x < p))
EACH_OF_TWO(less_equal, TRUTH(x <= y))
EACH_OF_TWO(greater, TRUTH(x > y))
EACH(greater_number, TRUTH(x > p))
EACH_OF_TWO(greater_equal, TRUTH(x >= y))
EACH_OF_TWO(both, TRUTH(fabsf(x) > 0 && fabsf(y) > 0))
EACH_OF_TWO(either, TRUTH(fabsf(x) > 0 || fabsf(y) > 0))
EACH(is_infinite, TRUTH(isinf(x)))
EACH_OF_THREE(where, fabsf(x) > 0 ? y : z)
EACH_OF_TWO(masked_fill, fabsf(y) > 0 ? p : x)

/* ---- activations ---- */

static const float root_half = 0.7071067812F, root_two_pi = 2.506628275F;

EACH(tangent, tanhf(x))
EACH(sigmoid, 1 / (1 + expf(-x)))

void host_silu(uint64_t n, const float *x, float *y)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] = x[i] / (1 + expf(-x[i]));
}

static void silu(uint64_t n, float p, float (*in)[HOST_BLOCK], float *out)
{
    (void)p;
    host_silu(n, in[0], out);
}

/* x times the share of a normal distribution that is below x */
EACH(gelu, 0.5F * x * (1 + erff(x * root_half)))
/* 0.5x(1 + tanh(u)), u = sqrt(2/pi)(x + 0.044715x^3) */
static const float gelu_root = 0.7978845608F, gelu_cube = 0.044715F;
EACH(gelu_tanh, 0.5F * x * (1 + tanhf(gelu_root * (x + gelu_cube * x * x * x))))
EACH(relu, x < 0 ? 0 : x)
/* beyond 20 it is x to the last bit, as PyTorch has it */
EACH(softplus, x > 20 ? x : log1pf(expf(x)))
EACH(exp_less_one, expm1f(x))

/* ---- dx from dy, and x or y ---- */

EACH_OF_TWO(tangent_slope, x *(1 - y * y))
EACH_OF_TWO(sigmoid_slope, x *y *(1 - y))
EACH_OF_TWO(relu_slope, y <= 0 ? 0 : x)
EACH_OF_TWO(softplus_slope, y > 20 ? x : x / (1 + expf(-y)))

static void silu_slope(uint64_t n, float p, float (*in)[HOST_BLOCK], float *out)
{
    (void)p;
    for (uint64_t i = 0; i < n; i++) {
        const float x = in[1][i], share = 1 / (1 + expf(-x));
        out[i] = in[0][i] * (share * (1 + x * (1 - share)));
    }
}

static void gelu_slope(uint64_t n, float p, float (*in)[HOST_BLOCK], float *out)
{
    (void)p;
    for (uint64_t i = 0; i < n; i++) {
        const float x = in[1][i], share = 0.5F * (1 + erff(x * root_half));
        out[i] = in[0][i] * (share + x * expf(-0.5F * x * x) / root_two_pi);
    }
}

static void gelu_tanh_slope(uint64_t n, float p, float (*in)[HOST_BLOCK], float *out)
{
    (void)p;
    for (uint64_t i = 0; i < n; i++) {
        const float x = in[1][i], squared = x * x;
        const float tanh_u = tanhf(gelu_root * (x + gelu_cube * squared * x));
        const float u_slope = gelu_root * (1 + 3 * gelu_cube * squared);
        out[i] = in[0][i] * (0.5F * (1 + tanh_u) + 0.5F * x * (1 - tanh_u * tanh_u) * u_slope);
    }
}

/* ---- the walk ---- */

static const struct {
    block_function *function;
    uint8_t operands;
} table[WORK_KIND_COUNT] = {
    [WORK_ADD] = {add, 2},
    [WORK_ADD_NUMBER] = {add_number, 1},
    [WORK_ADD_IN_PLACE] = {add, 2},
    [WORK_SUB] = {sub, 2},
    [WORK_ADD_TO] = {add, 2},
    [WORK_MUL] = {mul, 2},
    [WORK_MUL_NUMBER] = {mul_number, 1},
    [WORK_DIV] = {divide, 2},
    [WORK_DIV_NUMBER] = {div_number, 1},
    [WORK_DIV_IN_PLACE] = {divide, 2},
    [WORK_FLOOR_DIV_NUMBER] = {floor_div_number, 1},
    [WORK_MINIMUM] = {minimum, 2},
    [WORK_CLAMP] = {clamp, 3},
    [WORK_AT_MOST] = {at_most, 1},
    [WORK_AT_LEAST] = {at_least, 1},
    [WORK_WITHIN] = {within, 1},
    [WORK_NEG] = {neg, 1},
    [WORK_ABS] = {absolute, 1},
    [WORK_POW] = {power, 1},
    [WORK_POWER_OF] = {power_of, 1},
    [WORK_SQUARE] = {square, 1},
    [WORK_SQUARE_ROOT] = {square_root, 1},
    [WORK_RSQRT] = {rsqrt, 1},
    [WORK_LOG] = {logarithm, 1},
    [WORK_COS] = {cosine, 1},
    [WORK_SIN] = {sine, 1},
    [WORK_TANH] = {tangent, 1},
    [WORK_TANH_BACKWARD] = {tangent_slope, 2},
    [WORK_CAST] = {same, 1},
    [WORK_REORDER] = {same, 1},
    [WORK_EQUAL] = {equal, 2},
    [WORK_EQUAL_NUMBER] = {equal_number, 1},
    [WORK_NOT_EQUAL_NUMBER] = {not_equal_number, 1},
    [WORK_LESS] = {less, 2},
    [WORK_LESS_NUMBER] = {less_number, 1},
    [WORK_LESS_EQUAL] = {less_equal, 2},
    [WORK_GREATER] = {greater, 2},
    [WORK_GREATER_NUMBER] = {greater_number, 1},
    [WORK_GREATER_EQUAL] = {greater_equal, 2},
    [WORK_AND] = {both, 2},
    [WORK_OR] = {either, 2},
    [WORK_IS_INFINITE] = {is_infinite, 1},
    [WORK_WHERE] = {where, 3},
    [WORK_MASKED_FILL] = {masked_fill, 2},
    [WORK_SIGMOID] = {sigmoid, 1},
    [WORK_SIGMOID_BACKWARD] = {sigmoid_slope, 2},
    [WORK_SILU] = {silu, 1},
    [WORK_SILU_BACKWARD] = {silu_slope, 2},
    [WORK_GELU] = {gelu, 1},
    [WORK_GELU_BACKWARD] = {gelu_slope, 2},
    [WORK_GELU_TANH] = {gelu_tanh, 1},
    [WORK_GELU_TANH_BACKWARD] = {gelu_tanh_slope, 2},
    [WORK_RELU] = {relu, 1},
    [WORK_RELU_BACKWARD] = {relu_slope, 2},
    [WORK_SOFTPLUS] = {softplus, 1},
    [WORK_SOFTPLUS_BACKWARD] = {softplus_slope, 2},
    [WORK_EXPM1] = {exp_less_one, 1},
};

void host_elementwise(const struct work *work)
{
    const struct work_operand *z = work_out(work, 0);
    const struct work_operand *before = work->kind == WORK_DIV_IN_PLACE ? work_out(work, 1) : NULL;
    const uint64_t count = operand_count(z);
    const uint32_t operands = table[work->kind].operands;
    struct work_operand x[MOST_OPERANDS];
    struct strides room[MOST_OPERANDS];
    float in[MOST_OPERANDS][HOST_BLOCK], out[HOST_BLOCK];
    for (uint32_t i = 0; i < operands; i++) /* y += x reads y, too */
        x[i] = host_spread(i < work->ins ? work_in(work, i) : z, &z->shape, &room[i]);
    for (uint64_t i = 0, n; i < count; i += n) {
        n = host_block(i, count);
        for (uint32_t o = 0; o < operands; o++)
            host_load(&x[o], i, n, in[o]);
        table[work->kind].function(n, work->attr.p, in, out);
        if (before)
            host_store(before, i, n, in[0]);
        host_store(z, i, n, out);
    }
}

/* ---- complex numbers: pairs of floats ---- */

static float *pair_at(const struct work_operand *x, uint64_t i)
{
    return (float *)x->data + 2 * host_place(x, i);
}

/* (a + bi)(c + di) */
static void multiply_complex(const struct work *work)
{
    const struct work_operand *z = work_out(work, 0);
    struct strides room[2];
    const struct work_operand left = host_spread(work_in(work, 0), &z->shape, &room[0]);
    const struct work_operand right = host_spread(work_in(work, 1), &z->shape, &room[1]);
    for (uint64_t i = 0; i < operand_count(z); i++) {
        const float *x = pair_at(&left, i), *y = pair_at(&right, i);
        const float a = x[0], b = x[1], c = y[0], d = y[1];
        float *out = pair_at(z, i);
        out[0] = a * c - b * d;
        out[1] = a * d + b * c;
    }
}

void host_multiply(const struct work *work)
{
    const struct work_operand *z = work_out(work, 0);
    if (z->dtype != DTYPE_COMPLEX64) {
        host_elementwise(work);
        return;
    }
    if (work->kind == WORK_MUL) {
        multiply_complex(work);
        return;
    }
    for (uint64_t i = 0; i < operand_count(z); i++) /* by a number */
        for (uint32_t part = 0; part < 2; part++)
            pair_at(z, i)[part] = pair_at(work_in(work, 0), i)[part] * work->attr.p;
}

void host_polar(const struct work *work)
{
    const struct work_operand *z = work_out(work, 0);
    for (uint64_t i = 0; i < operand_count(z); i++) {
        const float size = host_load_one(work_in(work, 0), i);
        const float angle = host_load_one(work_in(work, 1), i);
        pair_at(z, i)[0] = size * cosf(angle);
        pair_at(z, i)[1] = size * sinf(angle);
    }
}

void host_conjugate(const struct work *work)
{
    const struct work_operand *y = work_out(work, 0);
    for (uint64_t i = 0; i < operand_count(y); i++) {
        const float *x = pair_at(work_in(work, 0), i);
        float *out = pair_at(y, i);
        out[0] = x[0];
        out[1] = -x[1];
    }
}

/* ---- constants ---- */

void host_arange(const struct work *work)
{
    const struct work_operand *ids = work_out(work, 0);
    for (uint64_t i = 0; i < operand_count(ids); i++) {
        if (ids->dtype == DTYPE_INT64)
            ((int64_t *)ids->data)[i] = (int64_t)(work->attr.first + i);
        else
            ((int32_t *)ids->data)[i] = (int32_t)(work->attr.first + i);
    }
}

void host_fill(const struct work *work)
{
    const struct work_operand *y = work_out(work, 0);
    const uint64_t count = operand_count(y);
    float block[HOST_BLOCK];
    for (uint64_t i = 0; i < HOST_BLOCK; i++)
        block[i] = work->kind == WORK_FILL_LOWEST ? -INFINITY : work->attr.p;
    for (uint64_t i = 0, n; i < count; i += n) {
        n = host_block(i, count);
        host_store(y, i, n, block);
    }
}
