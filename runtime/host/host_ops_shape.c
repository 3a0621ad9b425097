/* host_ops_shape.c - kernels that move, repeat or sum elements by their place: repeat and its sum,
 * cat, copy, and the rows that an embedding takes. */
#include "runtime/host/host_ops_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- copies ---- */

void host_copy_bytes(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    host_copy(x, 0, y, 0, operand_count(x));
}

/* y is (outer, times, inner), x (outer, 1, inner). */
void host_repeat(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const uint32_t dim = work->attr.dim;
    const uint64_t times = y->shape.dim[dim];
    uint64_t outer = 1, inner = 1;
    for (uint32_t i = 0; i < y->shape.rank; i++)
        *(i < dim ? &outer : &inner) *= i == dim ? 1 : y->shape.dim[i];
    for (uint64_t o = 0; o < outer; o++)
        for (uint64_t r = 0; r < times; r++)
            host_copy(x, o * inner, y, (o * times + r) * inner, inner);
}

void host_cat(const struct work *work)
{
    const struct work_operand *y = work_out(work, 0);
    const uint64_t rows = operand_rows(y), last = operand_last(y);
    uint64_t column = 0;
    for (uint32_t i = 0; i < work->ins; i++) {
        const struct work_operand *part = work_in(work, i);
        const uint64_t n = operand_last(part);
        for (uint64_t row = 0; row < rows; row++) {
            host_copy(part, row * n, y, row * last + column, n);
            if (work->ins == 1 && 2 * n == last) /* alone: twice */
                host_copy(part, row * n, y, row * last + n, n);
        }
        column += n;
    }
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
    const uint64_t count = operand_count(y);
    for (uint64_t i = 0, n; i < count; i += n) {
        n = host_block(i, count);
        for (uint64_t j = 0; j < n; j++)
            block[j] = (float)sums[i + j];
        host_store(y, i, n, block);
    }
}

enum err_code host_sum(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    uint64_t stride[SHAPE_DIMS];
    shape_spread(&y->shape, &x->shape, stride);
    const uint64_t rows = operand_rows(x), last = operand_last(x);
    const uint64_t step = stride[x->shape.rank ? x->shape.rank - 1 : 0];
    double *sums;
    TRY(host_scratch(work, operand_count(y), sizeof *sums, &sums, err));
    memset(sums, 0, operand_count(y) * sizeof *sums);
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

enum err_code host_embedding(const struct work *work, struct err *err)
{
    const struct work_operand *ids = work_in(work, 0), *weight = work_in(work, 1);
    const struct work_operand *y = work_out(work, 0);
    const uint64_t h = operand_last(weight);
    TRY(host_need_ids(work, ids, operand_rows(weight), err));
    for (uint64_t i = 0; i < operand_count(ids); i++)
        host_copy(weight, (uint64_t)host_index(ids, i) * h, y, i * h, h);
    return ERR_OK;
}

/* Positions of ids, grouped by id: those of id are order[start[id]] to order[start[id + 1]]. */
static void group_by_id(const struct work_operand *ids, uint64_t vocabulary, uint64_t *start,
                        uint64_t *order)
{
    const uint64_t count = operand_count(ids);
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
    const struct work_operand *dy = work_in(work, 0), *dweight = work_out(work, 0);
    const uint64_t vocabulary = operand_rows(dweight), h = operand_last(dweight);
    for (uint64_t id = 0; id < vocabulary; id++) {
        const bool pads = id + 1 == work->attr.first;
        memset(sums, 0, h * sizeof *sums);
        for (uint64_t i = start[id]; i < start[id + 1] && !pads; i++) {
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
    const struct work_operand *ids = work_in(work, 1);
    const struct work_operand *dweight = work_out(work, 0);
    const uint64_t vocabulary = operand_rows(dweight), h = operand_last(dweight);
    uint64_t *start = NULL, *order = NULL;
    double *sums = NULL;
    float *row = NULL;
    enum err_code rc = ERR_OK;
    TRY(host_need_ids(work, ids, vocabulary, err));
    TRY_GOTO(rc, host_scratch(work, vocabulary + 2, sizeof *start, &start, err), done);
    TRY_GOTO(rc, host_scratch(work, operand_count(ids), sizeof *order, &order, err), done);
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
