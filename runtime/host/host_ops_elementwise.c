/* host_ops_elementwise.c - kernels that see one element of each operand at a time.
 *
 * Each goes through its operands in blocks on the stack: load as fp32, compute, store. Comparisons
 * are written so that a NaN takes the branch that keeps it. */
#include "runtime/host/host_ops_internal.h"

#include <math.h>
#include <string.h>

static const float root_half = 0.7071067812F, root_two_pi = 2.506628275F;

/* ---- y = f(x) ---- */

static void same(uint64_t n, const float *x, float *y)
{
    memcpy(y, x, n * sizeof *y);
}

static void silu(uint64_t n, const float *x, float *y)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] = x[i] / (1 + expf(-x[i]));
}

/* x times the share of a normal distribution that is below x */
static void gelu(uint64_t n, const float *x, float *y)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] = 0.5F * x[i] * (1 + erff(x[i] * root_half));
}

/* 0.5x(1 + tanh(u)), u = sqrt(2/pi)(x + 0.044715x^3) */
static const float gelu_root = 0.7978845608F, gelu_cube = 0.044715F;

static void gelu_tanh(uint64_t n, const float *x, float *y)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] = 0.5F * x[i] * (1 + tanhf(gelu_root * (x[i] + gelu_cube * x[i] * x[i] * x[i])));
}

static void relu(uint64_t n, const float *x, float *y)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] = x[i] < 0 ? 0 : x[i];
}

static void square(uint64_t n, const float *x, float *y)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] = x[i] * x[i];
}

static void square_root(uint64_t n, const float *x, float *y)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] = sqrtf(x[i]);
}

void host_unary(const struct work *work)
{
    static void (*const functions[WORK_KIND_COUNT])(uint64_t, const float *, float *) = {
        [WORK_CAST] = same,
        [WORK_SILU] = silu,
        [WORK_GELU] = gelu,
        [WORK_GELU_TANH] = gelu_tanh,
        [WORK_RELU] = relu,
        [WORK_SQUARE] = square,
        [WORK_SQUARE_ROOT] = square_root,
    };
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const uint64_t count = operand_count(y);
    float in[HOST_BLOCK], out[HOST_BLOCK];
    for (uint64_t i = 0, n; i < count; i += n) {
        n = host_block(i, count);
        host_load(x, i, n, in);
        functions[work->kind](n, in, out);
        host_store(y, i, n, out);
    }
}

void host_mul_number(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const uint64_t count = operand_count(y);
    float block[HOST_BLOCK];
    for (uint64_t i = 0, n; i < count; i += n) {
        n = host_block(i, count);
        host_load(x, i, n, block);
        for (uint64_t j = 0; j < n; j++)
            block[j] *= work->attr.p;
        host_store(y, i, n, block);
    }
}

/* ---- dx = dy f'(x): the block of dy becomes that of dx ---- */

static void silu_slope(uint64_t n, float *dy, const float *x)
{
    for (uint64_t i = 0; i < n; i++) {
        const float sigmoid = 1 / (1 + expf(-x[i]));
        dy[i] *= sigmoid * (1 + x[i] * (1 - sigmoid));
    }
}

static void gelu_slope(uint64_t n, float *dy, const float *x)
{
    for (uint64_t i = 0; i < n; i++) {
        const float share = 0.5F * (1 + erff(x[i] * root_half));
        dy[i] *= share + x[i] * expf(-0.5F * x[i] * x[i]) / root_two_pi;
    }
}

static void gelu_tanh_slope(uint64_t n, float *dy, const float *x)
{
    for (uint64_t i = 0; i < n; i++) {
        const float squared = x[i] * x[i];
        const float tanh_u = tanhf(gelu_root * (x[i] + gelu_cube * squared * x[i]));
        const float u_slope = gelu_root * (1 + 3 * gelu_cube * squared);
        dy[i] *= 0.5F * (1 + tanh_u) + 0.5F * x[i] * (1 - tanh_u * tanh_u) * u_slope;
    }
}

static void relu_slope(uint64_t n, float *dy, const float *y)
{
    for (uint64_t i = 0; i < n; i++)
        dy[i] = y[i] <= 0 ? 0 : dy[i];
}

void host_slope(const struct work *work)
{
    static void (*const functions[WORK_KIND_COUNT])(uint64_t, float *, const float *) = {
        [WORK_SILU_BACKWARD] = silu_slope,
        [WORK_GELU_BACKWARD] = gelu_slope,
        [WORK_GELU_TANH_BACKWARD] = gelu_tanh_slope,
        [WORK_RELU_BACKWARD] = relu_slope,
    };
    const struct work_operand *dy = work_in(work, 0), *x = work_in(work, 1);
    const struct work_operand *dx = work_out(work, 0);
    const uint64_t count = operand_count(dx);
    float gradient[HOST_BLOCK], in[HOST_BLOCK];
    for (uint64_t i = 0, n; i < count; i += n) {
        n = host_block(i, count);
        host_load(dy, i, n, gradient);
        host_load(x, i, n, in);
        functions[work->kind](n, gradient, in);
        host_store(dx, i, n, gradient);
    }
}

/* ---- z = x ∘ y with broadcasting ---- */

