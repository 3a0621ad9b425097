/* work_check_cuda.c - what the cuda backend's kernels ask of operands beyond what the host's do. */
#include "runtime/work/passes.h"
#include "runtime/work/turned.h"
#include "runtime/work/work_check_parts.h"

enum { HEAD_SIZE = 256 }; /* KERNEL_HEAD_SIZE of runtime/cuda/kernels.h */

/* ---- attention ---- */

/* Rows of `width` numbers that are neighbours. */
static enum err_code need_heads(const struct work *work, const struct work_operand *x,
                                struct shape shape, struct err *err)
{
    const struct view own = view_of(x);
    struct view seen;
    if (view_as(&own, &shape, &seen) && (shape.dim[3] <= 1 || seen.at.of[3] == 1))
        return ERR_OK;
    return work_refuse(work, ERR_UNSUPPORTED, err, "heads whose numbers lie apart");
}

static enum err_code need_scores(const struct work *work, const struct attention *at,
                                 const struct work_operand *x, struct err *err)
{
    const struct view own = view_of(x);
    const struct shape shape = SHAPE(at->b, at->a, at->s, at->s_k);
    struct view seen;
    if (view_as(&own, &shape, &seen))
        return ERR_OK;
    return work_refuse(work, ERR_UNSUPPORTED, err, "a bias that does not lie as the scores do");
}

static enum err_code check_attention(const struct work *work, bool backward, struct err *err)
{
    const struct attention at = work_attention(work);
    const uint32_t heads = at.a / at.repeats;
    const struct shape q = SHAPE(at.b, at.s, at.a, at.d), o = SHAPE(at.b, at.s, at.a, at.d_v);
    const struct shape k = SHAPE(at.b, at.s_k, heads, at.d), v = SHAPE(at.b, at.s_k, heads, at.d_v);
    if (at.d > HEAD_SIZE || at.d_v > HEAD_SIZE)
        return work_refuse(work, ERR_UNSUPPORTED, err, "heads of %u, more than %d",
                           at.d > at.d_v ? at.d : at.d_v, HEAD_SIZE);
    TRY(need_heads(work, at.q, q, err));
    TRY(need_heads(work, at.k, k, err));
    TRY(need_heads(work, at.v, v, err));
    if (at.bias)
        TRY(need_scores(work, &at, at.bias, err));
    if ((backward ? work_in(work, 4) : work_out(work, 1))->layout)
        return work_refuse(work, ERR_UNSUPPORTED, err, "a logsumexp with strides");
    if (!backward)
        return need_heads(work, work_out(work, 0), o, err);
    TRY(need_heads(work, work_in(work, 0), o, err));
    if (work->ins > 5 && !at.bias)
        TRY(need_heads(work, work_in(work, 5), o, err));
    TRY(need_heads(work, work_out(work, 0), q, err));
    TRY(need_heads(work, work_out(work, 1), k, err));
    TRY(need_heads(work, work_out(work, 2), v, err));
    return work->outs > 3 ? need_scores(work, &at, work_out(work, 3), err) : ERR_OK;
}

/* ---- products ---- */

/* Of one dtype, as the tensor cores take them; the result may be fp32. */
static enum err_code check_product(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *y = work_in(work, 1), *z = work_out(work, 0);
    if (x->dtype == y->dtype && (z->dtype == x->dtype || z->dtype == DTYPE_FP32))
        return ERR_OK;
    return work_refuse(work, ERR_UNSUPPORTED, err, "%s by %s to %s",
                       dtype_name((enum dtype)x->dtype), dtype_name((enum dtype)y->dtype),
                       dtype_name((enum dtype)z->dtype));
}

/* Matrices in rows, or in columns as far as another kind of product takes them so. */
static enum err_code check_matrices(const struct work *work, struct err *err)
{
    struct work_operand operand[TURNED_OPERANDS];
    struct work turned;
    if (work_turned(work, operand, &turned))
        return ERR_OK;
    return work_refuse(work, ERR_UNSUPPORTED, err,
                       "matrices with strides that cuBLAS has no product of");
}

/* ---- all of it ---- */

static enum err_code check_passes(const struct work *work, struct err *err)
{
    if (!work_passes(work, NULL, NULL))
        return work_refuse(work, ERR_UNSUPPORTED, err,
                           "the layouts of its operands do not go "
                           "together");
    if (work->kind == WORK_SORT && operand_count(work_in(work, 0)) > PASS_SORT_MOST)
        return work_refuse(work, ERR_UNSUPPORTED, err, "more than %d numbers", PASS_SORT_MOST);
    return ERR_OK;
}

enum err_code work_check_for_cuda(const struct work *work, struct err *err)
{
    switch (work->kind) {
    case WORK_ATTENTION:
    case WORK_EFFICIENT_ATTENTION:
        return check_attention(work, false, err);
    case WORK_ATTENTION_BACKWARD:
    case WORK_EFFICIENT_ATTENTION_BACKWARD:
        return check_attention(work, true, err);
    case WORK_MATMUL_NT:
    case WORK_MATMUL_NT_BIAS:
    case WORK_MATMUL_NN:
    case WORK_MATMUL_NN_BIAS:
    case WORK_MATMUL_TN:
        return check_matrices(work, err);
    case WORK_BMM_NN:
    case WORK_BMM_NT:
    case WORK_BMM_TN:
    case WORK_GROUPED_MM_NT:
    case WORK_GROUPED_MM_NN:
    case WORK_GROUPED_MM_TN:
        return check_product(work, err);
    case WORK_CONJUGATE:
        for (uint32_t i = 0; i < 2; i++)
            if (!operand_is_complex(&work->operand[i]))
                return work_refuse(work, ERR_UNSUPPORTED, err,
                                   "complex numbers that are a view with strides");
        return ERR_OK;
    default:
        return work_has_passes(work->kind) ? check_passes(work, err) : ERR_OK;
    }
}
