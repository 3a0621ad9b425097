/* host_ops_shape.c - kernels that move, repeat or sum elements by their place: repeat and its sum,
 * cat, copy, and the rows that an embedding takes. */
#include "runtime/host/host_ops_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- copies ---- */

static enum err_code need_castable(const struct work *work, const struct work_operand *x,
                                   const struct work_operand *y, struct err *err)
{
    if ((host_is_float(x) && host_is_float(y)) || (x->dtype == y->dtype && !x->pitch && !y->pitch))
        return ERR_OK;
    return host_refuse(work, ERR_UNSUPPORTED, err, "no copy of %s%s to %s%s",
                       dtype_name((enum dtype)x->dtype), x->pitch ? " with a pitch" : "",
                       dtype_name((enum dtype)y->dtype), y->pitch ? " with a pitch" : "");
}

enum err_code host_copy_bytes(const struct work *work, struct err *err)
{
    const struct work_operand *x = host_in(work, 0), *y = host_out(work, 0);
    TRY(need_castable(work, x, y, err));
    if (x->dtype != y->dtype || host_count(x) != host_count(y))
        return host_refuse(work, ERR_INVALID, err, "x has %llu %s, y %llu %s",
                           (unsigned long long)host_count(x), dtype_name((enum dtype)x->dtype),
                           (unsigned long long)host_count(y), dtype_name((enum dtype)y->dtype));
    host_copy(x, 0, y, 0, host_count(x));
    return ERR_OK;
}

/* y is (outer, times, inner), x (outer, 1, inner). */
enum err_code host_repeat(const struct work *work, struct err *err)
{
    const struct work_operand *x = host_in(work, 0), *y = host_out(work, 0);
    const uint32_t dim = work->attr.dim;
    if (dim >= y->shape.rank)
        return host_refuse(work, ERR_INVALID, err, "dim %u of %u", dim, y->shape.rank);
    TRY(need_castable(work, x, y, err));
    const uint64_t times = y->shape.dim[dim];
    uint64_t outer = 1, inner = 1;
    for (uint32_t i = 0; i < y->shape.rank; i++)
        *(i < dim ? &outer : &inner) *= i == dim ? 1 : y->shape.dim[i];
    const uint64_t elements = outer * inner;
    if (host_count(x) != elements)
        return host_refuse(work, ERR_INVALID, err, "x has %llu elements instead of %llu",
                           (unsigned long long)host_count(x), (unsigned long long)elements);
    for (uint64_t o = 0; o < outer; o++)
        for (uint64_t r = 0; r < times; r++)
            host_copy(x, o * inner, y, (o * times + r) * inner, inner);
    return ERR_OK;
}

enum err_code host_cat(const struct work *work, struct err *err)
{
    const struct work_operand *y = host_out(work, 0);
    const uint64_t rows = host_rows(y), last = host_last(y);
    uint64_t width = 0;
    for (uint32_t i = 0; i < work->ins; i++) {
        TRY(need_castable(work, host_in(work, i), y, err));
        if (host_count(host_in(work, i)) != rows * host_last(host_in(work, i)))
            return host_refuse(work, ERR_INVALID, err, "part %u has %llu rows instead of %llu", i,
                               (unsigned long long)host_rows(host_in(work, i)),
                               (unsigned long long)rows);
        width += host_last(host_in(work, i));
    }
    if (width != last)
        return host_refuse(work, ERR_INVALID, err, "parts are %llu wide together, y %llu",
                           (unsigned long long)width, (unsigned long long)last);
    uint64_t column = 0;
    for (uint32_t i = 0; i < work->ins; i++) {
        const struct work_operand *part = host_in(work, i);
        const uint64_t n = host_last(part);
        for (uint64_t row = 0; row < rows; row++)
            host_copy(part, row * n, y, row * last + column, n);
        column += n;
    }
    return ERR_OK;
}

/* ---- sums ---- */

/* Adds a part of one row of x to its place in the sums: a row of them (step 1), or one (step 0). */
static void add_to(double *sums, uint64_t step, const float *x, uint64_t n)
{
    if (step) {
        for (uint64_t i = 0; i < n; i++)
            sums[i] += (double)x[i];
        return;
    }
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)x[i];
    *sums += sum;
}

static void store_sums(const struct work_operand *y, const double *sums, float block[HOST_BLOCK])
{
    const uint64_t count = host_count(y);
    for (uint64_t i = 0, n; i < count; i += n) {
        n = host_block(i, count);
        for (uint64_t j = 0; j < n; j++)
            block[j] = (float)sums[i + j];
        host_store(y, i, n, block);
    }
}

