/* host_ops_tensor.c - how kernels reach operands (host_ops_internal.h). */
#include "base/layout.h"
#include "runtime/host/host_ops_internal.h"
#include "runtime/work/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- elements `step` apart ---- */

/* Of a dtype whose numbers C converts by itself. */
#define LOAD(type)                                                                                 \
    for (uint64_t i = 0; i < count; i++)                                                           \
    out[i] = (float)((const type *)x->data)[at + i * step]
#define STORE(type, convert)                                                                       \
    for (uint64_t i = 0; i < count; i++)                                                           \
    ((type *)y->data)[at + i * step] = (type)convert(in[i])
#define AS_IT_IS(number) (number)
/* What is beyond all integers, or no number, is as on x86 the lowest. */
#define WHOLE(number) (fabsf(number) < 0x1p31F ? (number) : -0x1p31F)
#define IS_TRUE(number) ((number) != 0)

static void load_run(const struct work_operand *x, uint64_t at, uint64_t step, uint64_t count,
                     float *out)
{
    if (!count)
        return;
    const uint16_t *halves = (const uint16_t *)x->data + at;
    switch (x->dtype) {
    case DTYPE_FP32:
        if (step == 1)
            memcpy(out, (const float *)x->data + at, count * sizeof *out);
        else
            LOAD(float);
        break;
    case DTYPE_BF16:
        for (uint64_t i = 0; step == 1 && i < count; i++)
            out[i] = float_from_bf16(halves[i]);
        for (uint64_t i = 0; step != 1 && i < count; i++)
            out[i] = float_from_bf16(halves[i * step]);
        break;
    case DTYPE_FP16:
        for (uint64_t i = 0; i < count; i++)
            out[i] = float_from_fp16(halves[i * step]);
        break;
    case DTYPE_INT64:
        LOAD(int64_t);
        break;
    case DTYPE_INT32:
        LOAD(int32_t);
        break;
    default: /* bool: work_check lets no other through */
        LOAD(uint8_t);
        break;
    }
}

static void store_run(const struct work_operand *y, uint64_t at, uint64_t step, uint64_t count,
                      const float *in)
{
    if (!count)
        return;
    uint16_t *halves = (uint16_t *)y->data + at;
    switch (y->dtype) {
    case DTYPE_FP32:
        if (step == 1)
            memcpy((float *)y->data + at, in, count * sizeof *in);
        else
            STORE(float, AS_IT_IS);
        break;
    case DTYPE_BF16:
        for (uint64_t i = 0; step == 1 && i < count; i++)
            halves[i] = bf16_from_float(in[i]);
        for (uint64_t i = 0; step != 1 && i < count; i++)
            halves[i * step] = bf16_from_float(in[i]);
        break;
    case DTYPE_FP16:
        for (uint64_t i = 0; i < count; i++)
            halves[i * step] = fp16_from_float(in[i]);
        break;
    case DTYPE_INT64:
        STORE(int64_t, WHOLE);
        break;
    case DTYPE_INT32:
        STORE(int32_t, WHOLE);
        break;
    default:
        STORE(uint8_t, IS_TRUE);
        break;
    }
}

/* ---- lists of elements ---- */

/* A stretch of an operand's list whose elements lie at equal distances: from element `at` of its
 * memory on, `step` apart, `count` of them at the most. */
struct run {
    uint64_t at, step, count;
};

static struct run run_from(const struct work_operand *x, uint64_t first)
{
    if (!x->pitch && !x->layout)
        return (struct run){first, 1, UINT64_MAX};
    if (!x->layout) {
        const uint64_t width = operand_row_width(x), column = first % width;
        return (struct run){first / width * x->pitch + column, 1, width - column};
    }
    const uint32_t rank = x->shape.rank;
    const uint64_t last = operand_last(x), column = first % last;
    struct run run = {0, rank ? x->layout->of[rank - 1] : 1, last - column};
    run.at = column * run.step;
    first /= last;
    for (uint32_t i = rank ? rank - 1 : 0; i-- > 0; first /= x->shape.dim[i])
        run.at += first % x->shape.dim[i] * x->layout->of[i];
    return run;
}

/* A list row by row: what run_from finds by dividing, for the next rows by counting. Lists of views
 * have rows of a few elements. */
struct rows {
    const struct work_operand *x;
    struct run run;             /* what is left of the row */
    uint64_t start;             /* of a layout: where the row begins */
    uint64_t index[SHAPE_DIMS]; /* ... and its place in each dimension before the last */
};

/* `run` is what run_from has for element `first`. */
static struct rows rows_from(const struct work_operand *x, uint64_t first, struct run run)
{
    struct rows rows = {.x = x, .run = run};
    if (!x->layout)
        return rows;
    uint64_t row = first / operand_last(x);
    for (uint32_t i = x->shape.rank ? x->shape.rank - 1 : 0; i-- > 0; row /= x->shape.dim[i]) {
        rows.index[i] = row % x->shape.dim[i];
        rows.start += rows.index[i] * x->layout->of[i];
    }
    return rows;
}

