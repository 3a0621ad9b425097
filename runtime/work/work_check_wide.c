/* work_check_wide.c - what is taken in any layout: the kinds that transformers' code is made of, of
 * any real dtype where nothing needs a fraction, with broadcasting of any operand of elementwise
 * work. */
#include "runtime/work/passes.h"
#include "runtime/work/work_check_parts.h"

#include <limits.h>

/* ---- one operand ---- */

static bool is_number(const struct work_operand *x)
{
    return operand_is_float(x) || x->dtype == DTYPE_INT64 || x->dtype == DTYPE_INT32 ||
           x->dtype == DTYPE_BOOL;
}

static enum err_code need_number(const struct work *work, const struct work_operand *x,
                                 struct err *err)
{
    if (is_number(x))
        return ERR_OK;
    return work_refuse(work, ERR_UNSUPPORTED, err, "an operand is %s, which has no kernel",
                       dtype_name((enum dtype)x->dtype));
}

static enum err_code need_numbers(const struct work *work, struct err *err)
{
    for (uint32_t i = 0; i < work->ins + work->outs; i++)
        TRY(need_number(work, &work->operand[i], err));
    return ERR_OK;
}

static enum err_code need(const struct work *work, bool holds, const char *what, struct err *err)
{
    return holds ? ERR_OK : work_refuse(work, ERR_INVALID, err, "%s", what);
}

/* count == a b, which may be more than any number holds. */
static bool is_product(uint64_t count, uint64_t a, uint64_t b)
{
    uint64_t product;
    return !__builtin_mul_overflow(a, b, &product) && product == count;
}

/* Elements of a row of x's first dim. */
static uint64_t row_elements(const struct work_operand *x)
{
    return x->shape.rank && x->shape.dim[0] ? operand_count(x) / x->shape.dim[0] : 0;
}

/* ---- elementwise ---- */

/* Complex numbers are multiplied, by each other or a number; made of sizes and angles; turned. */
static bool is_of_complex(const struct work *work)
{
    const bool whole =
        work->kind == WORK_MUL || work->kind == WORK_MUL_NUMBER || work->kind == WORK_CONJUGATE;
    for (uint32_t i = 0; i < work->ins; i++)
        if (whole ? work_in(work, i)->dtype != DTYPE_COMPLEX64 : !is_number(work_in(work, i)))
            return false;
    return (whole || work->kind == WORK_POLAR) && work_out(work, 0)->dtype == DTYPE_COMPLEX64 &&
           !work_out(work, 0)->pitch;
}

static enum err_code check_elementwise(const struct work *work, struct err *err)
{
    const struct work_operand *z = work_out(work, 0);
    uint64_t stride[SHAPE_DIMS];
    if (work->kind == WORK_POLAR || work->kind == WORK_CONJUGATE)
        TRY(need(work, is_of_complex(work), "the operands are not complex64", err));
    if (work->kind == WORK_POLAR)
        TRY(need(work,
                 operand_count(work_in(work, 0)) == operand_count(z) &&
                     operand_count(work_in(work, 1)) == operand_count(z),
                 "sizes and angles are not as many as numbers", err));
    if (!is_of_complex(work))
        TRY(need_numbers(work, err));
    for (uint32_t i = 0; i < work->ins; i++) {
        const struct work_operand *x = work_in(work, i);
        if (operand_count(x) != operand_count(z) && !shape_spread(&x->shape, &z->shape, stride))
            return work_refuse(work, ERR_INVALID, err,
                               "operand %u has %llu elements and does not broadcast to %llu", i,
                               (unsigned long long)operand_count(x),
                               (unsigned long long)operand_count(z));
    }
    for (uint32_t o = 1; o < work->outs; o++)
        TRY(need(work, operand_count(work_out(work, o)) == operand_count(z),
                 "results are of different sizes", err));
    return ERR_OK;
}

static enum err_code check_fill(const struct work *work, struct err *err)
{
    return need_number(work, work_out(work, 0), err);
}

