/* work_check_products.c - what matrix products and attention need of their operands; see
 * work_check_parts.h. */
#include "runtime/work/work_check_parts.h"

#include <limits.h>

enum err_code work_check_matmul(const struct work *work, struct err *err)
{
    const struct work_operand *a = work_in(work, 0), *b = work_in(work, 1), *c = work_out(work, 0);
    const struct work_operand *const all[] = {a, b, c};
    uint64_t rows[3], columns[3];
    for (int i = 0; i < 3; i++) {
        rows[i] = operand_rows(all[i]);
        columns[i] = operand_last(all[i]);
        TRY(work_need_count(work, "a matrix", all[i], operand_count(all[i]), err));
        if (rows[i] > INT_MAX || columns[i] > INT_MAX)
            return work_refuse(work, ERR_UNSUPPORTED, err, "a matrix of %llu rows by %llu",
                               (unsigned long long)rows[i], (unsigned long long)columns[i]);
    }
    bool fit = rows[2] == rows[0] && columns[0] == columns[1] && columns[2] == rows[1]; /* NT */
    if (work->kind == WORK_MATMUL_TN)
        fit = rows[0] == rows[1] && rows[2] == columns[0] && columns[2] == columns[1];
    else if (work->kind == WORK_MATMUL_NN || work->kind == WORK_MATMUL_NN_BIAS)
        fit = columns[0] == rows[1] && rows[2] == rows[0] && columns[2] == columns[1];
    if (!fit)
        return work_refuse(work, ERR_INVALID, err,
                           "(%llu, %llu) and (%llu, %llu) do not give (%llu, %llu)",
                           (unsigned long long)rows[0], (unsigned long long)columns[0],
                           (unsigned long long)rows[1], (unsigned long long)columns[1],
                           (unsigned long long)rows[2], (unsigned long long)columns[2]);
    if (work->ins > 2)
        return work_need_count(work, "bias", work_in(work, 2), columns[2], err);
    return ERR_OK;
}

/* Whether `x` has the elements of q (k where `keys`, as wide as v where `values`) in the memory
 * order (b, s, a, d): o and the gradients are born with shape (b, a, s, d), which is that memory
 * transposed. */
static enum err_code need_heads(const struct work *work, const struct attention *at,
                                const char *name, const struct work_operand *x, bool keys,
                                bool values, struct err *err)
{
    const uint64_t tokens = (uint64_t)at->b * (keys ? at->s_k : at->s);
    const uint32_t heads = keys ? at->a / at->repeats : at->a;
    TRY(work_need_count(work, name, x, tokens * heads * (values ? at->d_v : at->d), err));
    if (x->pitch && (x->shape.rank != 4 || x->shape.dim[2] != heads))
        return work_refuse(work, ERR_INVALID, err, "%s has a pitch and is not (b, s, a, d)", name);
    return ERR_OK;
}

/* q, k, v at operands `first` and on, and the logsumexp. */
static enum err_code check_queries(const struct work *work, uint32_t first,
                                   const struct work_operand *logsumexp, struct err *err)
{
    for (uint32_t i = first; i < first + 3; i++)
        if (work_in(work, i)->shape.rank != 4)
            return work_refuse(work, ERR_INVALID, err, "q, k, v are not (b, s, a, d)");
    const struct attention at = work_attention(work);
    const uint32_t *k = at.k->shape.dim, *v = at.v->shape.dim;
    TRY(work_need_count(work, "q", at.q, operand_count(at.q), err));
    TRY(work_need_count(work, "k", at.k, operand_count(at.k), err));
    TRY(work_need_count(work, "v", at.v, operand_count(at.v), err));
    if (k[0] != at.b || k[3] != at.d || v[0] != at.b || v[1] != at.s_k || v[2] != k[2] ||
        at.repeats == 0 || k[2] * at.repeats != at.a)
        return work_refuse(work, ERR_INVALID, err, "k and v do not have q's heads");
    if (logsumexp->dtype != DTYPE_FP32 || logsumexp->pitch || at.logsumexp_pitch < at.s ||
        operand_count(logsumexp) != (uint64_t)at.b * at.a * at.logsumexp_pitch)
        return work_refuse(work, ERR_INVALID, err, "logsumexp is not (b, a, s) in fp32");
    if (work->attr.p > 0)
        return work_refuse(work, ERR_UNSUPPORTED, err, "dropout %g", (double)work->attr.p);
    return ERR_OK;
}

enum err_code work_check_attention(const struct work *work, struct err *err)
{
    TRY(check_queries(work, 0, work_out(work, 1), err));
    const struct attention at = work_attention(work);
    return need_heads(work, &at, "o", work_out(work, 0), false, true, err);
}

enum err_code work_check_attention_backward(const struct work *work, struct err *err)
{
    TRY(check_queries(work, 1, work_in(work, 4), err));
    if (work->outs > 3 && work->kind == WORK_ATTENTION_BACKWARD)
        return work_refuse(work, ERR_UNSUPPORTED, err, "the gradient of a bias");
    const struct attention at = work_attention(work);
    TRY(need_heads(work, &at, "do", work_in(work, 0), false, true, err));
    if (work->ins > 5 && !at.bias)
        TRY(need_heads(work, &at, "o", work_in(work, 5), false, true, err));
    for (uint32_t i = 0; i < 3; i++)
        TRY(need_heads(work, &at, "a gradient", work_out(work, i), i > 0, i == 2, err));
    return ERR_OK;
}
