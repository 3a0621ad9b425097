/* host_ops_loss.c - mean cross-entropy as PyTorch splits it: log-softmax, then the mean of the
 * targets' log-probabilities, and the two steps back.
 *
 * Sums over the vocabulary and over tokens are double. A target of -100 is left out of the mean, as
 * nll_loss's ignore_index; with none left the loss is 0/0, as there. */
#include "runtime/host/host_ops_internal.h"

#include <math.h>
#include <stdlib.h>

enum { IGNORED = -100 };

static void log_softmax_row(uint64_t n, float *x)
{
    float highest = x[0]; /* a NaN among them makes the sum NaN, and so the row */
    for (uint64_t i = 1; i < n; i++)
        highest = x[i] > highest ? x[i] : highest;
    double sum = (double)expf(x[0] - highest);
    for (uint64_t i = 1; i < n; i++)
        sum += (double)expf(x[i] - highest);
    const double log_sum = (double)highest + log(sum);
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] - log_sum);
}

enum err_code host_log_softmax(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const uint64_t t = operand_rows(x), v = operand_last(x);
    float *row;
    TRY(host_scratch(work, v, sizeof *row, &row, err));
    for (uint64_t i = 0; i < t; i++) {
        host_load(x, i * v, v, row);
        log_softmax_row(v, row);
        host_store(y, i * v, v, row);
    }
    free(row);
    return ERR_OK;
}

/* dx = dy - softmax · Σ dy */
static void log_softmax_slope(uint64_t n, float *dy, const float *y)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)dy[i];
    for (uint64_t i = 0; i < n; i++)
        dy[i] -= expf(y[i]) * (float)sum;
}

enum err_code host_log_softmax_backward(const struct work *work, struct err *err)
{
    const struct work_operand *dy = work_in(work, 0), *y = work_in(work, 1);
    const struct work_operand *dx = work_out(work, 0);
    const uint64_t t = operand_rows(y), v = operand_last(y);
    float *rows;
    TRY(host_scratch(work, 2 * v, sizeof *rows, &rows, err));
    for (uint64_t i = 0; i < t; i++) {
        host_load(dy, i * v, v, rows);
        host_load(y, i * v, v, rows + v);
        log_softmax_slope(v, rows, rows + v);
        host_store(dx, i * v, v, rows);
    }
    free(rows);
    return ERR_OK;
}

enum err_code host_count_targets(const struct work *work, const struct work_operand *targets,
                                 uint64_t t, uint64_t v, uint64_t *out, struct err *err)
{
    *out = 0;
    for (uint64_t i = 0; i < t; i++) {
        const int64_t target = host_index(targets, i);
        if (target == IGNORED)
            continue;
        if (target < 0 || (uint64_t)target >= v)
            return work_refuse(work, ERR_INVALID, err, "target %lld is not below %llu",
                               (long long)target, (unsigned long long)v);
        ++*out;
    }
    return ERR_OK;
}

enum err_code host_nll_loss(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *targets = work_in(work, 1);
    const struct work_operand *loss = work_out(work, 0), *weight = work_out(work, 1);
    const uint64_t t = operand_rows(x), v = operand_last(x);
    uint64_t count;
    TRY(host_count_targets(work, targets, t, v, &count, err));
    double sum = 0;
    for (uint64_t i = 0; i < t; i++)
        if (host_index(targets, i) != IGNORED)
            sum -= (double)host_load_one(x, i * v + (uint64_t)host_index(targets, i));
    host_store_one(loss, 0, (float)(sum / (double)count));
    host_store_one(weight, 0, (float)count);
    return ERR_OK;
}

enum err_code host_nll_loss_backward(const struct work *work, struct err *err)
{
    const struct work_operand *dloss = work_in(work, 0), *targets = work_in(work, 1);
    const struct work_operand *dx = work_out(work, 0);
    const uint64_t t = operand_rows(dx), v = operand_last(dx);
    uint64_t count;
    TRY(host_count_targets(work, targets, t, v, &count, err));
    const float each = -host_load_one(dloss, 0) / (float)count;
    const float zeros[HOST_BLOCK] = {0};
    for (uint64_t i = 0, n; i < t * v; i += n) {
        n = host_block(i, t * v);
        host_store(dx, i, n, zeros);
    }
    for (uint64_t i = 0; i < t; i++)
        if (host_index(targets, i) != IGNORED)
            host_store_one(dx, i * v + (uint64_t)host_index(targets, i), each);
    return ERR_OK;
}
