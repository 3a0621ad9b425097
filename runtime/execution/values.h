/* values.h - the numbers that the kinds of base/values.h stand for. */
#ifndef SHARDPLAN_EXECUTION_VALUES_H
#define SHARDPLAN_EXECUTION_VALUES_H

#include "base/kernel.h"
#include "base/values.h"

/* Elements first ... first + count - 1 of parameter p (its place in model.parameters(), from 0; its
 * elements row-major), as fp32 into `out`. They depend on nothing else, so any split of a parameter
 * over ranks gives the same model.
 *
 *     uniform  tests/data/numerics/README.md's hash x of p and element: 2·bound·(x/2^32 - 1/2)
 *     normal   std·sqrt(-2 ln u)·cos or sin(2 pi v) for the first or second element of a pair, u
 *              and v from two ends of splitmix64's finalizer of p and pair (Box and Muller 1958) */
void values_of_param(const struct param_init *init, uint32_t p, uint64_t first, uint64_t count,
                     float *out);

/* All bytes of a module's buffer of that shape and the dtype that plan_verify asks for; of a
 * number, of fp32. */
void values_of_buffer(const struct buffer_values *values, const struct shape *shape,
                      enum dtype dtype, void *out);

#endif
