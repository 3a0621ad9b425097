/* borders.h - borders of modules that a builder gave none: of any that has parameters, or a name
 * of its builder's (graph/calls.h). */
#ifndef SHARDPLAN_BORDERS_H
#define SHARDPLAN_BORDERS_H

#include "graph/graph.h"

/* Gives the module its borders (ROLE_INNER), with the parameters below it that have no module
 * further in: before the first operator of what it contains, and behind the last one and what goes
 * with its forward. Called from the leaves up. False: nothing of that name is called, or it begins
 * in one module and ends in another. */
bool graph_give_borders(struct graph *graph, const char *name);

#endif
