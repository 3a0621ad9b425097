/* small_graphs.h - for the tests of graph/: every architecture in each code that it has, in each
 * precision that changes which operators run, with a few blocks. */
#ifndef SHARDPLAN_SMALL_GRAPHS_H
#define SHARDPLAN_SMALL_GRAPHS_H

#include "graph/graph.h"

enum { SMALL_GRAPHS = 116 };

/* The graph number `i`, and what it is: "mixtral-8x7b, hf, float32". The caller owns it:
 * graph_free. Fails the test when there is none. */
struct graph *small_graph(int i, char *name, size_t size);
/* The same with some parameters frozen: patterns as graph_new takes them, lent as there. */
struct graph *small_graph_frozen(int i, const char *frozen, char *name, size_t size);

#endif