static void combine(enum work_kind kind, uint64_t n, float *x, const float *y)
{
    if (kind == WORK_MUL)
        for (uint64_t i = 0; i < n; i++)
            x[i] *= y[i];
    else
        for (uint64_t i = 0; i < n; i++)
            x[i] += y[i];
}

static void combine_flat(const struct work *work)
{
    const struct work_operand *z = work_out(work, 0);
    const uint64_t count = operand_count(z);
    float left[HOST_BLOCK], right[HOST_BLOCK];
    for (uint64_t i = 0, n; i < count; i += n) {
        n = host_block(i, count);
        host_load(work_in(work, 0), i, n, left);
        host_load(work_in(work, 1), i, n, right);
        combine(work->kind, n, left, right);
        host_store(z, i, n, left);
    }
}

/* A part of one row of z from an operand that has the row from `at`, or only its one element. */
static void load_spread(const struct work_operand *x, uint64_t at, uint64_t step, uint64_t column,
                        uint64_t n, float *out)
{
    if (step) {
        host_load(x, at + column, n, out);
        return;
    }
    const float value = host_load_one(x, at);
    for (uint64_t i = 0; i < n; i++)
        out[i] = value;
}

static void combine_spread(const struct work *work, const uint64_t x_stride[SHAPE_DIMS],
                           const uint64_t y_stride[SHAPE_DIMS])
{
    const struct work_operand *x = work_in(work, 0), *y = work_in(work, 1), *z = work_out(work, 0);
    const uint64_t rows = operand_rows(z), last = operand_last(z);
    const uint32_t inner = z->shape.rank ? z->shape.rank - 1 : 0;
    float left[HOST_BLOCK], right[HOST_BLOCK];
    for (uint64_t row = 0; row < rows; row++) {
        const uint64_t x_at = host_spread_row(&z->shape, x_stride, row);
        const uint64_t y_at = host_spread_row(&z->shape, y_stride, row);
        for (uint64_t i = 0, n; i < last; i += n) {
            n = host_block(i, last);
            load_spread(x, x_at, x_stride[inner], i, n, left);
            load_spread(y, y_at, y_stride[inner], i, n, right);
            combine(work->kind, n, left, right);
            host_store(z, row * last + i, n, left);
        }
    }
}

/* (a + bi)(c + di); complex elements are pairs of floats. */
static void multiply_complex(const struct work *work, const uint64_t x_stride[SHAPE_DIMS],
                             const uint64_t y_stride[SHAPE_DIMS])
{
    const struct work_operand *z = work_out(work, 0);
    const uint64_t rows = operand_rows(z), last = operand_last(z);
    const uint32_t inner = z->shape.rank ? z->shape.rank - 1 : 0;
    for (uint64_t row = 0; row < rows; row++) {
        const float *x =
            (const float *)work_in(work, 0)->data + 2 * host_spread_row(&z->shape, x_stride, row);
        const float *y =
            (const float *)work_in(work, 1)->data + 2 * host_spread_row(&z->shape, y_stride, row);
        float *out = (float *)z->data + 2 * row * last;
        for (uint64_t i = 0; i < last; i++) {
            const float a = x[0], b = x[1], c = y[0], d = y[1];
            out[2 * i] = a * c - b * d;
            out[2 * i + 1] = a * d + b * c;
            x += 2 * x_stride[inner];
            y += 2 * y_stride[inner];
        }
    }
}

void host_broadcast(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0), *y = work_in(work, 1), *z = work_out(work, 0);
    uint64_t x_stride[SHAPE_DIMS], y_stride[SHAPE_DIMS];
    shape_spread(&x->shape, &z->shape, x_stride);
    shape_spread(&y->shape, &z->shape, y_stride);
    if (operand_is_complex(x) && operand_is_complex(y) && operand_is_complex(z) &&
        work->kind == WORK_MUL) {
        multiply_complex(work, x_stride, y_stride);
        return;
    }
    if (operand_same_shape(x, z) && operand_same_shape(y, z))
        combine_flat(work);
    else
        combine_spread(work, x_stride, y_stride);
}

void host_add_in_place(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const uint64_t count = operand_count(y);
    float more[HOST_BLOCK], sum[HOST_BLOCK];
    for (uint64_t i = 0, n; i < count; i += n) {
        n = host_block(i, count);
        host_load(y, i, n, sum);
        host_load(x, i, n, more);
        combine(WORK_ADD, n, sum, more);
        host_store(y, i, n, sum);
    }
}

void host_conjugate(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const float *in = x->data;
    float *out = y->data;
    for (uint64_t i = 0; i < operand_count(x); i++) {
        out[2 * i] = in[2 * i];
        out[2 * i + 1] = -in[2 * i + 1];
    }
}

/* ---- constants ---- */

void host_arange(const struct work *work)
{
    const struct work_operand *ids = work_out(work, 0);
    for (uint64_t i = 0; i < operand_count(ids); i++) {
        if (ids->dtype == DTYPE_INT64)
            ((int64_t *)ids->data)[i] = (int64_t)i;
        else
            ((int32_t *)ids->data)[i] = (int32_t)i;
    }
}

void host_fill(const struct work *work)
{
    const struct work_operand *y = work_out(work, 0);
    for (uint64_t i = 0; i < operand_count(y); i++)
        host_store_one(y, i, work->attr.p);
}