/* ---- matrices ---- */

static enum err_code need_matrix(const struct work *work, const struct work_operand *x,
                                 uint32_t rank, struct err *err)
{
    TRY(work_need_count(work, "a matrix", x, operand_count(x), err));
    if (x->shape.rank != rank || operand_rows(x) > INT_MAX || operand_last(x) > INT_MAX)
        return work_refuse(work, ERR_UNSUPPORTED, err, "matrices of %u dims, %llu rows by %llu",
                           x->shape.rank, (unsigned long long)operand_rows(x),
                           (unsigned long long)operand_last(x));
    return ERR_OK;
}

/* (m, k) by (k, o) is (m, o), for matrices that are (rows, columns). */
static bool product_fits(bool first_turned, bool second_turned, const uint32_t *x,
                         const uint32_t *y, const uint32_t *z)
{
    return x[first_turned] == z[0] && x[!first_turned] == y[second_turned] &&
           y[!second_turned] == z[1];
}

static enum err_code check_bmm(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *y = work_in(work, 1), *z = work_out(work, 0);
    const uint32_t *a = x->shape.dim, *b = y->shape.dim, *c = z->shape.dim;
    for (uint32_t i = 0; i < 3; i++)
        TRY(need_matrix(work, &work->operand[i], 3, err));
    return need(
        work,
        a[0] == b[0] && a[0] == c[0] &&
            product_fits(work->kind == WORK_BMM_TN, work->kind == WORK_BMM_NT, a + 1, b + 1, c + 1),
        "the batches of matrices do not fit", err);
}

static enum err_code check_grouped_mm(const struct work *work, struct err *err)
{
    const struct work_operand *ends = work_in(work, 2);
    const bool to_weight = work->kind == WORK_GROUPED_MM_TN;
    const struct work_operand *weight = to_weight ? work_out(work, 0) : work_in(work, 1);
    const struct work_operand *other = to_weight ? work_in(work, 1) : work_out(work, 0);
    TRY(need_matrix(work, work_in(work, 0), 2, err));
    TRY(need_matrix(work, weight, 3, err));
    TRY(need_matrix(work, other, 2, err));
    TRY(work_need_index(work, "ends", ends, err));
    const uint32_t *x = work_in(work, 0)->shape.dim, *w = weight->shape.dim, *y = other->shape.dim;
    const bool turned = work->kind == WORK_GROUPED_MM_NT;
    const bool fits = to_weight
                          ? x[0] == y[0] && x[1] == w[1] && y[1] == w[2]
                          : x[0] == y[0] && x[1] == w[turned ? 2 : 1] && y[1] == w[turned ? 1 : 2];
    return need(work, fits && operand_count(ends) == w[0], "the groups of rows do not fit", err);
}

/* ---- reductions ---- */

static enum err_code check_to_one(const struct work *work, struct err *err)
{
    TRY(need_numbers(work, err));
    return need(work, operand_count(work_out(work, 0)) == 1, "the result is not one number", err);
}

static enum err_code check_rows(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    TRY(need_numbers(work, err));
    return need(work, operand_count(x) == operand_count(y) && operand_last(x) == operand_last(y),
                "x and y have other rows", err);
}

static enum err_code check_mean(const struct work *work, struct err *err)
{
    TRY(need_numbers(work, err));
    return need(work, operand_rows(work_in(work, 0)) == operand_count(work_out(work, 0)),
                "there is not one mean a row", err);
}

static enum err_code check_sum(const struct work *work, struct err *err)
{
    uint64_t stride[SHAPE_DIMS];
    if ((enum dtype)work_in(work, 0)->dtype != DTYPE_BOOL) /* how many are true */
        TRY(need_numbers(work, err));
    return need(work, shape_spread(&work_out(work, 0)->shape, &work_in(work, 0)->shape, stride),
                "y's dims are neither x's nor 1", err);
}

