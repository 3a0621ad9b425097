/* host_ops_matmul.c - a linear layer and its two gradients, by sgemm.
 *
 *     NT  y (t, o)  = x (t, h) · weight (o, h)ᵀ  [+ bias (o)]
 *     NN  dx (t, h) = dy (t, o) · weight (o, h)  [+ bias (h)]
 *     TN  dw (o, h) = dy (t, o)ᵀ · x (t, h)
 *
 * A 16-bit operand is copied to fp32 as a whole, so products and sums are fp32 and a result is
 * rounded once; so is one whose rows do not lie one after the other. fp32 operands are used where
 * they are, also as a chunk of a wider tensor: the pitch is the leading dimension. Batches, and
 * groups of rows, are products of parts of the operands. */
#include "runtime/host/host_ops_internal.h"

#include <cblas.h>
#include <stdlib.h>

struct matrix {
    uint64_t rows, columns, pitch;
    float *data;
    float *copy; /* owns it; NULL: `data` is the operand itself */
};

static bool is_plain(const struct work_operand *x)
{
    return x->dtype == DTYPE_FP32 && !x->layout &&
           (!x->pitch || operand_row_width(x) == operand_last(x));
}

/* Makes an operand a matrix of its last dim; with `fill` its elements are read. */
static enum err_code open_matrix(const struct work *work, const struct work_operand *x, bool fill,
                                 struct matrix *out, struct err *err)
{
    *out = (struct matrix){operand_rows(x), operand_last(x), operand_last(x), x->data, NULL};
    if (is_plain(x)) {
        out->pitch = x->pitch ? x->pitch : out->columns;
        return ERR_OK;
    }
    TRY(host_scratch(work, operand_count(x), sizeof *out->copy, &out->copy, err));
    out->data = out->copy;
    if (fill)
        host_load(x, 0, operand_count(x), out->copy);
    return ERR_OK;
}

enum turned { AS_THEY_ARE, FIRST_TURNED, SECOND_TURNED };

static enum turned turned_of(enum work_kind kind)
{
    switch (kind) {
    case WORK_MATMUL_TN:
    case WORK_BMM_TN:
    case WORK_GROUPED_MM_TN:
        return FIRST_TURNED;
    case WORK_MATMUL_NT:
    case WORK_MATMUL_NT_BIAS:
    case WORK_BMM_NT:
    case WORK_GROUPED_MM_NT:
        return SECOND_TURNED;
    default:
        return AS_THEY_ARE;
    }
}

/* c = op(a) op(b). Nothing to sum is a sum of zero. */
static void multiply(enum turned turned, const struct matrix *a, const struct matrix *b,
                     const struct matrix *c)
{
    const bool a_turned = turned == FIRST_TURNED, b_turned = turned == SECOND_TURNED;
    const uint64_t depth = a_turned ? a->rows : a->columns;
    if (depth && c->rows && c->columns) {
        cblas_sgemm(CblasRowMajor, a_turned ? CblasTrans : CblasNoTrans,
                    b_turned ? CblasTrans : CblasNoTrans, (blasint)c->rows, (blasint)c->columns,
                    (blasint)depth, 1, a->data, (blasint)a->pitch, b->data, (blasint)b->pitch, 0,
                    c->data, (blasint)c->pitch);
        return;
    }
    for (uint64_t row = 0; row < c->rows; row++)
        for (uint64_t i = 0; i < c->columns; i++)
            c->data[row * c->pitch + i] = 0;
}

static enum err_code add_bias(const struct work *work, struct matrix *c, struct err *err)
{
    float *bias;
    TRY(host_scratch(work, c->columns, sizeof *bias, &bias, err));
    host_load(work_in(work, 2), 0, c->columns, bias);
    for (uint64_t row = 0; row < c->rows; row++)
        for (uint64_t i = 0; i < c->columns; i++)
            c->data[row * c->pitch + i] += bias[i];
    free(bias);
    return ERR_OK;
}

/* The operands of a product, and the result, which is stored at the end. */
struct product {
    struct matrix a, b, c;
};

