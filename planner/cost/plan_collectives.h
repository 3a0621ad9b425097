/* plan_collectives.h - for costs.c only: the collectives of a plan's groups on a profile's links.
 */
#ifndef SHARDPLAN_PLAN_COLLECTIVES_H
#define SHARDPLAN_PLAN_COLLECTIVES_H

#include "cost/cost.h"
#include "nccl/collective.h"

enum { COSTS_KEPT = 8 };

struct kept_model { /* of one collective over groups of one kind, made when it is first asked for */
    uint32_t world, ranks, stride;
    enum collective collective;
    struct collective_model model;
    uint64_t bytes[COSTS_KEPT]; /* sizes asked for last, and what was said */
    struct cost cost[COSTS_KEPT];
    uint32_t kept;
};

struct collective_models {
    struct kept_model *of;
    uint32_t count, cap;
};

struct plan_collectives {
    const struct plan *plan;
    const struct profile *profile;
    uint32_t gpus_per_node;
    struct collective_models *models; /* of this profile and gpus_per_node */
};

/* The cost of one collective instruction, its host part aside. */
enum err_code plan_collective_cost(const struct plan_collectives *c,
                                   const struct plan_instruction *in, struct cost *out,
                                   struct err *err);

/* Whether that is known: its errors are those of plan_collective_cost. */
enum err_code plan_collective_check(const struct plan_collectives *c,
                                    const struct plan_instruction *in, struct err *err);

#endif
