/* whole.c - parameters that a rank has whole, and their gradients; see lowering.h. */
#include "lower/lowering.h"

enum err_code check_frozen_dtype(const struct strategy *s, const struct graph *graph,
                                 struct err *err)
{
    if (!s->frozen_low || s->store == s->compute)
        return ERR_OK;
    if (s->store != DTYPE_FP32)
        return err_set(
            err, ERR_INVALID,
            "--frozen-dtype %s with --store-dtype %s: what is trained is in fp32 then, or "
            "in the same dtype",
            dtype_brief(s->compute), dtype_brief(s->store));
    if (graph->lora.rank == 0)
        return err_set(
            err, ERR_UNSUPPORTED,
            "--frozen-dtype %s: planned with --lora, whose adapters cast what they are "
            "called with: torch's layers multiply no two dtypes (mat1 and mat2 must have "
            "the same)",
            dtype_brief(s->compute));
    return ERR_OK;
}

const char *frozen_unit(const struct plan *plan)
{
    const uint32_t own = plan_own_params(plan);
    bool frozen = own == plan->param_count;
    for (uint32_t p = 0; p < own; p++)
        frozen = frozen || !plan->params[p].trainable;
    return frozen ? "frozen" : "reference";
}

void declare_whole_params(struct lowering *low)
{
    for (uint32_t p = 0; p < low->plan->param_count; p++) {
        if (plan_piece(low->plan, p, PIECE_STORE))
            continue;
        const uint32_t buffer = new_resident(low, CATEGORY_PARAM, LANE_COMPUTE, ATEN_EMPTY,
                                             stored_dtype(low, p), low->plan->params[p].shape);
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
