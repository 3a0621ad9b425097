/* single.c - no system at all: one GPU trains the model as it is, with autograd's own gradients.
 *
 * What torchtitan, accelerate and transformers' Trainer run where there is one process: nothing is
 * wrapped, copied or reduced. */
#include "lower/lowering.h"

static enum err_code check(const struct strategy *s, const struct graph *graph,
                           const struct stream *stream, struct err *err)
{
    (void)stream;
    return check_frozen_dtype(s, graph, err);
}

/* One unit, the model. */
static void set_up(struct lowering *low)
{
    struct plan *plan = low->plan;
    plan->unit_count = 1;
    plan->units = arena_alloc(&plan->arena, sizeof *plan->units);
    plan->units[0] = (struct plan_unit){.name = "model", .params = plan->param_count};
    plan->unit_params = arena_alloc(&plan->arena, (plan->param_count + 1) * sizeof(uint32_t));
    for (uint32_t p = 0; p < plan->param_count; p++)
        plan->unit_params[p] = p;
    declare_whole_params(low);
    leave_out_unused(low);
}

const struct system system_single = {
    .name = "single",
    .as_stored = true,
    .alone = true,
    .check = check,
    .set_up = set_up,
    .before_step = gradients_are_whole,
    .close = free_gradients,
};