static enum err_code check_sum_dim(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0);
    TRY(need_numbers(work, err));
    TRY(need(work, work->attr.dim < x->shape.rank, "x has no such dim", err));
    return need(work,
                is_product(operand_count(x), operand_count(work_out(work, 0)),
                           x->shape.dim[work->attr.dim]),
                "y is not x without that dim", err);
}

/* ---- shapes ---- */

static enum err_code check_repeat(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const uint32_t dim = work->attr.dim;
    uint64_t elements = 1;
    TRY(need(work, dim < y->shape.rank, "y has no such dim", err));
    for (uint32_t i = 0; i < y->shape.rank; i++)
        elements *= i == dim ? 1 : y->shape.dim[i];
    TRY(need_numbers(work, err));
    if (operand_count(x) != elements)
        return work_refuse(work, ERR_INVALID, err, "x has %llu elements instead of %llu",
                           (unsigned long long)operand_count(x), (unsigned long long)elements);
    return ERR_OK;
}

static enum err_code check_cat(const struct work *work, struct err *err)
{
    const struct work_operand *y = work_out(work, 0);
    const uint64_t rows = operand_rows(y), last = operand_last(y);
    uint64_t width = 0;
    TRY(need_numbers(work, err));
    for (uint32_t i = 0; i < work->ins; i++) {
        const struct work_operand *part = work_in(work, i);
        if (operand_count(part) != rows * operand_last(part))
            return work_refuse(work, ERR_INVALID, err, "part %u has %llu rows instead of %llu", i,
                               (unsigned long long)operand_rows(part), (unsigned long long)rows);
        width += operand_last(part);
    }
    if (width != last && !(work->ins == 1 && 2 * width == last))
        return work_refuse(work, ERR_INVALID, err, "parts are %llu wide together, y %llu",
                           (unsigned long long)width, (unsigned long long)last);
    return ERR_OK;
}

static enum err_code check_interleave(const struct work *work, struct err *err)
{
    const uint64_t count = operand_count(work_out(work, 0));
    TRY(need_numbers(work, err));
    return need(work,
                2 * operand_count(work_in(work, 0)) == count &&
                    2 * operand_count(work_in(work, 1)) == count,
                "x and y are not halves of z", err);
}

static enum err_code check_pad(const struct work *work, struct err *err)
{
    TRY(need_numbers(work, err));
    return need(work, operand_rows(work_in(work, 0)) == operand_rows(work_out(work, 0)),
                "x and y have not as many rows", err);
}

/* A part of the last dim: the narrower operand's, in the other's. */
static enum err_code check_slice(const struct work *work, struct err *err)
{
    const bool cut = work->kind == WORK_SLICE, strided = work->kind == WORK_STRIDE_BACKWARD;
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const struct work_operand *part = cut ? y : x, *whole = cut ? x : y;
    const uint64_t step = strided ? work->attr.dim : 1, width = operand_last(part);
    const uint64_t reach = width ? work->attr.first + (width - 1) * step + 1 : 0;
    TRY(need_numbers(work, err));
    TRY(need(work, operand_rows(part) == operand_rows(whole) || width == 0,
             "x and y have not as many rows", err));
    return need(work, step > 0 && reach <= operand_last(whole), "the slice is not inside", err);
}

/* ---- by index ---- */

static enum err_code check_index(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *ids = work_in(work, 1);
    TRY(need_numbers(work, err));
    TRY(work_need_index(work, "ids", ids, err));
    return need(work,
                x->shape.rank > 0 && is_product(operand_count(work_out(work, 0)),
                                                operand_count(ids), row_elements(x)),
                "y has not a row of x for each id", err);
}

static enum err_code check_index_put(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *ids = work_in(work, 1);
    TRY(need_numbers(work, err));
    TRY(work_need_index(work, "ids", ids, err));
    return need(
        work,
        x->shape.rank > 0 && operand_count(work_out(work, 0)) == operand_count(x) &&
            is_product(operand_count(work_in(work, 2)), operand_count(ids), row_elements(x)),
        "there is not a row for each id", err);
}

