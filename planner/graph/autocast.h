/* autocast.h - a forward pass under torch.autocast.
 *
 * Which dtype an operator computes in is a property of its class (op_class.h): products in the
 * region's lower precision, norms, powers and losses in fp32. So a constructor says one line,
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

#include "graph/graph.h"

/* What autocast does with the floating arguments of an operator. */
enum autocast_rule {
    AUTOCAST_NONE, /* they are taken as they come */
    AUTOCAST_LOWER,
    AUTOCAST_FP32,
};

/* Casts those of in[0 .. count) that an operator of `kind` (enum op_kind) would not take as they
 * are, and replaces them by their casts: the last argument first. The cast of a leaf parameter that
 * needs a gradient is made once and kept to the end of the region; any other is let go with the
 * call, that is when the next operator of `kind` is done. */
void autocast_arguments(struct graph *graph, int kind, uint32_t count, uint32_t *in);

/* For graph_op_done: an operator of `kind` is done, and with it, if it is the one that the last
 * autocast_arguments was for, the call. */
void autocast_end_call(struct graph *graph, int kind);

/* The `with` block ends: its cache lets go of the casts of parameters. */
void autocast_end_region(struct graph *graph);

/* The dtype in which products (linear, attention) compute and are born. */
enum dtype autocast_product(const struct graph *graph);

#endif
