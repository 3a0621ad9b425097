/* execute_fused.c - launching chains of kernels as one (fuse.h).
 *
 * A kernel that is put off leaves where its operands lie: by the time that the chain is launched,
 * the host may have freed some of them. */
#include "runtime/execution/execute_parts.h"

#include <stdlib.h>

/* Where the operands of kernel `id` are now. */
static void keep_operands(struct execution *e, uint32_t id)
{
    const struct plan_instruction *instruction = &e->plan->instructions[id];
    const struct kernel *kernel = plan_kernel(e->plan, instruction->arg);
    const uint32_t operands = (uint32_t)kernel->ins + kernel->outs, n = e->put_off.count++;
    if (operands > e->put_off.room[n]) {
        e->put_off.room[n] = operands;
        free(e->put_off.operands[n]);
        e->put_off.operands[n] = xmalloc(operands * sizeof *e->put_off.operands[n]);
    }
    for (uint32_t i = 0; i < operands; i++)
        e->put_off.operands[n][i] = execution_operand(e, instruction, &kernel->operands[i]);
}

static enum err_code launch_one_by_one(struct execution *e, struct err *err)
{
    struct put_off *put_off = &e->put_off;
    const uint32_t count = put_off->count;
    put_off->count = 0;
    for (uint32_t n = 0; n < count; n++)
        TRY(execution_launch(e, put_off->chain->member[n], put_off->operands[n], err));
    return ERR_OK;
}

static enum err_code launch_as_one(struct execution *e, const struct work *work, struct err *err)
{
    const struct fuse_chain *chain = e->put_off.chain;
    const uint32_t last = chain->member[chain->members - 1];
    for (uint32_t n = 0; n + 1 < chain->members; n++)
        e->record[chain->member[n]].fused_into = last + 1;
    return device_launch(e->device, e->plan->instructions[last].lane, work, err);
}

void execution_catch_up(struct execution *e)
{
    struct put_off *put_off = &e->put_off;
    if (put_off->count == 0 || put_off->err.code != ERR_OK)
        return;
    launch_one_by_one(e, &put_off->err);
    put_off->chain = NULL; /* what is left of it runs by itself */
}

enum err_code execution_put_off(struct execution *e, uint32_t id, struct err *err)
{
    struct put_off *put_off = &e->put_off;
    const struct fuse_chain *chain = fusion_chain(e->fusion, id);
    if (put_off->err.code != ERR_OK) {
        *err = put_off->err;
        return err->code;
    }
    if (id == chain->member[0]) {
        put_off->chain = chain;
        put_off->count = 0;
    }
    if (put_off->chain != chain)
        return execution_launch(e, id, NULL, err);
    keep_operands(e, id);
    if (put_off->count < chain->members)
        return ERR_OK;
    struct work_operand *operands = e->operands; /* enough: prepare */
    const struct work work =
        fuse_work(chain, (const struct work_operand *const *)put_off->operands, operands);
    if (!fuse_fits(chain, &work))
        return launch_one_by_one(e, err);
    put_off->count = 0;
    return launch_as_one(e, &work, err);
}

const struct fuse_chain *execution_chain(const struct execution *e, uint32_t id)
{
    return fusion_chain(e->fusion, id);
}

void execution_close_put_off(struct execution *e)
{
    for (uint32_t n = 0; n < FUSE_MEMBERS; n++)
        free(e->put_off.operands[n]);
    e->put_off = (struct put_off){.chain = NULL};
}
