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
    uint32_t index; /* the parameter, or the tensor whose gradient it is (its root) */
};

struct compiled_region {
    struct joint *joint;
    struct partition partition;
    uint32_t result;   /* node */
    uint32_t gradient; /* node of the gradient that comes in; JOINT_NONE: none does */
    struct region_gradient *gradients;
    uint32_t gradient_count;
    struct program *forward, *backward; /* backward: NULL where no gradient comes */
};

/* ERR_UNSUPPORTED: something in it is not planned. The caller owns *out: compiled_region_free. */
enum err_code compiled_region_of(const struct graph *graph, const struct tape_regions *regions,
                                 const struct tape_region *region, enum joint_checkpoint checkpoint,
                                 struct compiled_region *out, struct err *err);
void compiled_region_free(struct compiled_region *region);

#endif
