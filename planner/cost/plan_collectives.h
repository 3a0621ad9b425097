/* plan_collectives.h - for costs.c only: the collectives of a plan's groups on a profile's links.
 */
#ifndef SHARDPLAN_PLAN_COLLECTIVES_H
#define SHARDPLAN_PLAN_COLLECTIVES_H

#include "cost/cost.h"
#include "nccl/collective.h"

struct group_models { /* of one group, made when they are first asked for */
    struct collective_model model[COLLECTIVE_COUNT];
    bool built[COLLECTIVE_COUNT];
};

struct plan_collectives { /* zero-initialise, then plan_collectives_free */
    const struct plan *plan;
    const struct profile *profile;
    uint32_t gpus_per_node;
    struct group_models *groups; /* (plan's groups) */
};

/* The cost of one collective instruction, its host part aside. */
enum err_code plan_collective_cost(struct plan_collectives *c, const struct plan_instruction *in,
                                   struct cost *out, struct err *err);
void plan_collectives_free(struct plan_collectives *c);

#endif
