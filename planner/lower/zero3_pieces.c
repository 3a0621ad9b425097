/* zero3_pieces.c - a rank's pieces of parameters and gradients, and what the host waits for; see
 * zero3.h. */
#include "lower/zero3.h"

struct operand zero3_shard(const struct lowering *low, uint32_t p)
{
    const struct zero3 *z = zero3_of(low);
    const struct zero3_param *param = &z->params[p];
    if (param->group == NONE)
        return plan_whole_buffer(low->plan, param->frozen);
    return zero_run(plan_whole_buffer(low->plan, z->groups[param->group].shard), param->at,
                    param->part);
}

struct operand zero3_gradient(const struct lowering *low, uint32_t p)
{
    const struct zero3 *z = zero3_of(low);
    const struct zero3_param *param = &z->params[p];
    return zero_run(plan_whole_buffer(low->plan, z->gradients),
                    z->groups[param->group].at + param->at, param->part);
}

int zero3_by_index(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

uint64_t zero3_own_elements(const struct lowering *low, uint32_t p)
{
    const struct zero3 *z = zero3_of(low);
    const struct part part = placement_part(zero3_placement(low, p), &low->plan->params[p].shape,
                                            z->ranks, low->strategy->rank);
    return part_elements(&part);
}

void zero3_forget(struct lowering *low, uint32_t p)
{
    struct zero3 *z = low->state;
    if (!z->copied[p])
        exchange_gradient(low, p, no_operand(), z->reduce_lane);
    low->grad[p] = no_operand();
    z->copied[p] = false;
}

void zero3_let_go(struct lowering *low, uint32_t buffer, uint8_t lane)
{
    const uint8_t pool = low->plan->buffers[buffer].pool;
    if (pool == lane || pool == LANE_HOST)
        emit_free(low, buffer);
    else
        emit_free_after(low, buffer, lane);
}

enum { EVENTS_AHEAD = 2 }; /* max_param_reduce_events, max_ongoing_fetch_events */

void zero3_hold_host(struct lowering *low, struct zero3_events *events)
{
    if (events->count - events->first > EVENTS_AHEAD)
        emit_wait(low, LANE_HOST, events->at[events->first++]);
}

void zero3_add_event(struct lowering *low, struct zero3_events *events, uint8_t lane)
{
    uint32_t *at = none_array(low, EVENTS_AHEAD + 2);
    uint32_t n = 0;
    for (uint32_t i = events->first; i < events->count; i++)
        at[n++] = events->at[i];
    at[n++] = emit_record(low, lane);
    *events = (struct zero3_events){at, 0, n};
}
