/* causal_conv.h - the backward pass of a short causal convolution, for the files of operators that
 * have one inside. */
#ifndef SHARDPLAN_CAUSAL_CONV_H
#define SHARDPLAN_CAUSAL_CONV_H

#include "graph/tape_emit.h"

/* From in (count + 1: x, weight, perhaps a bias, the output's gradient) to out (count): the first's
 * memory is there; the others are summed in fp32, into zeros, and are then as their parameters are
 * stored. */
void causal_conv_gradients(struct tape *tape, enum work_kind work, double flops, uint32_t count,
                           const struct operand *in, struct operand *out);

#endif
