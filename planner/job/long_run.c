/* long_run.c - see long_run.h. */
#include "job/long_run.h"

#include <stdlib.h>

/* How many ranks hold the same: the mesh's replicas, of which each writes a part. */
static uint32_t replicas(const struct plan *plan)
{
    const uint8_t replicas = plan_group_of_role(plan, GROUP_REPLICATE);
    const uint8_t copies = plan_group_of_role(plan, GROUP_DATA);
    return plan_group_ranks(plan, replicas != PLAN_NO_GROUP ? replicas : copies);
}

/* Sharded parameters and optimizer states of one rank: what a sharded checkpoint holds of it. */
static uint64_t state_bytes(const struct plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan_own_params(plan); i++) {
        const struct plan_piece *const pieces[] = {plan_updated_piece(plan, i),
                                                   plan_piece(plan, i, PIECE_EXP_AVG),
                                                   plan_piece(plan, i, PIECE_EXP_AVG_SQ)};
        for (int k = 0; k < 3; k++) {
            if (!pieces[k])
                continue;
            const struct part part = plan_part(plan, pieces[k], plan->rank);
            bytes += part_elements(&part) *
                     dtype_bytes((enum dtype)plan->buffers[pieces[k]->buffer].dtype);
        }
    }
    return bytes;
}

/* Scales of states that are codes, tables, and codes that lie two in a byte: of the optimizer, and
 * no parameter's piece. Nor are step counters. */
static uint64_t other_state_bytes(const struct plan *plan)
{
    bool *is_piece = xcalloc(plan->buffer_count + 1, sizeof *is_piece);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->piece_count; i++)
        is_piece[plan->pieces[i].buffer] = true;
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        const struct buffer *buffer = &plan->buffers[b];
        if (buffer->resident && buffer->category == CATEGORY_OPTIMIZER && buffer->shape.rank > 0 &&
            !is_piece[b])
            bytes += buffer->bytes;
    }
    free(is_piece);
    return bytes;
}

enum err_code long_run(const struct plan *plan, const struct machine *machine,
                       const struct step_time *step, struct long_run *out, struct err *err)
{
    const struct profile *p = &machine->profile;
    const uint32_t local =
        plan->world < machine->gpus_per_node ? plan->world : machine->gpus_per_node;
    const uint64_t bytes = state_bytes(plan) + other_state_bytes(plan);
    *out = (struct long_run){.checkpoint_bytes = bytes * local / replicas(plan)};
    out->checkpoint_s = (double)out->checkpoint_bytes / profile_value(p, PROFILE_STORE);
    const struct failures failures = {
        .gpu_mtbf_s = profile_value(p, PROFILE_MTBF),
        .gpus = plan->world,
        .checkpoint_s = out->checkpoint_s,
        .restart_s = profile_value(p, PROFILE_RESTART),
    };
    TRY(goodput_best(&failures, &out->goodput, err));
    out->tokens_per_s = step->tokens_per_s * out->goodput.useful;
    return ERR_OK;
}
