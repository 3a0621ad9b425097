/* plan_collectives.c - see plan_collectives.h.
 *
 * Ranks are placed node by node, so a group of neighbours fills nodes and a group whose ranks are
 * `stride` apart has one rank in `stride` of each. */
#include "cost/plan_collectives.h"

#include <math.h>
#include <stdlib.h>

/* PCIe slots as NCCL's tables know them, beside the rate that copies reach. */
static double slot_bytes_per_s(double copies)
{
    return copies > 40e9 ? 63e9 : copies > 20e9 ? 31.5e9 : 15.75e9;
}

static struct fabric fabric_of(const struct plan_collectives *c)
{
    const struct profile *p = c->profile;
    return (struct fabric){
        .generation = p->generation,
        .link = p->link,
        .gpus_per_node = c->gpus_per_node,
        .link_bytes_per_s = profile_value(p, PROFILE_LINK),
        .pcie_bytes_per_s = slot_bytes_per_s(profile_value(p, PROFILE_PCIE)),
        .network = p->network,
        .nics_per_node = (uint32_t)profile_value(p, PROFILE_NICS),
        .nic_bytes_per_s = profile_value(p, PROFILE_NIC),
        .nic_latency_s = profile_value(p, PROFILE_NIC_LATENCY),
        .tuning = NCCL_TUNING_2_28,
    };
}

/* Ranks of the group on each node: as many as fit and divide them evenly. */
static uint32_t ranks_per_node(const struct plan_group *group, uint32_t gpus_per_node)
{
    uint32_t most = gpus_per_node / (group->stride ? group->stride : 1);
    most = most < 1 ? 1 : most > group->ranks ? group->ranks : most;
    while (group->ranks % most)
        most--;
    return most;
}

/* MPI between processes of one machine is known by what was measured. Where that was done with
 * another number of ranks, time goes with their number: they share one memory and its cores. */
static struct collective_point *points_on_cpu(const struct profile *profile,
                                              enum collective collective, uint32_t ranks)
{
    struct collective_point *points = xmalloc((profile->point_count + 1) * sizeof *points);
    uint32_t nearest = 0;
    for (uint32_t i = 0; i < profile->point_count; i++) {
        const struct collective_point *p = &profile->points[i];
        if (p->collective == collective &&
            (!nearest || abs((int)p->ranks - (int)ranks) < abs((int)nearest - (int)ranks)))
            nearest = p->ranks;
    }
    for (uint32_t i = 0; i < profile->point_count; i++) {
        points[i] = profile->points[i];
        if (points[i].ranks != nearest)
            continue;
        points[i].seconds *= (double)ranks / nearest;
        points[i].ranks = ranks;
    }
    return points;
}

static enum err_code build(struct plan_collectives *c, uint8_t group, enum collective collective,
                           struct err *err)
{
    const struct plan_group *g = &c->plan->groups[group];
    const uint32_t local = ranks_per_node(g, c->gpus_per_node);
    const bool on_cpu = c->profile->generation == GENERATION_CPU;
    struct fabric fabric = fabric_of(c);
    struct collective_point *own = on_cpu ? points_on_cpu(c->profile, collective, g->ranks) : NULL;
    const struct collective_table table = {own ? own : c->profile->points, c->profile->point_count};
    fabric.measured = &table;
    if (on_cpu) { /* a fabric is asked for all the same: the memory between processes */
        fabric.generation = GENERATION_ADA;
        fabric.link = LINK_HOST;
    }
    struct collective_model *model = &c->model[group][collective];
    enum err_code rc =
        collective_model_build(&fabric, collective, local, g->ranks / local, model, err);
    free(own);
    if (rc == ERR_OK)
        c->built[group][collective] = true;
    return rc == ERR_OK ? rc
                        : err_context(err, "%s of group %s", collective_name(collective), g->name);
}

/* nccl-tests' bytes: the whole buffer of a gather or scatter, one rank's of the others. */
static uint64_t full_bytes(const struct plan *plan, const struct plan_instruction *in)
{
    const struct kernel *kernel = &plan->kernels[in->arg];
    const bool gathers = in->op == PLAN_ALL_GATHER;
    const struct operand *o = &plan->operands[kernel->first + (gathers ? kernel->ins : 0)];
    return shape_bytes(&o->shape, (enum dtype)o->dtype);
}

static double share(double used, double of)
{
    return of > 0 ? fmin(1, used / of) : 0;
}

enum err_code plan_collective_cost(struct plan_collectives *c, const struct plan_instruction *in,
                                   struct cost *out, struct err *err)
{
    const enum collective collective = in->op == PLAN_ALL_GATHER       ? COLLECTIVE_ALL_GATHER
                                       : in->op == PLAN_REDUCE_SCATTER ? COLLECTIVE_REDUCE_SCATTER
                                       : in->op == PLAN_ALL_REDUCE     ? COLLECTIVE_ALL_REDUCE
                                                                       : COLLECTIVE_BROADCAST;
    const struct plan_group *group = &c->plan->groups[in->group];
    const struct profile *p = c->profile;
    const uint64_t bytes = full_bytes(c->plan, in);
    out->class = COST_COLLECTIVE;
    out->first = p->generation != GENERATION_CPU;
    if (group->ranks == 1) { /* NCCL copies, or does nothing in place */
        out->device_s = profile_value(p, PROFILE_LATENCY);
        return ERR_OK;
    }
    if (!c->built[in->group][collective])
        TRY(build(c, in->group, collective, err));
    const struct collective_cost cost = collective_cost(&c->model[in->group][collective], bytes);
    const double moved =
        collective_bus_factor(collective, group->ranks) * (double)bytes / cost.seconds;
    const bool across = c->model[in->group][collective].tuning.nodes > 1;
    const double sms = profile_value(p, PROFILE_SMS), use = profile_value(p, PROFILE_OVERLAP);
    out->device_s = cost.seconds;
    out->use[RESOURCE_COMPUTE] = (float)(use > 0 ? use : share(cost.channels, sms));
    out->use[RESOURCE_MEMORY] =
        (float)share(cost.hbm_bytes / cost.seconds, profile_value(p, PROFILE_MEMORY));
    out->use[RESOURCE_LINK] = across ? (float)share(moved, profile_value(p, PROFILE_LINK)) : 1;
    out->use[RESOURCE_NIC] = across;
    c->weighted_spread += cost.spread * cost.seconds;
    c->weight += cost.seconds;
    return ERR_OK;
}

void plan_collectives_free(struct plan_collectives *c)
{
    for (int group = 0; group < PLAN_GROUPS; group++)
        for (int i = 0; i < COLLECTIVE_COUNT; i++)
            if (c->built[group][i])
                collective_model_free(&c->model[group][i]);
}
