/* zero12_pieces.c - a rank's partition of the vector of all parameters; see zero12.h. */
#include "lower/zero12.h"

struct part zero12_part(const struct lowering *low, uint32_t p)
{
    const struct zero12 *z = zero12_of(low);
    const struct placement placement = {PLACEMENT_FLAT, z->at[p], z->total};
    return placement_part(placement, &low->plan->params[p].shape, z->ranks, low->strategy->rank);
}

struct operand zero12_own(const struct lowering *low)
{
    const struct zero12 *z = zero12_of(low);
    struct operand own = zero_run(plan_whole_buffer(low->plan, z->flat),
                                  z->partition * low->strategy->rank, z->partition);
    own.chunk = z->group == PLAN_NO_GROUP ? 0 : (uint8_t)(z->group + 1);
    return own;
}

void zero12_gather(struct lowering *low)
{
    const struct zero12 *z = zero12_of(low);
    if (z->group != PLAN_NO_GROUP)
        emit_work(low, PLAN_ALL_GATHER, LANE_COMPUTE, WORK_ALL_GATHER, ATEN_ALL_GATHER_INTO_TENSOR,
                  z->group, 1, &z->flat, 1, &z->flat);
}

void zero12_cast_back(struct lowering *low)
{
    const struct operand master = plan_whole_buffer(low->plan, zero12_of(low)->master);
    const struct operand own = zero12_own(low);
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_CAST, ATEN_COPY_, PLAN_NO_GROUP, 1, &master,
                 1, &own);
}

void zero12_declare_gradients(struct lowering *low, uint32_t buffer)
{
    const struct zero12 *z = zero12_of(low);
    for (uint32_t i = 0; i < z->count; i++)
        new_piece(low, z->order[i], PIECE_GRADIENT, buffer, 0,
                  (struct placement){PLACEMENT_FLAT, z->at[z->order[i]], z->total}, z->group);
}
