/* plan_collectives.c - see plan_collectives.h.
 *
 * Ranks are placed node by node, so a group of neighbours fills nodes and a group whose ranks are
 * `stride` apart has one rank in `stride` of each. */
#include "cost/plan_collectives.h"

#include <math.h>
#include <stdlib.h>

struct slot {      /* of PCIe, bytes a second each way */
    double names;  /* what NCCL's tables know it by */
    double copies; /* what copies reach through it: machine/profiles */
};

/* Below this share of what a slot is called, copies are through a narrower or an older one: the
 * profiles' reach 0.76 to 0.83 of theirs, and half of the next is 0.38 to 0.41. */
#define SLOT_LEAST .635

/* x16 of generation 5, 4 or 3, or half of that as often as there are half the lanes. NCCL goes by
 * what a slot is, not by what it does. */
static struct slot slot_of(double copies)
{
    static const struct slot wide[] = {{63e9, 52e9}, {31.5e9, 25e9}, {15.75e9, 12e9}};
    struct slot slot = wide[2];
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (copies > SLOT_LEAST * wide[i].names)
            return wide[i];
    while (copies <= SLOT_LEAST * slot.names && slot.names > 1e9)
        slot = (struct slot){slot.names / 2, slot.copies / 2};
    return slot;
}

static struct fabric fabric_of(const struct plan_collectives *c)
{
    const struct profile *p = c->profile;
    const double copies = profile_value(p, PROFILE_PCIE);
    const struct slot slot = slot_of(copies);
    return (struct fabric){
        .generation = p->generation,
        .link = p->link,
        .gpus_per_node = c->gpus_per_node,
        .link_bytes_per_s = profile_value(p, PROFILE_LINK),
        .pcie_bytes_per_s = slot.names,
        .pcie_share = copies / slot.copies,
        .network = p->network,
        .nics_per_node = (uint32_t)profile_value(p, PROFILE_NICS),
        .nic_bytes_per_s = profile_value(p, PROFILE_NIC),
        .nic_latency_s = profile_value(p, PROFILE_NIC_LATENCY),
        .tuning = NCCL_TUNING_2_28,
    };
}

/* Where the ranks of a group are. */
struct layout {
    uint32_t ranks_per_node, nodes;
};

/* Nodes that a group from rank `first` on is on: each step from rank to rank leaves a node, or none
 * is longer than a node and they are all those from the first to the last. */
static uint32_t nodes_of(uint32_t first, uint32_t stride, uint32_t ranks, uint32_t gpus_per_node)
{
    const uint32_t last = first + (ranks - 1) * stride;
    return stride >= gpus_per_node ? ranks : 1 + last / gpus_per_node - first / gpus_per_node;
}

/* The sparsest of the mesh's groups of this kind decides, since all wait for the slowest. Groups
 * are made of ranks `stride` apart, beginning anywhere; where they do not divide nodes evenly, some
 * lie across a border. */
