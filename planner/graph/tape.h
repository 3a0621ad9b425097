/* tape.h - runs a graph as eager autograd runs it, and writes down what happened.
 *
 * Forward: each op births its outputs; each op that needs a gradient becomes a node that holds
 * what it saves; Python's reference dies at a drop. Backward: nodes run in reverse order of
 * creation (autograd's queue: highest sequence number first). A node births its gradients, lets
 * go of the gradients it was given, then of what it saved; a tensor used twice has its gradients
 * added up, in place where nobody else holds the first. A storage dies with its last holder.
 * Checkpointed blocks hold only their inputs and run again at the first node that needs something
 * saved.
 *
 * There are no formulas for activation memory here or anywhere else: it is what is alive. */
#ifndef SHARDPLAN_TAPE_H
#define SHARDPLAN_TAPE_H

#include "graph/stream.h"
#include "graph/tape_options.h"

/* Runs the graph (lent) for one micro-batch. The caller owns the result: stream_free. */
struct stream *tape_run(const struct graph *graph, const struct tape_options *options);

#endif
