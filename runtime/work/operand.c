/* operand.c - see operand.h; work_check is in work_check.c. */
#include "runtime/work/operand.h"

#include "base/placement.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint64_t operand_row_width(const struct work_operand *x)
{
    return shape_row(&x->shape, x->pitch);
}

bool operand_is_float(const struct work_operand *x)
{
    return x->dtype == DTYPE_FP32 || x->dtype == DTYPE_BF16 || x->dtype == DTYPE_FP16;
}

bool operand_is_index(const struct work_operand *x)
{
    return (x->dtype == DTYPE_INT64 || x->dtype == DTYPE_INT32) && !x->pitch;
}

bool operand_is_complex(const struct work_operand *x)
{
    return x->dtype == DTYPE_COMPLEX64 && !x->pitch && !x->layout;
}

bool operand_same_shape(const struct work_operand *x, const struct work_operand *y)
{
    return x->shape.rank == y->shape.rank &&
           memcmp(x->shape.dim, y->shape.dim, x->shape.rank * sizeof *x->shape.dim) == 0;
}

bool shape_spread(const struct shape *y, const struct shape *z, uint64_t stride[SHAPE_DIMS])
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < SHAPE_DIMS; i++)
        stride[i] = 0;
    for (uint32_t i = 1; i <= y->rank; i++) { /* i-th dim from the right */
        const uint32_t dim = y->dim[y->rank - i];
        if (dim != 1) {
            if (i > z->rank || z->dim[z->rank - i] != dim)
                return false;
            stride[z->rank - i] = elements;
        }
        elements *= dim;
    }
    return true;
}

uint64_t operand_chunk(const struct work_operand *x, uint32_t ranks)
{
    const uint64_t rows = x->shape.rank ? x->shape.dim[0] : 1;
    return rows ? placement_chunk(rows, ranks) * (operand_count(x) / rows) : 0;
}

struct norm_gradients work_norm_gradients(const struct work *work)
{
    struct norm_gradients to = {0};
    uint32_t i = 0;
    if (work_out(work, 0)->shape.rank == work_in(work, 1)->shape.rank)
        to.dx = work_out(work, i++);
    if (i < work->outs)
        to.dweight = work_out(work, i++);
    if (i < work->outs)
        to.dbias = work_out(work, i);
    return to;
}

struct attention work_attention(const struct work *work)
{
    const bool efficient =
        work->kind == WORK_EFFICIENT_ATTENTION || work->kind == WORK_EFFICIENT_ATTENTION_BACKWARD;
    const bool backward =
        work->kind == WORK_ATTENTION_BACKWARD || work->kind == WORK_EFFICIENT_ATTENTION_BACKWARD;
    const uint32_t plain = backward ? 5 : 3; /* operands without a bias */
    const double scale = (double)work->attr.scale;
    const uint32_t first = backward ? 1 : 0;
    const struct work_operand *q = work_in(work, first);
    const struct work_operand *logsumexp = backward ? work_in(work, 4) : work_out(work, 1);
    const uint64_t heads = (uint64_t)q->shape.dim[0] * q->shape.dim[2];
    return (struct attention){
        .q = q,
        .k = work_in(work, first + 1),
        .v = work_in(work, first + 2),
        .b = q->shape.dim[0],
        .s = q->shape.dim[1],
        .s_k = work_in(work, first + 1)->shape.dim[1],
        .a = q->shape.dim[2],
        .d = q->shape.dim[3],
        .d_v = work_in(work, first + 2)->shape.dim[3],
        .logsumexp_pitch = heads ? (uint32_t)(operand_count(logsumexp) / heads) : 0,
        .repeats = work_in(work, first + 1)->shape.dim[2]
                       ? q->shape.dim[2] / work_in(work, first + 1)->shape.dim[2]
                       : 1,
        .bias = efficient && work->ins > plain ? work_in(work, plain) : NULL,
        .scale = (float)(scale > 0 ? scale : 1 / sqrt((double)q->shape.dim[3])),
        .softcap = work->attr.softcap,
        .window = work->attr.window,
        .causal = work->attr.causal,
    };
}

struct adam_constants work_adam_constants(const struct work *work)
{
    const double lr = (double)work->update.lr, t = (double)work->update.step;
    const double beta1 = (double)work->update.beta1, beta2 = (double)work->update.beta2;
    return (struct adam_constants){
        .decay = (float)(1 - lr * (double)work->update.weight_decay),
        .take_g = (float)(1 - beta1),
        .keep_v = (float)beta2,
        .take_gg = (float)(1 - beta2),
        .step_size = (float)(lr / (1 - pow(beta1, t))),
        .root_scale = (float)sqrt(1 - pow(beta2, t)),
        .eps = work->update.eps,
    };
}

enum err_code work_refuse(const struct work *work, enum err_code code, struct err *err,
                          const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set(err, code, "instruction %u: %s: %s", work->instruction, work_name(work->kind),
                   text);
}

enum err_code work_need_count(const struct work *work, const char *name,
                              const struct work_operand *x, uint64_t count, struct err *err)
{
    if (!operand_is_float(x))
        return work_refuse(work, ERR_UNSUPPORTED, err, "%s is %s, which has no kernel", name,
                           dtype_name((enum dtype)x->dtype));
    if (operand_count(x) != count)
        return work_refuse(work, ERR_INVALID, err, "%s has %llu elements instead of %llu", name,
                           (unsigned long long)operand_count(x), (unsigned long long)count);
    return ERR_OK;
}

enum err_code work_need_index(const struct work *work, const char *name,
                              const struct work_operand *x, struct err *err)
{
    if (!operand_is_index(x))
        return work_refuse(work, ERR_UNSUPPORTED, err, "%s is %s%s instead of int64 or int32", name,
                           dtype_name((enum dtype)x->dtype), x->pitch ? " with a pitch" : "");
    return ERR_OK;
}
