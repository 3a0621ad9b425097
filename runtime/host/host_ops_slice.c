/* host_ops_slice.c - kernels that cut rows of the last dim, fill them up or join them. */
#include "runtime/host/host_ops_internal.h"

/* Elements of one row of x, from `from` on, to row `row` of y, from `to` on. */
static void copy_part(const struct work_operand *x, uint64_t row, uint64_t from,
                      const struct work_operand *y, uint64_t to, uint64_t count)
{
    host_copy(x, row * operand_last(x) + from, y, row * operand_last(y) + to, count);
}

static void fill_part(const struct work_operand *y, uint64_t row, uint64_t first, uint64_t count,
                      float value)
{
    float block[HOST_BLOCK];
    for (uint64_t i = 0; i < host_least(count, HOST_BLOCK); i++)
        block[i] = value;
    for (uint64_t i = 0, n; i < count; i += n) {
        n = host_block(i, count);
        host_store(y, row * operand_last(y) + first + i, n, block);
    }
}

void host_pad(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const uint64_t kept = host_least(operand_last(x), operand_last(y));
    for (uint64_t row = 0; row < operand_rows(y); row++) {
        copy_part(x, row, 0, y, 0, kept);
        fill_part(y, row, kept, operand_last(y) - kept, work->attr.p);
    }
}

void host_slice(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    for (uint64_t row = 0; row < operand_rows(y); row++)
        copy_part(x, row, work->attr.first, y, 0, operand_last(y));
}

void host_put_slice(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    for (uint64_t row = 0; row < operand_rows(x); row++)
        copy_part(x, row, 0, y, work->attr.first, operand_last(x));
}

void host_slice_backward(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const uint64_t step = work->kind == WORK_STRIDE_BACKWARD ? work->attr.dim : 1;
    for (uint64_t row = 0; row < operand_rows(y); row++) {
        fill_part(y, row, 0, operand_last(y), 0);
        if (step == 1)
            copy_part(x, row, 0, y, work->attr.first, operand_last(x));
        for (uint64_t i = 0; step > 1 && i < operand_last(x); i++)
            copy_part(x, row, i, y, work->attr.first + i * step, 1);
    }
}

/* z has the elements of x and y in turn. */
void host_interleave(const struct work *work)
{
    const struct work_operand *z = work_out(work, 0);
    const uint64_t count = operand_count(z) / 2;
    float part[2][HOST_BLOCK], both[2 * HOST_BLOCK];
    for (uint64_t i = 0, n; i < count; i += n) {
        n = host_block(i, count);
        for (uint32_t side = 0; side < 2; side++) {
            host_load(work_in(work, side), i, n, part[side]);
            for (uint64_t j = 0; j < n; j++)
                both[2 * j + side] = part[side][j];
        }
        host_store(z, 2 * i, 2 * n, both);
    }
}

void host_lower_triangle(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const uint64_t n = operand_last(y), rows = operand_rows(y);
    for (uint64_t row = 0; row < rows; row++) {
        const uint64_t kept = host_least(row % n + 1, n);
        copy_part(x, row, 0, y, 0, kept);
        fill_part(y, row, kept, n - kept, 0);
    }
}
