/* region.h - a module's part of an eager stream as a joint graph and what is saved of it. */
#ifndef SHARDPLAN_REGION_H
#define SHARDPLAN_REGION_H

#include "compile/joint.h"
#include "compile/partition.h"
#include "compile/program.h"
#include "graph/graph.h"
#include "graph/tape_regions.h"

struct region_gradient { /* that backward gives out */
    uint32_t node;
    bool of_param;
    bool later;     /* tape_border */
    uint32_t index; /* the parameter, or the tensor whose gradient it is (its root) */
};

struct compiled_region {
    struct joint *joint;
    uint32_t *results; /* (result_count) nodes */
    uint32_t *comes;   /* (result_count) nodes of their gradients; JOINT_NONE: none comes */
    uint32_t result_count;
    bool has_backward; /* any comes */
    struct region_gradient *gradients;
    uint32_t gradient_count;
    const struct compiled_region *like; /* lent: traced alike, and what follows is its; or NULL */
    struct partition partition;
    struct program *forward, *backward; /* backward: NULL where no gradient comes */
};

/* `blocks`: how each block of the model is checkpointed; NULL: none is. ERR_UNSUPPORTED: something
 * in it is not planned. The caller owns *out, whatever is returned:
 * compiled_region_free. */
enum err_code compiled_region_trace(const struct graph *graph, const struct tape_regions *regions,
                                    const struct tape_region *region,
                                    const enum joint_checkpoint *blocks,
                                    struct compiled_region *out, struct err *err);
/* What is saved, and the programs; nothing where it is like another. */
enum err_code compiled_region_finish(struct compiled_region *region, struct err *err);
/* Both traced: whether one's partition and programs are the other's. */
bool compiled_region_is_like(const struct compiled_region *x, const struct compiled_region *y);
void compiled_region_free(struct compiled_region *region);

/* Its own, or those of the one that it is like. */
static inline const struct partition *
compiled_region_partition(const struct compiled_region *region)
{
    return region->like ? &region->like->partition : &region->partition;
}

static inline const struct program *compiled_region_forward(const struct compiled_region *region)
{
    return region->like ? region->like->forward : region->forward;
}

static inline const struct program *compiled_region_backward(const struct compiled_region *region)
{
    return region->like ? region->like->backward : region->backward;
}

#endif
