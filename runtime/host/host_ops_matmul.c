/* host_ops_matmul.c - a linear layer and its two gradients, by sgemm.
 *
 *     NT  y (t, o)  = x (t, h) · weight (o, h)ᵀ  [+ bias (o)]
 *     NN  dx (t, h) = dy (t, o) · weight (o, h)
 *     TN  dw (o, h) = dy (t, o)ᵀ · x (t, h)
 *
 * A 16-bit operand is copied to fp32 as a whole, so products and sums are fp32 and a result is
 * rounded once. fp32 operands are used where they are, also as a chunk of a wider tensor: the pitch
 * is the leading dimension. */
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
    return x->dtype == DTYPE_FP32 && (!x->pitch || operand_row_width(x) == operand_last(x));
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

/* c = op(a) op(b). Nothing to sum is a sum of zero. */
static void multiply(enum work_kind kind, const struct matrix *a, const struct matrix *b,
                     struct matrix *c)
{
    const bool a_turned = kind == WORK_MATMUL_TN;
    const bool b_turned = kind == WORK_MATMUL_NT || kind == WORK_MATMUL_NT_BIAS;
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

enum err_code host_matmul(const struct work *work, struct err *err)
{
    struct matrix a = {0}, b = {0}, c = {0};
    enum err_code rc = ERR_OK;
    TRY_GOTO(rc, open_matrix(work, work_in(work, 0), true, &a, err), done);
    TRY_GOTO(rc, open_matrix(work, work_in(work, 1), true, &b, err), done);
    TRY_GOTO(rc, open_matrix(work, work_out(work, 0), false, &c, err), done);
    multiply(work->kind, &a, &b, &c);
    if (work->kind == WORK_MATMUL_NT_BIAS)
        TRY_GOTO(rc, add_bias(work, &c, err), done);
    if (c.copy)
        host_store(work_out(work, 0), 0, operand_count(work_out(work, 0)), c.copy);
done:
    free(c.copy);
    free(b.copy);
    free(a.copy);
    return rc;
}
