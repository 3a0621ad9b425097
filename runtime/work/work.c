/* work.c - see work.h. */
#include "runtime/work/work.h"

enum work_kind work_to_run(enum work_kind kind, uint32_t ins)
{
    switch (kind) {
    case WORK_SEED:
        return WORK_FILL;
    case WORK_EFFICIENT_ATTENTION:
        return ins > 3 ? kind : WORK_ATTENTION;
    case WORK_EFFICIENT_ATTENTION_BACKWARD:
        return ins > 5 ? kind : WORK_ATTENTION_BACKWARD;
    case WORK_ADAMW_FUSED:
        return WORK_ADAMW;
    default:
        return kind;
    }
}

void work_stand_in(struct work *work, struct work_operand *operand)
{
    if (work->kind == WORK_ALL_REDUCE_MAX)
        work->kind = WORK_ALL_REDUCE_SUM;
    if (work->kind != WORK_ALL_TO_ALL || work->ranks == 0 || operand[0].shape.rank == 0 ||
        operand[0].shape.dim[0] % work->ranks != 0)
        return;
    work->kind = WORK_ALL_GATHER;
    operand[0].shape.dim[0] /= work->ranks;
}