static void next_row(struct rows *rows)
{
    const struct work_operand *x = rows->x;
    if (!x->layout) {
        const uint64_t width = operand_row_width(x);
        rows->run = (struct run){rows->run.at + rows->run.count + x->pitch - width, 1, width};
        return;
    }
    for (uint32_t i = x->shape.rank ? x->shape.rank - 1 : 0; i-- > 0;) {
        rows->start += x->layout->of[i];
        if (++rows->index[i] < x->shape.dim[i])
            break;
        rows->start -= x->shape.dim[i] * x->layout->of[i];
        rows->index[i] = 0;
    }
    rows->run = (struct run){rows->start, rows->run.step, operand_last(x)};
}

void host_load(const struct work_operand *x, uint64_t first, uint64_t count, float *out)
{
    const struct run run = run_from(x, first);
    if (run.count >= count) {
        load_run(x, run.at, run.step, count, out);
        return;
    }
    struct rows rows = rows_from(x, first, run);
    for (uint64_t done = 0, n; done < count; done += n) {
        n = host_least(count - done, rows.run.count);
        load_run(x, rows.run.at, rows.run.step, n, out + done);
        next_row(&rows);
    }
}

void host_store(const struct work_operand *y, uint64_t first, uint64_t count, const float *in)
{
    const struct run run = run_from(y, first);
    if (run.count >= count) {
        store_run(y, run.at, run.step, count, in);
        return;
    }
    struct rows rows = rows_from(y, first, run);
    for (uint64_t done = 0, n; done < count; done += n) {
        n = host_least(count - done, rows.run.count);
        store_run(y, rows.run.at, rows.run.step, n, in + done);
        next_row(&rows);
    }
}

uint64_t host_place(const struct work_operand *x, uint64_t i)
{
    return run_from(x, i).at;
}

void host_round(enum dtype dtype, uint64_t n, float *block)
{
    for (uint64_t i = 0; dtype == DTYPE_BF16 && i < n; i++)
        block[i] = float_from_bf16(bf16_from_float(block[i]));
    for (uint64_t i = 0; dtype == DTYPE_FP16 && i < n; i++)
        block[i] = float_from_fp16(fp16_from_float(block[i]));
}

float host_load_one(const struct work_operand *x, uint64_t i)
{
    float value;
    host_load(x, i, 1, &value);
    return value;
}

void host_store_one(const struct work_operand *y, uint64_t i, float value)
{
    host_store(y, i, 1, &value);
}

void host_copy(const struct work_operand *x, uint64_t first, const struct work_operand *y,
               uint64_t at, uint64_t count)
{
    const uint64_t size = dtype_bytes((enum dtype)x->dtype);
    if (x->dtype == y->dtype && !x->pitch && !y->pitch && !x->layout && !y->layout) {
        if (count) /* an empty tensor may have no address */
            memmove((char *)y->data + at * size, (const char *)x->data + first * size,
                    count * size);
        return;
    }
    float block[HOST_BLOCK];
    for (uint64_t done = 0, n; done < count; done += n) {
        n = host_block(done, count);
        host_load(x, first + done, n, block);
        host_store(y, at + done, n, block);
    }
}

int64_t host_index(const struct work_operand *ids, uint64_t i)
{
    const uint64_t at = run_from(ids, i).at;
    return ids->dtype == DTYPE_INT64 ? ((const int64_t *)ids->data)[at]
                                     : ((const int32_t *)ids->data)[at];
}

void host_store_index(const struct work_operand *ids, uint64_t i, int64_t value)
{
    const uint64_t at = run_from(ids, i).at;
    if (ids->dtype == DTYPE_INT64)
        ((int64_t *)ids->data)[at] = value;
    else
        ((int32_t *)ids->data)[at] = (int32_t)value;
}

/* ---- broadcasting ---- */

uint64_t host_spread_row(const struct shape *z, const uint64_t stride[SHAPE_DIMS], uint64_t row)
{
    uint64_t at = 0;
    for (uint32_t i = z->rank ? z->rank - 1 : 0; i-- > 0; row /= z->dim[i])
        at += row % z->dim[i] * stride[i];
    return at;
}

struct work_operand host_spread(const struct work_operand *x, const struct shape *z,
                                struct strides *room)
{
    struct work_operand spread = *x;
    if (shape_elements(&x->shape) == shape_elements(z))
        return spread;
    const struct strides own = layout_of(&x->shape, x->pitch, x->layout);
    layout_expand(&x->shape, &own, z, room);
    spread.shape = *z;
    spread.layout = room;
    return spread;
}

/* ---- scratch ---- */

enum err_code host_scratch(const struct work *work, uint64_t count, size_t size, void *out,
                           struct err *err)
{
    void *memory = count < SIZE_MAX / size ? malloc((size_t)(count + 1) * size) : NULL;
    memcpy(out, &memory, sizeof memory);
    if (!memory)
        return work_refuse(work, ERR_NOMEM, err, "no host memory for %llu bytes of scratch",
                           (unsigned long long)count * size);
    return ERR_OK;
}
