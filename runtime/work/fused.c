/* fused.c - see fused.h. */
#include "runtime/work/fused.h"

bool work_rotate_spread(const struct work *work, struct shape *pairs, uint64_t step[SHAPE_DIMS])
{
    const struct work_operand *x = work_in(work, 0), *angles = work_in(work, 1);
    *pairs = x->shape;
    if (pairs->rank == 0 || pairs->dim[pairs->rank - 1] % 2)
        return false;
    pairs->dim[pairs->rank - 1] /= 2;
    return shape_spread(&angles->shape, pairs, step);
}

/* Pairs of x lie beside each other in y, too, and in a chunk of a wider tensor. */
enum err_code work_check_rotate(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0), *angles = work_in(work, 1);
    const uint64_t count = operand_count(x);
    uint64_t step[SHAPE_DIMS];
    struct shape pairs;
    TRY(work_need_count(work, "x", x, count, err));
    TRY(work_need_count(work, "y", work_out(work, 0), count, err));
    if (x->pitch % 2 || work_out(work, 0)->pitch % 2 || !operand_is_complex(angles) ||
        !work_rotate_spread(work, &pairs, step))
        return work_refuse(work, ERR_INVALID, err, "the angles do not fit pairs of x");
    return ERR_OK;
}

/* GATE, PRODUCTS: every operand is as large as the first. */
enum err_code work_check_gate(const struct work *work, struct err *err)
{
    const uint64_t count = operand_count(work_in(work, 0));
    for (uint32_t i = 0; i < work->ins + work->outs; i++)
        TRY(work_need_count(work, i < work->ins ? "x" : "y", &work->operand[i], count, err));
    return ERR_OK;
}

enum err_code work_check_add_rms_norm(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0);
    const uint64_t count = operand_count(x);
    TRY(work_need_count(work, "x", x, count, err));
    TRY(work_need_count(work, "y", work_in(work, 1), count, err));
    TRY(work_need_count(work, "weight", work_in(work, 2), operand_last(x), err));
    TRY(work_need_count(work, "x + y", work_out(work, 0), count, err));
    TRY(work_need_count(work, "the norm", work_out(work, 1), count, err));
    return work_need_count(work, "rstd", work_out(work, 2), operand_rows(x), err);
}

enum err_code work_check_rms_norm_backward_add(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 1);
    const struct norm_backward_add to = work_norm_backward_add(work);
    const uint64_t count = operand_count(x);
    TRY(work_need_count(work, "dy", work_in(work, 0), count, err));
    TRY(work_need_count(work, "x", x, count, err));
    TRY(work_need_count(work, "weight", work_in(work, 2), operand_last(x), err));
    TRY(work_need_count(work, "rstd", work_in(work, 3), operand_rows(x), err));
    TRY(work_need_count(work, "dx", to.dx, count, err));
    TRY(work_need_count(work, "z", to.z, count, err));
    return to.dweight ? work_need_count(work, "dweight", to.dweight, operand_last(x), err) : ERR_OK;
}

enum err_code work_check_cross_entropy_slope(const struct work *work, struct err *err)
{
    const struct work_operand *targets = work_in(work, 1), *y = work_in(work, 2);
    TRY(work_need_count(work, "dloss", work_in(work, 0), 1, err));
    TRY(work_need_index(work, "targets", targets, err));
    TRY(work_need_count(work, "y", y, operand_count(y), err));
    TRY(work_need_count(work, "dx", work_out(work, 0), operand_count(y), err));
    if (operand_count(targets) != operand_rows(y))
        return work_refuse(work, ERR_INVALID, err, "%llu targets for %llu rows",
                           (unsigned long long)operand_count(targets),
                           (unsigned long long)operand_rows(y));
    return ERR_OK;
}
