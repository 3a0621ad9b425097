/* host_ops_reduce.c - sums and the like over rows or over a dim. Sums are double. */
#include "runtime/host/host_ops_internal.h"

#include <math.h>
#include <stdlib.h>

void host_mean(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const uint64_t last = operand_last(x);
    float block[HOST_BLOCK];
    for (uint64_t row = 0; row < operand_rows(x); row++) {
        double sum = 0;
        for (uint64_t i = 0, n; i < last; i += n) {
            n = host_block(i, last);
            host_load(x, row * last + i, n, block);
            for (uint64_t j = 0; j < n; j++)
                sum += (double)block[j];
        }
        host_store_one(y, row, (float)(sum / (double)last));
    }
}

void host_cumulative_sum(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const uint64_t last = operand_last(x);
    float block[HOST_BLOCK];
    for (uint64_t row = 0; row < operand_rows(x); row++) {
        double sum = 0;
        for (uint64_t i = 0, n; i < last; i += n) {
            n = host_block(i, last);
            host_load(x, row * last + i, n, block);
            for (uint64_t j = 0; j < n; j++) {
                sum += (double)block[j];
                block[j] = (float)sum;
            }
            host_store(y, row * last + i, n, block);
        }
    }
}

/* x is (outer, n, inner), y (outer, inner). */
enum err_code host_sum_dim(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const uint64_t n = x->shape.dim[work->attr.dim];
    uint64_t inner = 1;
    for (uint32_t i = work->attr.dim + 1; i < x->shape.rank; i++)
        inner *= x->shape.dim[i];
    double *sums;
    float *row;
    TRY(host_scratch(work, inner, sizeof *sums, &sums, err));
    const enum err_code rc = host_scratch(work, inner, sizeof *row, &row, err);
    for (uint64_t outer = 0; rc == ERR_OK && inner && outer < operand_count(y) / inner; outer++) {
        for (uint64_t i = 0; i < inner; i++)
            sums[i] = 0;
        for (uint64_t k = 0; k < n; k++) {
            host_load(x, (outer * n + k) * inner, inner, row);
            for (uint64_t i = 0; i < inner; i++)
                sums[i] += (double)row[i];
        }
        for (uint64_t i = 0; i < inner; i++)
            row[i] = (float)sums[i];
        host_store(y, outer * inner, inner, row);
    }
    if (rc == ERR_OK)
        free(row);
    free(sums);
    return rc;
}

/* The largest of all; of truths whether all, or any, are. A NaN is larger than any number. */
void host_extreme(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0);
    const uint64_t count = operand_count(x);
    const bool smallest = work->kind == WORK_ALL || work->kind == WORK_LEAST;
    float block[HOST_BLOCK], found = 0;
    for (uint64_t i = 0, n; i < count; i += n) {
        n = host_block(i, count);
        host_load(x, i, n, block);
        for (uint64_t j = 0; j < n; j++) {
            const bool better = smallest ? block[j] < found : block[j] > found;
            found = i + j == 0 || better || isnan(block[j]) ? block[j] : found;
        }
    }
    if (count == 0)
        found = smallest;
    host_store_one(work_out(work, 0), 0, found);
}
