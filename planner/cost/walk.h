/* walk.h - for the cost of kernels: how an elementwise kernel walks over its operands.
 *
 * PyTorch's TensorIterator joins neighbouring dims wherever every operand allows it. If one dim is
 * left, and each operand is contiguous in it, a vectorised kernel runs: it waits for memory and for
 * nothing else. Otherwise each element's place is computed, dim by dim and operand by operand
 * (elementwise_kernel and its OffsetCalculator, CUDALoops.cuh), and so are casts
 * (unrolled_elementwise_kernel): then instructions decide, not bytes. */
#ifndef SHARDPLAN_WALK_H
#define SHARDPLAN_WALK_H

#include "base/kernel.h"

/* Cycles of one of Hopper's multiprocessors for an element of the result; 0: bytes alone decide. */
double walk_cycles(const struct kernel *kernel);

#endif
