/* partition.h - what a compiled region saves for its backward: AOTAutograd's
 * min_cut_rematerialization_partition (torch/_functorch/partitioners.py of PyTorch 2.14), by its
 * own rules and numbers.
 *
 * Each node costs the bytes of its result, 1.1 times as much for each function between it and
 * backward (to a hundred), and twice that where fusion would spare it the trip to memory. A cut
 * through the joint graph is what is saved: all that backward reads on its far side runs again.
 * Parameters cost nothing, or what is taken for them. What may not run again is tied to the source:
 * kernels of libraries, what backward writes to memory anyway, reductions to less than a quarter,
 * and what is used both before and behind something that does not fuse. */
#ifndef SHARDPLAN_PARTITION_H
#define SHARDPLAN_PARTITION_H

#include "compile/joint.h"

struct partition {
    uint32_t *saved; /* nodes, parameters included, in the order of the graph */
    uint32_t saved_count;
};

/* results: nodes that forward gives out; gradients: those that backward does. Both lists may have
 * JOINT_NONE in them. ERR_INTERNAL: something can neither be saved nor run again. The caller owns
 * *out: partition_free. */
enum err_code partition_of(const struct joint *joint, uint32_t result_count,
                           const uint32_t *results, uint32_t gradient_count,
                           const uint32_t *gradients, struct partition *out, struct err *err);
void partition_free(struct partition *partition);

#endif
