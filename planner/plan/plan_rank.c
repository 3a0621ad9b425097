/* plan_rank.c - see plan_rank.h.
 *
 * Rows appear in four places: parameters' local shapes, optimizer states, the optimizer's
 * transients (one a parameter, in order), and the operands of the optimizer and of clipping, which
 * view shards and gradients. Rank 0 holds the most rows, so its plan has everything that another
 * rank's has; where a rank has no rows, a buffer of 0 bytes is left, which allocates nothing. */
#include "plan/plan_rank.h"

#include <string.h>

uint32_t plan_group_ranks(const struct plan *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->group_count; i++)
        if (strcmp(plan->groups[i].name, name) == 0)
            return plan->groups[i].ranks;
    return 1;
}

static struct shape rows_of_rank(const struct shape *shape, uint32_t ranks, uint32_t rank)
{
    const uint64_t rows = shape->dim[0], chunk = (rows + ranks - 1) / ranks, first = chunk * rank;
    const uint64_t left = first < rows ? rows - first : 0;
    struct shape local = *shape;
    local.dim[0] = (uint32_t)(left < chunk ? left : chunk);
    return local;
}

static void resize(struct plan *plan, uint32_t buffer, const struct shape *shape)
{
    if (buffer == PLACE_NONE)
        return;
    plan->buffers[buffer].shape = *shape;
    plan->buffers[buffer].bytes = shape_bytes(shape, (enum dtype)plan->buffers[buffer].dtype);
}

static bool has_label(const struct plan *plan, const struct buffer *buffer, const char *label)
{
    return buffer->category == CATEGORY_OPTIMIZER &&
           strcmp(plan->labels[buffer->label], label) == 0;
}

/* The n-th transient with a label belongs to the n-th trainable parameter. */
static void resize_transients(struct plan *plan, const char *label)
{
    uint32_t p = 0;
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        if (!has_label(plan, &plan->buffers[b], label))
            continue;
        while (p < plan->param_count && !plan->params[p].trainable)
            p++;
        if (p < plan->param_count)
            resize(plan, b, &plan->params[p++].local);
    }
}

/* The parameter whose shard, state or gradient an operand views; PLACE_NONE: none. `gradients` are
 * the optimizer's first operands, `shards` the next as many. */
static uint32_t param_of_operand(const struct plan *plan, const struct operand *operand,
                                 const struct operand *gradients, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (operand->place == gradients[i].place && operand->offset == gradients[i].offset)
            operand = &gradients[n + i];
    for (uint32_t p = 0; p < plan->param_count; p++) {
        const struct plan_param *param = &plan->params[p];
        if (operand->place == param->shard_buffer || operand->place == param->state_buffer[0] ||
            operand->place == param->state_buffer[1])
            return p;
    }
    return PLACE_NONE;
}

/* Operands of the optimizer part of the step. */
static void resize_operands(struct plan *plan, uint32_t optimizer)
{
    const struct kernel *update = &plan->kernels[plan->instructions[optimizer].arg];
    const struct operand *gradients = &plan->operands[update->first];
    const uint32_t n = (uint32_t)update->ins - update->outs;
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *instruction = &plan->instructions[i];
        if (instruction->phase != PLAN_STEP || !plan_op_is_kernel((enum plan_op)instruction->op))
            continue;
        const struct kernel *kernel = &plan->kernels[instruction->arg];
        for (uint32_t o = 0; o < (uint32_t)kernel->ins + kernel->outs; o++) {
            struct operand *operand = &plan->operands[kernel->first + o];
            const uint32_t p = param_of_operand(plan, operand, gradients, n);
            if (p != PLACE_NONE)
                operand->shape = plan->params[p].local;
        }
    }
}

/* A secondary shard is cloned from this rank's chunk of the unsharded parameter. */
static void move_chunks(struct plan *plan, uint32_t shard_rank)
{
    const uint32_t ranks = plan_group_ranks(plan, "post_forward");
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *instruction = &plan->instructions[i];
        if (instruction->op != PLAN_COMPUTE || instruction->site != SITE_RESHARD)
            continue;
        const struct kernel *kernel = &plan->kernels[instruction->arg];
        struct operand *in = &plan->operands[kernel->first];
        in->offset = shard_rank % ranks * shape_elements(&in->shape);
    }
}

enum err_code plan_for_rank(struct plan *plan, uint32_t rank, struct err *err)
{
    const uint32_t shard_ranks = plan_group_ranks(plan, "shard");
    if (rank >= plan->world)
        return err_set(err, ERR_INVALID, "rank %u: the plan is for ranks 0 ... %u", rank,
                       plan->world - 1);
    if (rank == plan->rank)
        return ERR_OK;
    if (plan->rank != 0)
        return err_set(err, ERR_INVALID, "the plan is rank %u's: other ranks follow from rank 0's",
                       plan->rank);
    plan->rank = rank;
    for (uint32_t p = 0; p < plan->param_count; p++) {
        struct plan_param *param = &plan->params[p];
        param->local = rows_of_rank(&param->shape, shard_ranks, rank % shard_ranks);
        resize(plan, param->state_buffer[0], &param->local);
        resize(plan, param->state_buffer[1], &param->local);
    }
    resize_transients(plan, "_foreach_sqrt");
    resize_transients(plan, "sqrt");
    resize_transients(plan, "div.Tensor");
    move_chunks(plan, rank % shard_ranks);
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        if (plan->instructions[i].op == PLAN_OPTIMIZER)
            resize_operands(plan, i);
    return ERR_OK;
}
