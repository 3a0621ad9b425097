/* fsdp2_columns.c - parameters that are sharded by columns (shard_placement_fn: Shard(1); see
 * fsdp2.c). Collectives know rows only: what is gathered is joined chunk by chunk afterwards, what
 * is to be reduced is cut into chunks before. */
#include "lower/fsdp2.h"

/* The chunk of a rank: d0 rows of w elements. Dims behind the second go with the columns. */
static struct shape chunk_shape(const struct lowering *low, uint32_t param)
{
    const uint32_t rows = low->plan->params[param].shape.dim[0];
    return SHAPE(rows, (uint32_t)(padded_shard(low, param) / rows));
}

bool is_by_columns(const struct lowering *low, uint32_t param)
{
    return mesh_of(low, param)->shard_ranks > 1 &&
           fsdp2_placement(low, param).kind == PLACEMENT_COLUMNS;
}

/* torch.cat of the chunks along dim 1. */
static void join(struct lowering *low, uint32_t param, uint32_t gathered)
{
    const uint32_t ranks = mesh_of(low, param)->shard_ranks;
    const struct shape chunk = chunk_shape(low, param);
    struct operand *operands = plan_push_operands(low->plan, ranks + 1);
    for (uint32_t r = 0; r < ranks; r++) {
        plan_set_whole_buffer(low->plan, gathered, &operands[r]);
        operands[r].offset = r * shape_elements(&chunk);
        operands[r].shape = chunk;
    }
    plan_set_whole_buffer(low->plan, fsdp2_of(low)->unsharded[param], &operands[ranks]);
    operands[ranks].shape = SHAPE(chunk.dim[0], ranks * chunk.dim[1]);
    emit_kernel(low, PLAN_COMPUTE, LANE_COMPUTE,
                plan_push_kernel(low->plan, WORK_CAT, ATEN_CAT, ranks, 1, operands), PLAN_NO_GROUP);
}

/* A list of them dies from its end; up to 2.14 the last one last, which a loop variable holds. */
void join_columns(struct lowering *low, const struct unit *unit, const uint32_t *gathered)
{
    uint32_t last = NONE;
    for (uint32_t i = 0; i < unit->count; i++)
        if (gathered[i] != fsdp2_of(low)->unsharded[unit->params[i]]) {
            join(low, unit->params[i], gathered[i]);
            last = i;
        }
    const uint32_t end = last == NONE ? 0 : last;
    if (last != NONE && torch_does(low->graph->torch, TORCH_GRADIENTS_GO)) {
        emit_free(low, gathered[last]);
        last = NONE;
    }
    for (uint32_t i = end; i-- > 0;)
        if (gathered[i] != fsdp2_of(low)->unsharded[unit->params[i]])
            emit_free(low, gathered[i]);
    if (last != NONE)
        emit_free(low, gathered[last]);
}

/* torch.cat of the chunks of a gradient along dim 0. */
static struct operand cut(struct lowering *low, uint32_t param, struct operand gradient)
{
    const uint32_t ranks = mesh_of(low, param)->shard_ranks;
    const struct shape chunk = chunk_shape(low, param);
    const uint32_t rows = chunk.dim[0], width = chunk.dim[1];
    struct shape cat = low->plan->params[param].shape; /* as torch has it, with all its dims */
    cat.dim[0] *= ranks;
    cat.dim[1] /= ranks;
    const uint32_t whole = alloc_buffer(low, CATEGORY_REDUCE_SCATTER, LANE_COMPUTE, ATEN_CAT,
                                        (enum dtype)gradient.dtype, cat);
    struct operand *operands = plan_push_operands(low->plan, ranks + 1);
    for (uint32_t r = 0; r < ranks; r++) {
        operands[r] = gradient;
        operands[r].offset += (uint64_t)r * width;
        operands[r].pitch = gradient.pitch ? gradient.pitch : ranks * width;
        operands[r].shape = chunk;
    }
    plan_set_whole_buffer(low->plan, whole, &operands[ranks]);
    operands[ranks].shape = SHAPE(ranks * rows, width);
    emit_kernel(low, PLAN_COMPUTE, LANE_COMPUTE,
                plan_push_kernel(low->plan, WORK_PACK, ATEN_CAT, ranks, 1, operands),
                PLAN_NO_GROUP);
    return plan_whole_buffer(low->plan, whole);
}

/* A gradient that was cut lives until `chunks` is bound to the next one's. And since the loop is
 * over enumerate(zip(...)), and both use a tuple again that nobody else has: enumerate's last one
 * is somebody else, so that zip comes back to its own every second time, and holds what was in it
 * as long. */
uint32_t cut_columns(struct lowering *low, const uint32_t *params, struct operand *grads,
                     uint32_t count)
{
    uint32_t held = NONE, held_at = 0, zipped = NONE;
    if (!low->strategy->columns)
        return NONE;
    for (uint32_t i = 0; i < count; i++) {
        if (zipped != NONE && i % 2 == 0) {
            emit_free(low, zipped);
            zipped = NONE;
        }
        if (!is_by_columns(low, params[i]))
            continue;
        if (held != NONE && held_at % 2 == 0 && i == held_at + 1)
            zipped = held;
        else if (held != NONE)
            emit_free(low, held);
        held = grads[i].place;
        held_at = i;
        grads[i] = cut(low, params[i], grads[i]);
    }
    if (zipped != NONE)
        emit_free(low, zipped);
    return held;
}
