/* host_ops_tensor.c - how kernels reach operands (host_ops_internal.h). */
#include "runtime/half.h"
#include "runtime/host/host_ops_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- runs of elements that lie beside each other ---- */

static void load_run(const struct work_operand *x, uint64_t at, uint64_t count, float *out)
{
    if (!count)
        return;
    const uint16_t *halves = (const uint16_t *)x->data + at;
    if (x->dtype == DTYPE_FP32)
        memcpy(out, (const float *)x->data + at, count * sizeof *out);
    else if (x->dtype == DTYPE_BF16)
        for (uint64_t i = 0; i < count; i++)
            out[i] = float_from_bf16(halves[i]);
    else
        for (uint64_t i = 0; i < count; i++)
            out[i] = float_from_fp16(halves[i]);
}

static void store_run(const struct work_operand *y, uint64_t at, uint64_t count, const float *in)
{
    if (!count)
        return;
    uint16_t *halves = (uint16_t *)y->data + at;
    if (y->dtype == DTYPE_FP32)
        memcpy((float *)y->data + at, in, count * sizeof *in);
    else if (y->dtype == DTYPE_BF16)
        for (uint64_t i = 0; i < count; i++)
            halves[i] = bf16_from_float(in[i]);
    else
        for (uint64_t i = 0; i < count; i++)
            halves[i] = fp16_from_float(in[i]);
}

uint64_t host_row_width(const struct work_operand *x)
{
    if (!x->pitch)
        return host_count(x);
    const uint32_t *dim = x->shape.dim;
    if (x->shape.rank == 4 && (uint64_t)dim[2] * dim[3] <= x->pitch)
        return (uint64_t)dim[2] * dim[3];
    return host_last(x);
}

void host_load(const struct work_operand *x, uint64_t first, uint64_t count, float *out)
{
    if (!x->pitch) {
        load_run(x, first, count, out);
        return;
    }
    const uint64_t width = host_row_width(x);
    uint64_t row = first / width, column = first % width;
    for (uint64_t done = 0, run; done < count; done += run, row++, column = 0) {
        run = host_least(count - done, width - column);
        load_run(x, row * x->pitch + column, run, out + done);
    }
}

void host_store(const struct work_operand *y, uint64_t first, uint64_t count, const float *in)
{
    if (!y->pitch) {
        store_run(y, first, count, in);
        return;
    }
    const uint64_t width = host_row_width(y);
    uint64_t row = first / width, column = first % width;
    for (uint64_t done = 0, run; done < count; done += run, row++, column = 0) {
        run = host_least(count - done, width - column);
        store_run(y, row * y->pitch + column, run, in + done);
    }
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
    if (x->dtype == y->dtype && !x->pitch && !y->pitch) {
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
    return ids->dtype == DTYPE_INT64 ? ((const int64_t *)ids->data)[i]
                                     : ((const int32_t *)ids->data)[i];
}

bool host_is_float(const struct work_operand *x)
{
    return x->dtype == DTYPE_FP32 || x->dtype == DTYPE_BF16 || x->dtype == DTYPE_FP16;
}

bool host_is_index(const struct work_operand *x)
{
    return (x->dtype == DTYPE_INT64 || x->dtype == DTYPE_INT32) && !x->pitch;
}

/* ---- broadcasting ---- */

bool host_spread(const struct shape *y, const struct shape *z, uint64_t stride[SHAPE_DIMS])
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < SHAPE_DIMS; i++)
        stride[i] = 0;
    for (uint32_t i = 1; i <= y->rank; i++) { /* i-th dim from the right */
        const uint32_t dim = y->dim[y->rank - i];
        if (dim != 1) {
            if (i > z->rank || z->dim[z->rank - i] != dim)
                return false;
            stride[z->rank - i] = elements;
        }
        elements *= dim;
    }
    return true;
}

uint64_t host_spread_row(const struct shape *z, const uint64_t stride[SHAPE_DIMS], uint64_t row)
{
    uint64_t at = 0;
    for (uint32_t i = z->rank ? z->rank - 1 : 0; i-- > 0; row /= z->dim[i])
        at += row % z->dim[i] * stride[i];
    return at;
}

/* ---- failing ---- */

enum err_code host_refuse(const struct work *work, enum err_code code, struct err *err,
                          const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set(err, code, "instruction %u: %s: %s", work->instruction, work_name(work->kind),
                   text);
}

enum err_code host_need_count(const struct work *work, const char *name,
                              const struct work_operand *x, uint64_t count, struct err *err)
{
    if (!host_is_float(x))
        return host_refuse(work, ERR_UNSUPPORTED, err, "%s is %s, which has no kernel", name,
                           dtype_name((enum dtype)x->dtype));
    if (host_count(x) != count)
        return host_refuse(work, ERR_INVALID, err, "%s has %llu elements instead of %llu", name,
                           (unsigned long long)host_count(x), (unsigned long long)count);
    return ERR_OK;
}

enum err_code host_need_index(const struct work *work, const char *name,
                              const struct work_operand *x, struct err *err)
{
    if (!host_is_index(x))
        return host_refuse(work, ERR_UNSUPPORTED, err, "%s is %s%s instead of int64 or int32", name,
                           dtype_name((enum dtype)x->dtype), x->pitch ? " with a pitch" : "");
    return ERR_OK;
}

enum err_code host_scratch(const struct work *work, uint64_t count, size_t size, void *out,
                           struct err *err)
{
    void *memory = count < SIZE_MAX / size ? malloc((size_t)(count + 1) * size) : NULL;
    memcpy(out, &memory, sizeof memory);
    if (!memory)
        return host_refuse(work, ERR_NOMEM, err, "no host memory for %llu bytes of scratch",
                           (unsigned long long)count * size);
    return ERR_OK;
}