static struct layout layout_of(const struct plan *plan, const struct plan_group *group,
                               uint32_t gpus_per_node)
{
    const uint32_t stride = group->stride ? group->stride : 1, span = stride * group->ranks;
    const uint64_t pattern = 4ULL * gpus_per_node * stride; /* ranks, and it repeats */
    uint32_t most_nodes = stride >= gpus_per_node ? group->ranks : 1;
    for (uint64_t begin = 0; begin < plan->world && begin <= pattern; begin += span)
        for (uint32_t i = 0; i < stride && stride < gpus_per_node; i++) {
            const uint32_t nodes =
                nodes_of((uint32_t)begin + i, stride, group->ranks, gpus_per_node);
            most_nodes = nodes > most_nodes ? nodes : most_nodes;
        }
    while (group->ranks % most_nodes)
        most_nodes++; /* as if spread evenly: no fewer crossings */
    return (struct layout){group->ranks / most_nodes, most_nodes};
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

/* Of the ports that the model lets a group of so many ranks a node use whole, the share that is
 * really its own. */
static double port_share(const struct fabric *f, uint32_t ranks_per_node)
{
    const double own = (double)f->nics_per_node * ranks_per_node / f->gpus_per_node;
    return own / fmax(1, floor(own));
}

static enum err_code build(const struct plan_collectives *c, const struct plan_group *g,
                           enum collective collective, struct collective_model *model,
                           struct err *err)
{
    const struct layout layout = layout_of(c->plan, g, c->gpus_per_node);
    const bool on_cpu = c->profile->generation == GENERATION_CPU;
    struct fabric fabric = fabric_of(c);
    /* The node's other groups do the same at the same time: a group has its ranks' part of the
     * network ports. */
    if (layout.nodes > 1)
        fabric.nic_bytes_per_s *= port_share(&fabric, layout.ranks_per_node);
    struct collective_point *own = on_cpu ? points_on_cpu(c->profile, collective, g->ranks) : NULL;
    const struct collective_table table = {own ? own : c->profile->points, c->profile->point_count};
    fabric.measured = &table;
    if (on_cpu) { /* a fabric is asked for all the same: the memory between processes */
        fabric.generation = GENERATION_ADA;
        fabric.link = LINK_HOST;
    }
    enum err_code rc = collective_model_build(&fabric, collective, layout.ranks_per_node,
                                              layout.nodes, model, err);
    free(own);
    if (rc == ERR_OK && on_cpu && !model->curve) {
        rc =
            err_set(err, ERR_INVALID,
                    "profile %s has fewer than three measured sizes of it, and a CPU's collectives "
                    "are known by measurement alone (shardplan calibrate)",
                    c->profile->name);
        collective_model_free(model);
    }
    return rc == ERR_OK ? rc
                        : err_context(err, "%s of group %s", collective_name(collective), g->name);
}

static enum err_code find_model(const struct plan_collectives *c, const struct plan_group *group,
                                enum collective collective, struct kept_model **out,
                                struct err *err)
{
    struct collective_models *models = c->models;
    for (uint32_t i = 0; i < models->count; i++) {
        *out = &models->of[i];
        if ((*out)->collective == collective && (*out)->ranks == group->ranks &&
            (*out)->stride == group->stride && (*out)->world == c->plan->world)
            return ERR_OK;
    }
    struct collective_model model;
    TRY(build(c, group, collective, &model, err));
    ARRAY_GROW(models->of, models->count, models->cap);
    *out = &models->of[models->count++];
    **out = (struct kept_model){.world = c->plan->world,
                                .ranks = group->ranks,
                                .stride = group->stride,
                                .collective = collective,
                                .model = model};
    return ERR_OK;
}

struct collective_models *collective_models_new(void)
{
    struct collective_models *models = xmalloc(sizeof *models);
    *models = (struct collective_models){.of = NULL};
    return models;
}

void collective_models_free(struct collective_models *models)
{
    if (!models)
        return;
    for (uint32_t i = 0; i < models->count; i++)
        collective_model_free(&models->of[i].model);
    free(models->of);
    free(models);
}

/* nccl-tests' bytes: the whole buffer of a gather or scatter, one rank's of the others. */
static uint64_t full_bytes(const struct plan *plan, const struct plan_instruction *in)
{
    const struct kernel *kernel = plan_kernel(plan, in->arg);
    const bool gathers = in->op == PLAN_ALL_GATHER;
    const struct operand *o = &kernel->operands[(gathers ? kernel->ins : 0)];
    return shape_bytes(&o->shape, (enum dtype)o->dtype);
}

static double share(double used, double of)
{
    return of > 0 ? fmin(1, used / of) : 0;
}

static void cost_of(const struct profile *p, const struct kept_model *kept, uint64_t bytes,
                    struct cost *out)
{
    const bool on_cpu = p->generation == GENERATION_CPU;
    const struct collective_cost cost = collective_cost(&kept->model, bytes);
    const double moved =
        collective_bus_factor(kept->collective, kept->ranks) * (double)bytes / cost.seconds;
    const uint32_t nodes = kept->model.tuning.nodes;
    const bool across = nodes > 1, alone = nodes == kept->ranks; /* one rank a node */
    const bool slot = p->link == LINK_PCIE || p->link == LINK_HOST || across;
    const double sms = profile_value(p, PROFILE_SMS), use = profile_value(p, PROFILE_OVERLAP);
    out->device_s = cost.seconds;
    out->slowdown = (float)profile_value(p, PROFILE_OVERLAP_SLOWDOWN);
    out->use[RESOURCE_COMPUTE] = (float)(use > 0 ? use : share(cost.channels, sms));
    out->use[RESOURCE_MEMORY] =
        (float)share(cost.hbm_bytes / cost.seconds, profile_value(p, PROFILE_MEMORY));
    out->use[RESOURCE_LINK] = alone    ? 0
                              : across ? (float)share(moved, profile_value(p, PROFILE_LINK))
                                       : 1;
    out->use[RESOURCE_NIC] = across;
    /* What does not go over NVLink goes through the slot, both ways at once. */
    const float through = (float)share(moved, profile_value(p, PROFILE_PCIE));
    out->use[RESOURCE_FROM_HOST] = out->use[RESOURCE_TO_HOST] = slot && !on_cpu ? through : 0;
    out->spread = (float)cost.spread;
}

/* All to all: a rank receives what it does of a gather of as many bytes, all but its own slice. */
static enum collective collective_of(enum plan_op op)
{
    const bool gathers = op == PLAN_ALL_GATHER || op == PLAN_ALL_TO_ALL;
    return gathers                     ? COLLECTIVE_ALL_GATHER
           : op == PLAN_REDUCE_SCATTER ? COLLECTIVE_REDUCE_SCATTER
           : op == PLAN_ALL_REDUCE     ? COLLECTIVE_ALL_REDUCE
                                       : COLLECTIVE_BROADCAST;
}

/* The model of an instruction's collective; *out NULL: its group is one rank, which needs none. */
static enum err_code model_of(const struct plan_collectives *c, const struct plan_instruction *in,
                              struct kept_model **out, struct err *err)
{
    *out = NULL;
    if (in->group >= c->plan->group_count)
        return err_set(err, ERR_INTERNAL, "a collective of no group");
    const struct plan_group *group = &c->plan->groups[in->group];
    return group->ranks == 1 ? ERR_OK
                             : find_model(c, group, collective_of((enum plan_op)in->op), out, err);
}

enum err_code plan_collective_check(const struct plan_collectives *c,
                                    const struct plan_instruction *in, struct err *err)
{
    struct kept_model *kept;
    return model_of(c, in, &kept, err);
}

enum err_code plan_collective_cost(const struct plan_collectives *c,
                                   const struct plan_instruction *in, struct cost *out,
                                   struct err *err)
{
    const uint64_t bytes = full_bytes(c->plan, in);
    struct kept_model *kept;
    *out =
        (struct cost){.class = COST_COLLECTIVE, .first = c->profile->generation != GENERATION_CPU};
    TRY(model_of(c, in, &kept, err));
    if (!kept) { /* NCCL copies, or does nothing in place */
        out->device_s = profile_value(c->profile, PROFILE_LATENCY);
        return ERR_OK;
    }
    for (uint32_t i = 0; i < COSTS_KEPT && i < kept->kept; i++)
        if (kept->bytes[i] == bytes) {
            *out = kept->cost[i];
            return ERR_OK;
        }
    cost_of(c->profile, kept, bytes, out);
    kept->bytes[kept->kept % COSTS_KEPT] = bytes;
    kept->cost[kept->kept++ % COSTS_KEPT] = *out;
    return ERR_OK;
}
