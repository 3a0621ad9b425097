/* turned.c - see turned.h. */
#include "runtime/work/turned.h"

#include "runtime/work/operand.h"

/* Which factor of each kind is seen turned; both are of none. */
static const struct kind {
    enum work_kind kind;
    bool bias, factor[2];
} kinds[] = {
    {WORK_MATMUL_NN, false, {false, false}},    {WORK_MATMUL_NT, false, {false, true}},
    {WORK_MATMUL_TN, false, {true, false}},     {WORK_MATMUL_NN_BIAS, true, {false, false}},
    {WORK_MATMUL_NT_BIAS, true, {false, true}},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const struct kind *find_kind(enum work_kind kind)
{
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].kind == kind)
            return &kinds[i];
    return NULL;
}

static const struct kind *find_product(bool bias, bool first, bool second)
{
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].bias == bias && kinds[i].factor[0] == first && kinds[i].factor[1] == second)
            return &kinds[i];
    return NULL;
}

/* As it lies, in rows; false: it does not. */
static bool turn(struct work_operand *x)
{
    const struct strides *at = x->layout;
    if (x->shape.rank != 2 || at->of[0] != 1 || at->of[1] < x->shape.dim[0] ||
        at->of[1] > UINT32_MAX)
        return false;
    x->pitch = at->of[1] > x->shape.dim[0] ? (uint32_t)at->of[1] : 0;
    x->shape = SHAPE(x->shape.dim[1], x->shape.dim[0]);
    x->layout = NULL;
    return true;
}

bool work_turned(const struct work *work, struct work_operand operand[TURNED_OPERANDS],
                 struct work *out)
{
    const struct kind *kind = find_kind(work->kind);
    const uint32_t operands = work->ins + work->outs;
    if (!kind || operands > TURNED_OPERANDS)
        return false;
    bool factor[2] = {kind->factor[0], kind->factor[1]};
    for (uint32_t i = 0; i < operands; i++) {
        operand[i] = work->operand[i];
        const bool turned = operand[i].layout != NULL;
        if (turned && (i >= 2 || !turn(&operand[i])))
            return false;
        if (turned)
            factor[i] = !factor[i];
    }
    kind = find_product(kind->bias, factor[0], factor[1]);
    if (!kind)
        return false;
    *out = *work;
    out->kind = kind->kind;
    out->operand = operand;
    return true;
}