static enum err_code check_gather(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *ids = work_in(work, 1);
    TRY(need_numbers(work, err));
    TRY(work_need_index(work, "ids", ids, err));
    return need(work,
                operand_rows(x) == operand_rows(ids) &&
                    operand_count(work_out(work, 0)) == operand_count(ids),
                "x, ids and y have not as many rows", err);
}

static enum err_code check_scatter(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *ids = work_in(work, 1);
    TRY(need_numbers(work, err));
    TRY(work_need_index(work, "ids", ids, err));
    return need(work,
                operand_rows(x) == operand_rows(ids) &&
                    operand_count(work_in(work, 2)) == operand_count(ids) &&
                    operand_count(work_out(work, 0)) == operand_count(x),
                "x, ids, y and z do not fit", err);
}

static enum err_code check_scatter_number(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_out(work, 0), *ids = work_in(work, 1);
    TRY(need_numbers(work, err));
    TRY(work_need_index(work, "ids", ids, err));
    return need(work,
                operand_rows(x) == operand_rows(ids) &&
                    operand_count(work_in(work, 0)) == operand_count(x),
                "ids do not belong to rows of x, or y is not as large", err);
}

static enum err_code check_topk(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const uint64_t rows = operand_rows(x), m = rows ? operand_count(y) / rows : 0;
    TRY(need_numbers(work, err));
    TRY(work_need_index(work, "places", work_out(work, 1), err));
    return need(work,
                m <= operand_last(x) && m * rows == operand_count(y) &&
                    operand_count(work_out(work, 1)) == operand_count(y) &&
                    operand_last(x) <= UINT32_MAX,
                "not as many can be chosen of each row", err);
}

static enum err_code check_permutation(const struct work *work, struct err *err)
{
    TRY(work_need_index(work, "ids", work_in(work, 0), err));
    TRY(work_need_index(work, "y", work_out(work, 0), err));
    return need(work, operand_count(work_in(work, 0)) == operand_count(work_out(work, 0)),
                "ids and y are of different sizes", err);
}

static enum err_code check_histogram(const struct work *work, struct err *err)
{
    return need_numbers(work, err);
}

/* ---- attention ---- */

static enum err_code need_bias(const struct work *work, const struct work_operand *bias,
                               struct err *err)
{
    const struct attention at = work_attention(work);
    const struct shape scores = SHAPE(at.b, at.a, at.s, at.s_k);
    uint64_t stride[SHAPE_DIMS];
    TRY(work_need_count(work, "a bias", bias, operand_count(bias), err));
    TRY(need(work, !at.causal && !at.window && !(at.softcap > 0),
             "a bias is beside what is causal, a window or a cap", err));
    return need(work, shape_spread(&bias->shape, &scores, stride),
                "the bias does not broadcast to the scores", err);
}

static enum err_code check_efficient(const struct work *work, struct err *err)
{
    TRY(work_check_attention(work, err));
    return work->ins > 3 ? need_bias(work, work_in(work, 3), err) : ERR_OK;
}

static enum err_code check_efficient_backward(const struct work *work, struct err *err)
{
    TRY(work_check_attention_backward(work, err));
    if (work->ins > 5)
        TRY(need_bias(work, work_in(work, 5), err));
    if (work->outs < 4)
        return ERR_OK;
    const struct attention at = work_attention(work);
    const struct work_operand *dbias = work_out(work, 3);
    TRY(work_need_count(work, "the bias's gradient", dbias, operand_count(dbias), err));
    return need(work,
                is_product(operand_count(dbias), (uint64_t)at.b * at.a, (uint64_t)at.s * at.s_k),
                "the bias's gradient is not as large as the scores", err);
}

