/* host_ops_index.c - kernels that choose, sort and look up. Indices are checked before they are
 * followed. Equal numbers keep their order. */
#include "runtime/host/host_ops_internal.h"

#include <math.h>
#include <stdlib.h>

enum err_code host_need_ids(const struct work *work, const struct work_operand *ids, uint64_t below,
                            struct err *err)
{
    for (uint64_t i = 0; i < operand_count(ids); i++) {
        const int64_t id = host_index(ids, i);
        if (id < 0 || (uint64_t)id >= below)
            return work_refuse(work, ERR_INVALID, err, "id %lld is not below %llu", (long long)id,
                               (unsigned long long)below);
    }
    return ERR_OK;
}

/* ---- rows ---- */

static uint64_t row_elements(const struct work_operand *x)
{
    return x->shape.dim[0] ? operand_count(x) / x->shape.dim[0] : 0;
}

enum err_code host_take_rows(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *ids = work_in(work, 1);
    const uint64_t h = row_elements(x);
    TRY(host_need_ids(work, ids, x->shape.dim[0], err));
    for (uint64_t i = 0; i < operand_count(ids); i++)
        host_copy(x, (uint64_t)host_index(ids, i) * h, work_out(work, 0), i * h, h);
    return ERR_OK;
}

/* Row by row of y, so that a sum is rounded once: sums are double. */
enum err_code host_add_rows(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *ids = work_in(work, 1);
    const struct work_operand *rows = work_in(work, 2), *y = work_out(work, 0);
    const uint64_t h = row_elements(x), all = operand_count(x);
    double *sums = NULL;
    float *row = NULL;
    enum err_code rc = ERR_OK;
    TRY(host_need_ids(work, ids, x->shape.dim[0], err));
    TRY_GOTO(rc, host_scratch(work, all, sizeof *sums, &sums, err), done);
    TRY_GOTO(rc, host_scratch(work, h, sizeof *row, &row, err), done);
    for (uint64_t at = 0; at < all; at += h) {
        host_load(x, at, h, row);
        for (uint64_t j = 0; j < h; j++)
            sums[at + j] = (double)row[j];
    }
    for (uint64_t i = 0; i < operand_count(ids); i++) {
        double *const sum = sums + (uint64_t)host_index(ids, i) * h;
        host_load(rows, i * h, h, row);
        for (uint64_t j = 0; j < h; j++)
            sum[j] += (double)row[j];
    }
    for (uint64_t at = 0; at < all; at += h) {
        for (uint64_t j = 0; j < h; j++)
            row[j] = (float)sums[at + j];
        host_store(y, at, h, row);
    }
done:
    free(row);
    free(sums);
    return rc;
}

/* ---- elements of rows ---- */

enum err_code host_gather(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *ids = work_in(work, 1);
    const uint64_t n = operand_last(x), m = operand_last(ids);
    TRY(host_need_ids(work, ids, n, err));
    for (uint64_t i = 0; i < operand_count(ids); i++)
        host_copy(x, i / m * n + (uint64_t)host_index(ids, i), work_out(work, 0), i, 1);
    return ERR_OK;
}

enum err_code host_scatter(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *ids = work_in(work, 1);
    const struct work_operand *y = work_in(work, 2), *z = work_out(work, 0);
    const uint64_t n = operand_last(x), m = operand_last(ids);
    TRY(host_need_ids(work, ids, n, err));
    if (z->data != x->data)
        host_copy(x, 0, z, 0, operand_count(x));
    for (uint64_t i = 0; i < operand_count(ids); i++)
        host_copy(y, i, z, i / m * n + (uint64_t)host_index(ids, i), 1);
    return ERR_OK;
}

enum err_code host_scatter_number(const struct work *work, struct err *err)
{
    const struct work_operand *ids = work_in(work, 1), *x = work_out(work, 0);
    const uint64_t n = operand_last(x), m = operand_last(ids);
    TRY(host_need_ids(work, ids, n, err));
    if (work_in(work, 0)->data != x->data)
        host_copy(work_in(work, 0), 0, x, 0, operand_count(x));
    for (uint64_t i = 0; i < operand_count(ids); i++)
        host_store_one(x, i / m * n + (uint64_t)host_index(ids, i), work->attr.p);
    return ERR_OK;
}

/* ---- order ---- */

struct place {
    float number;
    uint32_t at;
};

static int smaller_first(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->number < y->number || x->number > y->number)
        return x->number < y->number ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int larger_first(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->number < y->number || x->number > y->number)
        return x->number > y->number ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Each row in order, and of that as many as the outputs have. */
enum err_code host_sort(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const uint64_t n = operand_last(x), rows = operand_rows(x);
    const uint64_t m = rows ? operand_count(y) / rows : 0;
    struct place *places;
    TRY(host_scratch(work, n, sizeof *places, &places, err));
    for (uint64_t row = 0; row < rows; row++) {
        for (uint32_t i = 0; i < n; i++)
            places[i] = (struct place){host_load_one(x, row * n + i), i};
        qsort(places, n, sizeof *places, work->kind == WORK_SORT ? smaller_first : larger_first);
        for (uint64_t i = 0; i < m; i++) {
            host_store_one(y, row * m + i, places[i].number);
            host_store_index(work_out(work, 1), row * m + i, places[i].at);
        }
    }
    free(places);
    return ERR_OK;
}

enum err_code host_invert_permutation(const struct work *work, struct err *err)
{
    const struct work_operand *ids = work_in(work, 0), *y = work_out(work, 0);
    TRY(host_need_ids(work, ids, operand_count(y), err));
    for (uint64_t i = 0; i < operand_count(ids); i++)
        host_store_index(y, (uint64_t)host_index(ids, i), (int64_t)i);
    return ERR_OK;
}

/* Numbers below 0 or not below the number of counts are in none. */
void host_histogram(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0), *counts = work_out(work, 0);
    for (uint64_t i = 0; i < operand_count(counts); i++) {
        uint64_t count = 0;
        for (uint64_t j = 0; j < operand_count(x); j++) {
            const float number = host_load_one(x, j);
            count += number >= (float)i && number < (float)(i + 1);
        }
        host_store_one(counts, i, (float)count);
    }
}
