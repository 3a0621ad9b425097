/* whole.c - parameters that a rank has whole, and their gradients; see lowering.h. */
#include "lower/lowering.h"

void declare_whole_params(struct lowering *low)
{
    for (uint32_t p = 0; p < low->plan->param_count; p++) {
        if (plan_piece(low->plan, p, PIECE_STORE))
            continue;
        const uint32_t buffer = new_resident(low, CATEGORY_PARAM, LANE_COMPUTE, ATEN_EMPTY,
                                             low->strategy->store, low->plan->params[p].shape);
        new_piece(low, p, PIECE_STORE, buffer, 0, (struct placement){.kind = PLACEMENT_WHOLE},
                  PLAN_NO_GROUP);
    }
}

void gradients_are_whole(struct lowering *low)
{
    for (uint32_t p = 0; p < low->plan->param_count; p++)
        if (low->grad[p].place != NONE)
            set_gradient(low, p, low->grad[p].place, low->grad[p].offset, true);
}

void free_gradients(struct lowering *low)
{
    for (uint32_t p = 0; p < low->plan->param_count; p++)
        if (low->grad[p].place != NONE)
            emit_free(low, low->grad[p].place);
}