static enum err_code check_softmax(const struct work *work, struct err *err)
{
    const struct work_operand *y = work_out(work, 0);
    for (uint32_t i = 0; i <= work->ins; i++) /* operands in, and y */
        TRY(work_need_count(work, "x", &work->operand[i], operand_count(y), err));
    TRY(need(work, operand_last(work_in(work, 0)) == operand_last(y), "x and y have other rows",
             err));
    if (work->outs > 1)
        TRY(need(work,
                 is_number(work_out(work, 1)) &&
                     operand_count(work_out(work, 1)) == operand_count(y),
                 "what is masked is not as large as y", err));
    if (work->outs > 2)
        TRY(need(work,
                 is_number(work_out(work, 2)) &&
                     operand_count(work_out(work, 2)) == operand_rows(y),
                 "masked rows are not as many as y's", err));
    return ERR_OK;
}

static enum err_code check_copy(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const bool numbers = is_number(x) && is_number(y);
    TRY(need(work, x->dtype == y->dtype && operand_count(x) == operand_count(y),
             "x and y are not alike", err));
    return need(work, numbers || (!x->pitch && !y->pitch && !x->layout && !y->layout),
                "numbers of this dtype are copied without gaps only", err);
}

/* Numbers of any dtype, or of one that is only moved. */
static enum err_code check_pack(const struct work *work, struct err *err)
{
    const struct work_operand *y = work_out(work, 0);
    uint64_t total = 0;
    for (uint32_t i = 0; i < work->ins; i++) {
        const struct work_operand *x = work_in(work, i);
        const bool moved =
            x->dtype == y->dtype && !x->pitch && !y->pitch && !x->layout && !y->layout;
        TRY(need(work, moved || (operand_is_float(x) && operand_is_float(y)),
                 "a part is of another dtype", err));
        total += operand_count(x);
    }
    if (total == operand_count(y))
        return ERR_OK;
    return work_refuse(work, ERR_INVALID, err, "parts of %llu elements for %llu",
                       (unsigned long long)total, (unsigned long long)operand_count(y));
}

/* ---- the table ---- */