enum err_code host_sum(const struct work *work, struct err *err)
{
    const struct work_operand *x = host_in(work, 0), *y = host_out(work, 0);
    uint64_t stride[SHAPE_DIMS];
    if (!host_spread(&y->shape, &x->shape, stride))
        return host_refuse(work, ERR_INVALID, err, "y's dims are neither x's nor 1");
    TRY(host_need_count(work, "x", x, host_count(x), err));
    TRY(host_need_count(work, "y", y, host_count(y), err));
    const uint64_t rows = host_rows(x), last = host_last(x);
    const uint64_t step = stride[x->shape.rank ? x->shape.rank - 1 : 0];
    double *sums;
    TRY(host_scratch(work, host_count(y), sizeof *sums, &sums, err));
    memset(sums, 0, host_count(y) * sizeof *sums);
    float block[HOST_BLOCK];
    for (uint64_t row = 0; row < rows; row++) {
        const uint64_t at = host_spread_row(&x->shape, stride, row);
        for (uint64_t i = 0, n; i < last; i += n) {
            n = host_block(i, last);
            host_load(x, row * last + i, n, block);
            add_to(sums + at + i * step, step, block, n);
        }
    }
    store_sums(y, sums, block);
    free(sums);
    return ERR_OK;
}

/* ---- embedding ---- */

static enum err_code need_ids(const struct work *work, const struct work_operand *ids,
                              uint64_t vocabulary, struct err *err)
{
    TRY(host_need_index(work, "ids", ids, err));
    for (uint64_t i = 0; i < host_count(ids); i++) {
        const int64_t id = host_index(ids, i);
        if (id < 0 || (uint64_t)id >= vocabulary)
            return host_refuse(work, ERR_INVALID, err, "id %lld is not below %llu", (long long)id,
                               (unsigned long long)vocabulary);
    }
    return ERR_OK;
}

enum err_code host_embedding(const struct work *work, struct err *err)
{
    const struct work_operand *ids = host_in(work, 0), *weight = host_in(work, 1);
    const struct work_operand *y = host_out(work, 0);
    const uint64_t h = host_last(weight);
    TRY(host_need_count(work, "weight", weight, host_count(weight), err));
    TRY(host_need_count(work, "y", y, host_count(ids) * h, err));
    TRY(need_ids(work, ids, host_rows(weight), err));
    for (uint64_t i = 0; i < host_count(ids); i++)
        host_copy(weight, (uint64_t)host_index(ids, i) * h, y, i * h, h);
    return ERR_OK;
}

/* Positions of ids, grouped by id: those of id are order[start[id]] to order[start[id + 1]]. */
static void group_by_id(const struct work_operand *ids, uint64_t vocabulary, uint64_t *start,
                        uint64_t *order)
{
    const uint64_t count = host_count(ids);
    memset(start, 0, (vocabulary + 2) * sizeof *start);
    for (uint64_t i = 0; i < count; i++) /* counts, two places on: the fill moves them back */
        start[host_index(ids, i) + 2]++;
    for (uint64_t v = 2; v <= vocabulary; v++)
        start[v] += start[v - 1];
    for (uint64_t i = 0; i < count; i++)
        order[start[host_index(ids, i) + 1]++] = i;
}

/* Row by row, so that a row is rounded once and sums need no table as large as the weight. */
static void sum_by_id(const struct work *work, const uint64_t *start, const uint64_t *order,
                      double *sums, float *row)
{
    const struct work_operand *dy = host_in(work, 0), *dweight = host_out(work, 0);
    const uint64_t vocabulary = host_rows(dweight), h = host_last(dweight);
    for (uint64_t id = 0; id < vocabulary; id++) {
        memset(sums, 0, h * sizeof *sums);
        for (uint64_t i = start[id]; i < start[id + 1]; i++) {
            host_load(dy, order[i] * h, h, row);
            for (uint64_t j = 0; j < h; j++)
                sums[j] += (double)row[j];
        }
        for (uint64_t j = 0; j < h; j++)
            row[j] = (float)sums[j];
        host_store(dweight, id * h, h, row);
    }
}

enum err_code host_embedding_backward(const struct work *work, struct err *err)
{
    const struct work_operand *dy = host_in(work, 0), *ids = host_in(work, 1);
    const struct work_operand *dweight = host_out(work, 0);
    const uint64_t vocabulary = host_rows(dweight), h = host_last(dweight);
    uint64_t *start = NULL, *order = NULL;
    double *sums = NULL;
    float *row = NULL;
    enum err_code rc = ERR_OK;
    TRY(host_need_count(work, "dweight", dweight, host_count(dweight), err));
    TRY(host_need_count(work, "dy", dy, host_count(ids) * h, err));
    TRY(need_ids(work, ids, vocabulary, err));
    TRY_GOTO(rc, host_scratch(work, vocabulary + 2, sizeof *start, &start, err), done);
    TRY_GOTO(rc, host_scratch(work, host_count(ids), sizeof *order, &order, err), done);
    TRY_GOTO(rc, host_scratch(work, h, sizeof *sums, &sums, err), done);
    TRY_GOTO(rc, host_scratch(work, h, sizeof *row, &row, err), done);
    group_by_id(ids, vocabulary, start, order);
    sum_by_id(work, start, order, sums, row);
done:
    free(row);
    free(sums);
    free(order);
    free(start);
    return rc;
}