static enum err_code open_product(const struct work *work, struct product *p, struct err *err)
{
    *p = (struct product){.a.copy = NULL};
    TRY(open_matrix(work, work_in(work, 0), true, &p->a, err));
    TRY(open_matrix(work, work_in(work, 1), true, &p->b, err));
    return open_matrix(work, work_out(work, 0), false, &p->c, err);
}

static void close_product(const struct work *work, struct product *p, enum err_code rc)
{
    if (rc == ERR_OK && p->c.copy)
        host_store(work_out(work, 0), 0, operand_count(work_out(work, 0)), p->c.copy);
    free(p->c.copy);
    free(p->b.copy);
    free(p->a.copy);
}

/* Rows [first, first + rows) of a matrix. */
static struct matrix rows_of(const struct matrix *m, uint64_t first, uint64_t rows)
{
    return (struct matrix){rows, m->columns, m->pitch, m->data + first * m->pitch, NULL};
}

enum err_code host_matmul(const struct work *work, struct err *err)
{
    struct product p;
    enum err_code rc = open_product(work, &p, err);
    if (rc == ERR_OK)
        multiply(turned_of(work->kind), &p.a, &p.b, &p.c);
    if (rc == ERR_OK && work->ins > 2)
        rc = add_bias(work, &p.c, err);
    close_product(work, &p, rc);
    return rc;
}

enum err_code host_bmm(const struct work *work, struct err *err)
{
    struct product p;
    const uint64_t batches = work_out(work, 0)->shape.dim[0];
    const enum err_code rc = open_product(work, &p, err);
    for (uint64_t i = 0; rc == ERR_OK && i < batches; i++) {
        const uint64_t rows[] = {p.a.rows / batches, p.b.rows / batches, p.c.rows / batches};
        const struct matrix a = rows_of(&p.a, i * rows[0], rows[0]);
        const struct matrix b = rows_of(&p.b, i * rows[1], rows[1]);
        const struct matrix c = rows_of(&p.c, i * rows[2], rows[2]);
        multiply(turned_of(work->kind), &a, &b, &c);
    }
    close_product(work, &p, rc);
    return rc;
}

/* Ends of groups rise to the number of rows at most. */
static enum err_code need_ends(const struct work *work, uint64_t rows, struct err *err)
{
    const struct work_operand *ends = work_in(work, 2);
    for (uint64_t i = 0, begin = 0; i < operand_count(ends); i++) {
        const int64_t end = host_index(ends, i);
        if (end < 0 || (uint64_t)end < begin || (uint64_t)end > rows)
            return work_refuse(work, ERR_INVALID, err, "group %llu ends at %lld of %llu rows",
                               (unsigned long long)i, (long long)end, (unsigned long long)rows);
        begin = (uint64_t)end;
    }
    return ERR_OK;
}

/* Each group of rows with its matrix: rows behind the last group stay zero. */
enum err_code host_grouped_mm(const struct work *work, struct err *err)
{
    struct product p;
    const bool to_weight = work->kind == WORK_GROUPED_MM_TN;
    const struct work_operand *ends = work_in(work, 2);
    const uint64_t groups = operand_count(ends), t = operand_rows(work_in(work, 0));
    TRY(need_ends(work, t, err));
    const enum err_code rc = open_product(work, &p, err);
    const struct matrix *weights = to_weight ? &p.c : &p.b, *rest = &p.c;
    const uint64_t each = groups ? weights->rows / groups : 0;
    uint64_t begin = 0;
    for (uint64_t g = 0; rc == ERR_OK && g < groups; g++) {
        const uint64_t rows = (uint64_t)host_index(ends, g) - begin;
        const struct matrix of_weights = rows_of(weights, g * each, each);
        const struct matrix a = rows_of(&p.a, begin, rows);
        const struct matrix b = to_weight ? rows_of(&p.b, begin, rows) : of_weights;
        const struct matrix c = to_weight ? of_weights : rows_of(&p.c, begin, rows);
        multiply(turned_of(work->kind), &a, &b, &c);
        begin += rows;
    }
    for (uint64_t row = begin; rc == ERR_OK && !to_weight && row < t; row++)
        for (uint64_t i = 0; i < rest->columns; i++)
            rest->data[row * rest->pitch + i] = 0;
    close_product(work, &p, rc);
    return rc;
}
