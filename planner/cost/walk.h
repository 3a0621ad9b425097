/* walk.h - for the cost of kernels: how an elementwise kernel walks over its operands.
 *
 * PyTorch's TensorIterator joins neighbouring dims wherever every operand allows it. If one dim is
 * left, and each operand is contiguous in it, a vectorised kernel runs: it waits for memory and for
 * nothing else. Otherwise each element's place is computed, dim by dim and operand by operand
 * (elementwise_kernel and its OffsetCalculator, CUDALoops.cuh), and so are casts
 * (unrolled_elementwise_kernel): then instructions decide, not bytes. What says how to compute it
 * is in the kernel's arguments, constants that are in no cache when it begins.
 *
 * Grids of cat's strided kernel and of index_select's are as large as the device, not as the
 * tensor: a thread goes on to its next element when it has written the last, and each such trip
 * waits for memory (getCatGrid, Shape.cu; indexSelectLargeIndex, Indexing.cu). */
#ifndef SHARDPLAN_WALK_H
#define SHARDPLAN_WALK_H

#include "base/kernel.h"

struct walk {
    double cycles;  /* of one of Hopper's multiprocessors, an element of the result */
    double start_s; /* before a thread knows where its first element is */
    double trips_s; /* of one element after the other, where threads are fewer */
};

/* All zero: bytes alone decide. `sms`: multiprocessors. */
struct walk walk_of(const struct kernel *kernel, double sms);

#endif