static const struct work_entry entries[WORK_KIND_COUNT] = {
    [WORK_ADD_NUMBER] = {check_elementwise, 1, 1, 1},
    [WORK_ADD_IN_PLACE] = {check_elementwise, 1, 1, 1},
    [WORK_MUL_NUMBER] = {check_elementwise, 1, 1, 1},
    [WORK_DIV_NUMBER] = {check_elementwise, 1, 1, 1},
    [WORK_FLOOR_DIV_NUMBER] = {check_elementwise, 1, 1, 1},
    [WORK_AT_MOST] = {check_elementwise, 1, 1, 1},
    [WORK_AT_LEAST] = {check_elementwise, 1, 1, 1},
    [WORK_WITHIN] = {check_elementwise, 1, 1, 1},
    [WORK_NEG] = {check_elementwise, 1, 1, 1},
    [WORK_ABS] = {check_elementwise, 1, 1, 1},
    [WORK_POW] = {check_elementwise, 1, 1, 1},
    [WORK_POWER_OF] = {check_elementwise, 1, 1, 1},
    [WORK_SQUARE] = {check_elementwise, 1, 1, 1},
    [WORK_SQUARE_ROOT] = {check_elementwise, 1, 1, 1},
    [WORK_RSQRT] = {check_elementwise, 1, 1, 1},
    [WORK_LOG] = {check_elementwise, 1, 1, 1},
    [WORK_COS] = {check_elementwise, 1, 1, 1},
    [WORK_SIN] = {check_elementwise, 1, 1, 1},
    [WORK_TANH] = {check_elementwise, 1, 1, 1},
    [WORK_CAST] = {check_elementwise, 1, 1, 1},
    [WORK_REORDER] = {check_elementwise, 1, 1, 1},
    [WORK_EQUAL_NUMBER] = {check_elementwise, 1, 1, 1},
    [WORK_NOT_EQUAL_NUMBER] = {check_elementwise, 1, 1, 1},
    [WORK_LESS_NUMBER] = {check_elementwise, 1, 1, 1},
    [WORK_GREATER_NUMBER] = {check_elementwise, 1, 1, 1},
    [WORK_IS_INFINITE] = {check_elementwise, 1, 1, 1},
    [WORK_SIGMOID] = {check_elementwise, 1, 1, 1},
    [WORK_SILU] = {check_elementwise, 1, 1, 1},
    [WORK_GELU] = {check_elementwise, 1, 1, 1},
    [WORK_GELU_TANH] = {check_elementwise, 1, 1, 1},
    [WORK_RELU] = {check_elementwise, 1, 1, 1},
    [WORK_SOFTPLUS] = {check_elementwise, 1, 1, 1},
    [WORK_EXPM1] = {check_elementwise, 1, 1, 1},
    [WORK_ADD] = {check_elementwise, 2, 2, 1},
    [WORK_SUB] = {check_elementwise, 2, 2, 1},
    [WORK_ADD_TO] = {check_elementwise, 2, 2, 1},
    [WORK_MUL] = {check_elementwise, 2, 2, 1},
    [WORK_DIV] = {check_elementwise, 2, 2, 1},
    [WORK_DIV_IN_PLACE] = {check_elementwise, 2, 2, 2},
    [WORK_MINIMUM] = {check_elementwise, 2, 2, 1},
    [WORK_TANH_BACKWARD] = {check_elementwise, 2, 2, 1},
    [WORK_EQUAL] = {check_elementwise, 2, 2, 1},
    [WORK_LESS] = {check_elementwise, 2, 2, 1},
    [WORK_LESS_EQUAL] = {check_elementwise, 2, 2, 1},
    [WORK_GREATER] = {check_elementwise, 2, 2, 1},
    [WORK_GREATER_EQUAL] = {check_elementwise, 2, 2, 1},
    [WORK_AND] = {check_elementwise, 2, 2, 1},
    [WORK_OR] = {check_elementwise, 2, 2, 1},
    [WORK_MASKED_FILL] = {check_elementwise, 2, 2, 1},
    [WORK_SIGMOID_BACKWARD] = {check_elementwise, 2, 2, 1},
    [WORK_SILU_BACKWARD] = {check_elementwise, 2, 2, 1},
    [WORK_GELU_BACKWARD] = {check_elementwise, 2, 2, 1},
    [WORK_GELU_TANH_BACKWARD] = {check_elementwise, 2, 2, 1},
    [WORK_RELU_BACKWARD] = {check_elementwise, 2, 2, 1},
    [WORK_SOFTPLUS_BACKWARD] = {check_elementwise, 2, 2, 1},
    [WORK_POLAR] = {check_elementwise, 2, 2, 1},
    [WORK_CONJUGATE] = {check_elementwise, 1, 1, 1},
    [WORK_CLAMP] = {check_elementwise, 3, 3, 1},
    [WORK_WHERE] = {check_elementwise, 3, 3, 1},
    [WORK_FILL] = {check_fill, 0, 1, 1},
    [WORK_FILL_LOWEST] = {check_fill, 0, 1, 1},
    [WORK_MATMUL_NN_BIAS] = {work_check_matmul, 3, 3, 1},
    [WORK_BMM_NN] = {check_bmm, 2, 2, 1},
    [WORK_BMM_NT] = {check_bmm, 2, 2, 1},
    [WORK_BMM_TN] = {check_bmm, 2, 2, 1},
    [WORK_GROUPED_MM_NT] = {check_grouped_mm, 3, 3, 1},
    [WORK_GROUPED_MM_NN] = {check_grouped_mm, 3, 3, 1},
    [WORK_GROUPED_MM_TN] = {check_grouped_mm, 3, 3, 1},
    [WORK_MAXIMUM] = {check_to_one, 1, 1, 1},
    [WORK_LEAST] = {check_to_one, 1, 1, 1},
    [WORK_ALL] = {check_to_one, 1, 1, 1},
    [WORK_ANY] = {check_to_one, 1, 1, 1},
    [WORK_LOWER_TRIANGLE] = {check_rows, 1, 1, 1},
    [WORK_CUMULATIVE_SUM] = {check_rows, 1, 1, 1},
    [WORK_MEAN] = {check_mean, 1, 1, 1},
    [WORK_SUM] = {check_sum, 1, 1, 1},
    [WORK_SUM_DIM] = {check_sum_dim, 1, 1, 1},
    [WORK_COPY] = {check_copy, 1, 1, 1},
    [WORK_PACK] = {check_pack, 0, ANY_NUMBER, 1},
    [WORK_REPEAT] = {check_repeat, 1, 1, 1},
    [WORK_CAT] = {check_cat, 1, ANY_NUMBER, 1},
    [WORK_INTERLEAVE] = {check_interleave, 2, 2, 1},
    [WORK_PAD] = {check_pad, 1, 1, 1},
    [WORK_SLICE] = {check_slice, 1, 1, 1},
    [WORK_PUT_SLICE] = {check_slice, 1, 2, 1},
    [WORK_SLICE_BACKWARD] = {check_slice, 1, 1, 1},
    [WORK_STRIDE_BACKWARD] = {check_slice, 1, 1, 1},
    [WORK_INDEX] = {check_index, 2, 2, 1},
    [WORK_INDEX_PUT] = {check_index_put, 3, 3, 1},
    [WORK_GATHER] = {check_gather, 2, 2, 1},
    [WORK_SCATTER] = {check_scatter, 3, 3, 1},
    [WORK_SCATTER_NUMBER] = {check_scatter_number, 2, 2, 1},
    [WORK_TOPK] = {check_topk, 1, 1, 2},
    [WORK_SORT] = {check_topk, 1, 1, 2},
    [WORK_INVERT_PERMUTATION] = {check_permutation, 1, 1, 1},
    [WORK_HISTOGRAM] = {check_histogram, 1, 1, 1},
    [WORK_EFFICIENT_ATTENTION] = {check_efficient, 3, 4, 2},
    [WORK_EFFICIENT_ATTENTION_BACKWARD] = {check_efficient_backward, 5, 6, 3},
    [WORK_SOFTMAX] = {check_softmax, 1, 1, 1},
    [WORK_SAFE_SOFTMAX] = {check_softmax, 1, 1, 1},
    [WORK_SOFTMAX_BACKWARD] = {check_softmax, 2, 2, 1},
};

