/* host_ops_fused.c - several elementwise works in one pass (runtime/work/fused.h). What lies
 * between two of them is rounded to its dtype in the block where it is, so that every number is the
 * one that its parts would have given. RMSNorm's are in host_ops_norm.c. */
#include "runtime/host/host_ops_internal.h"
#include "runtime/work/fused.h"

#include <math.h>
#include <stdlib.h>

enum { IGNORED = -100 };

/* ---- pairs of x, each times a complex number ---- */

/* n / 2 pairs; `step`: complex numbers between the angles of neighbours. */
static void rotate(uint64_t n, float *x, const float *angle, uint64_t step, bool conjugate)
{
    for (uint64_t i = 0; i < n; i += 2, angle += 2 * step) {
        const float a = x[i], b = x[i + 1], c = angle[0], d = conjugate ? -angle[1] : angle[1];
        x[i] = a * c - b * d;
        x[i + 1] = a * d + b * c;
    }
}

void host_rotate(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const float *angles = work_in(work, 1)->data;
    uint64_t step[SHAPE_DIMS];
    struct shape pairs;
    work_rotate_spread(work, &pairs, step);
    const uint64_t rows = operand_rows(x), last = operand_last(x);
    const uint64_t inner = step[pairs.rank - 1];
    float block[HOST_BLOCK];
    for (uint64_t row = 0; row < rows; row++) {
        const float *angle = angles + 2 * host_spread_row(&pairs, step, row);
        for (uint64_t i = 0, n; i < last; i += n) {
            n = host_block(i, last);
            host_load(x, row * last + i, n, block);
            rotate(n, block, angle + i * inner, inner, work->attr.p < 0);
            host_store(y, row * last + i, n, block);
        }
    }
}

/* ---- products ---- */

/* Stores a block where it is asked for, and leaves of it what would be read back. */
static void pass_on(const struct work_operand *y, uint64_t first, uint64_t n, float *block)
{
    if (operand_is_written(y))
        host_store(y, first, n, block);
    host_round((enum dtype)y->dtype, n, block);
}

void host_gate(const struct work *work)
{
    const struct work_operand *silu = work_out(work, 0), *product = work_out(work, 1);
    const uint64_t count = operand_count(product);
    float x[HOST_BLOCK], u[HOST_BLOCK];
    for (uint64_t i = 0, n; i < count; i += n) {
        n = host_block(i, count);
        host_load(work_in(work, 0), i, n, x);
        host_load(work_in(work, 1), i, n, u);
        host_silu(n, x, x);
        pass_on(silu, i, n, x);
        for (uint64_t j = 0; j < n; j++)
            x[j] *= u[j];
        host_store(product, i, n, x);
    }
}

void host_products(const struct work *work)
{
    const uint64_t count = operand_count(work_in(work, 0));
    float z[HOST_BLOCK], x[2][HOST_BLOCK];
    for (uint64_t i = 0, n; i < count; i += n) {
        n = host_block(i, count);
        host_load(work_in(work, 0), i, n, z); /* all is read before a result takes its place */
        host_load(work_in(work, 1), i, n, x[0]);
        host_load(work_in(work, 2), i, n, x[1]);
        for (uint32_t k = 0; k < 2; k++) {
            for (uint64_t j = 0; j < n; j++)
                x[k][j] *= z[j];
            if (operand_is_written(work_out(work, k)))
                host_store(work_out(work, k), i, n, x[k]);
        }
    }
}

/* ---- back through the loss ---- */

/* Of the gradient of the log-probabilities only each row's target is not zero, so it is the row's
 * sum: dx = that at the target - softmax · the sum. */
enum err_code host_cross_entropy_slope(const struct work *work, struct err *err)
{
    const struct work_operand *targets = work_in(work, 1), *y = work_in(work, 2);
    const struct work_operand *dx = work_out(work, 0);
    const uint64_t t = operand_rows(y), v = operand_last(y);
    uint64_t count;
    float *row;
    TRY(host_count_targets(work, targets, t, v, &count, err));
    TRY(host_scratch(work, v, sizeof *row, &row, err));
    const float each = -host_load_one(work_in(work, 0), 0) / (float)count;
    for (uint64_t i = 0; i < t; i++) {
        const int64_t target = host_index(targets, i);
        const float sum = target == IGNORED ? 0 : each;
        host_load(y, i * v, v, row);
        for (uint64_t j = 0; j < v; j++)
            row[j] = (j == (uint64_t)target ? sum : 0.0F) - expf(row[j]) * sum;
        host_store(dx, i * v, v, row);
    }
    free(row);
    return ERR_OK;
}
