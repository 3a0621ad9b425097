/* update.h - an update of tensors: what optimizer.c and update_each.c share. */
#ifndef SHARDPLAN_UPDATE_H
#define SHARDPLAN_UPDATE_H

#include "lower/states.h"

/* Those that one call of the optimizer updates. */
struct updated {
    const struct optimized *of;
    uint32_t count;
};

/* What the update of a tensor reads as its gradient. */
void set_gradient_of(const struct plan *plan, const struct optimized *o, struct operand *out);

/* The tensor of an update whose sizes are those of `index`: it or an earlier one. */
uint32_t updated_like(const struct lowering *low, struct updated u, uint32_t index);

/* One tensor after the other, each by kernels of its own (updates_each). */
void emit_update_each(struct lowering *low, struct updated u, const struct optimizer_rule *rule);

#endif