const struct work_entry *work_wide_entry(enum work_kind kind)
{
    return entries[kind].check ? &entries[kind] : NULL;
}

/* The host's kernels read operands as lists; others go through them by passes (passes.h), or have
 * kernels with strides of their own. */
bool work_takes_strides(enum work_kind kind, enum work_backend backend)
{
    switch (kind) {
    case WORK_BMM_NN:
    case WORK_BMM_NT:
    case WORK_BMM_TN:
    case WORK_GROUPED_MM_NT:
    case WORK_GROUPED_MM_NN:
    case WORK_GROUPED_MM_TN:
    case WORK_ATTENTION:
    case WORK_ATTENTION_BACKWARD:
    case WORK_EFFICIENT_ATTENTION:
    case WORK_EFFICIENT_ATTENTION_BACKWARD:
    case WORK_MATMUL_NT: /* on cuda as far as turned.h takes them */
    case WORK_MATMUL_NT_BIAS:
    case WORK_MATMUL_NN:
    case WORK_MATMUL_NN_BIAS:
    case WORK_MATMUL_TN:
        return true;
    case WORK_RMS_NORM:
    case WORK_RMS_NORM_BACKWARD:
    case WORK_LAYER_NORM:
    case WORK_LAYER_NORM_BACKWARD:
    case WORK_LOG_SOFTMAX:
    case WORK_LOG_SOFTMAX_BACKWARD:
    case WORK_NLL_LOSS:
    case WORK_NLL_LOSS_BACKWARD:
        return backend == WORK_ON_HOST;
    default:
        return work_has_passes(kind) || (backend == WORK_ON_HOST && entries[kind].check);
    }
}
