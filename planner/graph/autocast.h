/* autocast.h - a forward pass under torch.autocast.
 *
 * Which dtype an operator computes in is in the list of operators (ops.h): products in the region's
 * lower precision, norms, powers and losses in fp32. So a constructor says one line,
 *
 *     uint32_t in[3] = {x, weight, bias};
 *     autocast_arguments(graph, OP_LINEAR, 3, in);
 *
 * and the casts are operators of the script like any other: with births, nodes and deaths. Outside
 * autocast the line does nothing.
 *
 * (pytorch aten/src/ATen/autocast_mode.{h,cpp}; what was recorded of it:
 * tests/data/truth/README.md, "Autocast".) */
#ifndef SHARDPLAN_AUTOCAST_H
#define SHARDPLAN_AUTOCAST_H

#include "graph/ops.h"

/* Casts those of in[0 .. count) that an operator of `kind` would not take as they are, and replaces
 * them by their casts: the last argument first. The cast to the region's dtype of a leaf parameter
 * that needs a gradient is made once and kept to the end of the region; any other is let go with
 * the call, that is when the next operator of `kind` is done. */
void autocast_arguments(struct graph *graph, enum op_kind kind, uint32_t count, uint32_t *in);

/* The cast of a parameter that a call within operator `op` makes, if the region keeps it: there
 * already, or the operator's next output. GRAPH_NONE: each call has its own, or there is none. */
uint32_t autocast_kept(struct graph *graph, uint32_t op, uint32_t tensor);

/* What scaled_dot_product_attention does first under autocast: casts of q, k, v (b, s, a, d) and of
 * a bias, if there is one; `kind` is the attention that they are for. */
void autocast_attention_arguments(struct graph *graph, enum op_kind kind, uint32_t count,
                                  uint32_t *in);

/* The dtype in which products (linear, attention) compute and are born. */
enum dtype autocast_product(const struct graph *graph);

#endif
