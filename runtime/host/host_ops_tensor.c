/* host_ops_tensor.c - how kernels reach operands (host_ops_internal.h). */
#include "runtime/host/host_ops_internal.h"
#include "runtime/work/half.h"

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

void host_load(const struct work_operand *x, uint64_t first, uint64_t count, float *out)
{
    if (!x->pitch) {
        load_run(x, first, count, out);
        return;
    }
    const uint64_t width = operand_row_width(x);
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
    const uint64_t width = operand_row_width(y);
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

/* ---- broadcasting ---- */

uint64_t host_spread_row(const struct shape *z, const uint64_t stride[SHAPE_DIMS], uint64_t row)
{
    uint64_t at = 0;
    for (uint32_t i = z->rank ? z->rank - 1 : 0; i-- > 0; row /= z->dim[i])
        at += row % z->dim[i] * stride[i];
    return at;
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
