/* host_ops_softmax.c - softmax over the last dim, and back. Sums are double. */
#include "runtime/host/host_ops_internal.h"

#include <math.h>
#include <stdlib.h>

/* A row of nothing but minus infinity is NaN, as in PyTorch; false: it is one. */
static bool soften(uint64_t n, float *x)
{
    float highest = x[0];
    for (uint64_t i = 1; i < n; i++)
        highest = x[i] > highest ? x[i] : highest;
    const bool some = !(isinf(highest) && highest < 0);
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - highest);
        sum += (double)x[i];
    }
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] / sum);
    return some;
}

/* Of a safe one: where x is minus infinity, and in which rows all of it is. */
static void note_masked(const struct work *work, uint64_t row, uint64_t n, const float *x,
                        bool some)
{
    for (uint64_t i = 0; work->outs > 1 && i < n; i++)
        host_store_one(work_out(work, 1), row * n + i, isinf(x[i]) && x[i] < 0 ? 1 : 0);
    if (work->outs > 2)
        host_store_one(work_out(work, 2), row, some ? 0 : 1);
}

enum err_code host_softmax(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const uint64_t n = operand_last(x);
    const bool safe = work->kind == WORK_SAFE_SOFTMAX;
    float *row;
    TRY(host_scratch(work, 2 * n, sizeof *row, &row, err));
    for (uint64_t i = 0; i < operand_rows(x); i++) {
        host_load(x, i * n, n, row);
        if (safe)
            host_load(x, i * n, n, row + n);
        const bool some = soften(n, row);
        if (safe)
            note_masked(work, i, n, row + n, some);
        for (uint64_t j = 0; safe && !some && j < n; j++)
            row[j] = 0;
        host_store(y, i * n, n, row);
    }
    free(row);
    return ERR_OK;
}

/* dx = y (dy - sum of y dy) */
enum err_code host_softmax_backward(const struct work *work, struct err *err)
{
    const struct work_operand *dy = work_in(work, 0), *y = work_in(work, 1);
    const struct work_operand *dx = work_out(work, 0);
    const uint64_t n = operand_last(y);
    float *rows;
    TRY(host_scratch(work, 2 * n, sizeof *rows, &rows, err));
    float *const of_y = rows + n;
    for (uint64_t i = 0; i < operand_rows(y); i++) {
        double sum = 0;
        host_load(dy, i * n, n, rows);
        host_load(y, i * n, n, of_y);
        for (uint64_t j = 0; j < n; j++)
            sum += (double)rows[j] * (double)of_y[j];
        for (uint64_t j = 0; j < n; j++)
            rows[j] = of_y[j] * (rows[j] - (float)sum);
        host_store(dx, i * n, n, rows);
    }
    free(rows);
    return ERR_OK;
}
