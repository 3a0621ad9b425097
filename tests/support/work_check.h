/* work_check.h - operands for the tests of kernels, and a second, slower way to read them.
 *
 * Operands own exactly the memory that they span, so that a checker of addresses sees a kernel
 * leave it; drop_all frees them. `decode` is arithmetic on the definition of a format, apart from
 * the conversions under test. */
#ifndef SHARDPLAN_WORK_CHECK_H
#define SHARDPLAN_WORK_CHECK_H

#include "tests/support/backends.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline uint32_t noise(uint32_t x)
{
    x = (x ^ x >> 16) * 0x45d9f3bU + 0x9e3779b9U;
    x = (x ^ x >> 15) * 0x2c1b3c6dU;
    return x ^ x >> 16;
}

/* ---- formats ---- */

/* A loop over the storage dtypes, with `dtype`. */
#define FOR_DTYPES()                                                                               \
    for (enum dtype dtype = DTYPE_FP32; dtype <= DTYPE_FP16; dtype = (enum dtype)(dtype + 1))

static inline double decode(enum dtype dtype, uint16_t bits)
{
    const int fraction = dtype == DTYPE_BF16 ? 7 : 10, top = dtype == DTYPE_BF16 ? 255 : 31;
    const int exponent = bits >> fraction & top, mantissa = bits & ((1 << fraction) - 1);
    const double sign = bits >> 15 ? -1 : 1;
    if (exponent == top)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - top / 2 - fraction);
    return sign * ldexp(mantissa + (1 << fraction), exponent - top / 2 - fraction);
}

/* Half a unit in the last place, relative. */
static inline double half_unit(enum dtype dtype)
{
    return dtype == DTYPE_FP32 ? 0x1p-24 : dtype == DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
}

/* Where element i is in memory, in elements: rows of the last dim, or of the last two of four,
 * begin every `pitch`. */
static inline uint64_t place(const struct work_operand *x, uint64_t i)
{
    if (!x->pitch)
        return i;
    const uint32_t *dim = x->shape.dim, rank = x->shape.rank;
    const uint64_t width = rank == 4 ? (uint64_t)dim[2] * dim[3] : dim[rank - 1];
    return i / width * x->pitch + i % width;
}

static inline double value(const struct work_operand *x, uint64_t i)
{
    if (x->dtype == DTYPE_FP32)
        return (double)((const float *)x->data)[place(x, i)];
    return decode((enum dtype)x->dtype, ((const uint16_t *)x->data)[place(x, i)]);
}

/* Sets element i to a number that the dtype holds (the low bits of others are cut off), or NaN. */
static inline void put(const struct work_operand *x, uint64_t i, double number)
{
    uint16_t *half = (uint16_t *)x->data + place(x, i);
    if (x->dtype == DTYPE_FP32) {
        ((float *)x->data)[place(x, i)] = (float)number;
        return;
    }
    const int fraction = x->dtype == DTYPE_BF16 ? 7 : 10, bias = x->dtype == DTYPE_BF16 ? 127 : 15;
    int exponent = 0;
    const double part = frexp(fabs(number), &exponent);
    if (isnan(number))
        *half = 0x7fff;
    else if (part <= 0 || exponent - 1 < 1 - bias)
        *half = 0;
    else
        *half = (uint16_t)((exponent - 1 + bias) << fraction |
                           ((int)ldexp(part, fraction + 1) & ((1 << fraction) - 1)) |
                           (number < 0) << 15);
}

/* ---- operands ---- */

static inline struct work_operand pitched(enum dtype dtype, struct shape shape, uint32_t pitch)
{
    struct work_operand x = {.shape = shape, .pitch = pitch, .dtype = (uint8_t)dtype};
    const uint64_t count = shape_elements(&shape);
    const uint64_t span = count ? place(&x, count - 1) + 1 : 0;
    x.data = malloc(span * dtype_bytes(dtype) + 1); /* +1: never NULL */
    assert_non_null(x.data);
    memset(x.data, 0xff, span * dtype_bytes(dtype)); /* NaN between the rows */
    static uint32_t seed;
    for (uint64_t i = 0; i < count; i++)
        put(&x, i, noise(seed++) / 2147483648.0 - 1);
    return x;
}

/* Numbers in [-1, 1). */
static inline struct work_operand filled(enum dtype dtype, struct shape shape)
{
    return pitched(dtype, shape, 0);
}

static inline struct work_operand zeros(enum dtype dtype, struct shape shape)
{
    const struct work_operand x = pitched(dtype, shape, 0);
    memset(x.data, 0, shape_bytes(&shape, dtype));
    return x;
}

/* To be written: NaN. */
static inline struct work_operand empty(enum dtype dtype, struct shape shape)
{
    const struct work_operand x = pitched(dtype, shape, 0);
    memset(x.data, 0xff, shape_bytes(&shape, dtype));
    return x;
}

static inline void drop_all(uint32_t count, const struct work_operand *operand)
{
    for (uint32_t i = 0; i < count; i++)
        free(operand[i].data);
}

static inline double dot(const struct work_operand *x, uint64_t from_x, uint64_t step_x,
                         const struct work_operand *y, uint64_t from_y, uint64_t step_y, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += value(x, from_x + i * step_x) * value(y, from_y + i * step_y);
    return sum;
}

/* ---- running and comparing ---- */

static inline void run_work(const struct work *work)
{
    struct err err = {0};
    if (run_on_backend(work, &err) != ERR_OK)
        fail_msg("%s", err.text);
}

static inline void run_ranked(enum work_kind kind, uint32_t rank, uint32_t ranks, uint32_t ins,
                              uint32_t outs, const struct work_operand *operand)
{
    const struct work work = {
        .kind = kind, .ins = ins, .outs = outs, .operand = operand, .rank = rank, .ranks = ranks};
    run_work(&work);
}

static inline void run_kind(enum work_kind kind, uint32_t ins, uint32_t outs,
                            const struct work_operand *operand)
{
    run_ranked(kind, 0, 1, ins, outs, operand);
}

static inline void expect_refusal(enum err_code code, enum work_kind kind, uint32_t ins,
                                  uint32_t outs, const struct work_operand *operand)
{
    const struct work work = {.kind = kind,
                              .instruction = 4711,
                              .ins = ins,
                              .outs = outs,
                              .operand = operand,
                              .ranks = 3};
    struct err err = {0};
    assert_int_equal(run_on_backend(&work, &err), code);
    assert_non_null(strstr(err.text, "instruction 4711"));
    assert_non_null(strstr(err.text, work_name(kind)));
}

/* Rounded once to its dtype, from a result that is off by `units` fp32 roundings of numbers
 * around 1 (or its own size, when larger). 0: exactly. */
static inline void close_to(const struct work_operand *x, uint64_t i, double wanted, double units)
{
    const double got = value(x, i), size = fmax(fabs(wanted), 1);
    double room = units * 0x1p-23 * size;
    if (units > 0)
        room += half_unit((enum dtype)x->dtype) * 1.01 * fabs(wanted) +
                (x->dtype == DTYPE_FP16 ? 0x1p-25 : 0);
    if (!(fabs(got - wanted) <= room))
        fail_msg("element %llu (%s) is %.9g instead of %.9g", (unsigned long long)i,
                 dtype_brief((enum dtype)x->dtype), got, wanted);
}

#endif
