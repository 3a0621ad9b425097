/* t5.h - steps of T5's op sequence. */
#ifndef SHARDPLAN_HF_T5_H
#define SHARDPLAN_HF_T5_H

#include "graph/ops.h"

/* One step of arithmetic outside autograd on x; `spent` (or GRAPH_NONE) dies. */
uint32_t t5_step(struct graph *graph, enum work_kind work, enum aten aten, enum dtype dtype,
                 struct shape shape, uint32_t x, uint32_t spent);

/* compute_bias: (1, a, s, s), a view of (s, s, a), from the embedding `buckets` (n, a). */
uint32_t t5_position_bias(struct graph *graph, uint32_t s, uint32_t buckets, bool decoder);

/* The bias (1, a, s, s) as one contiguous tensor, with a causal mask in it or not: itself, where it
 * is one already. */
uint32_t t5_own_bias(struct graph *graph, uint32_t bias, bool causal);

#endif
