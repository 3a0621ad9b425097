/* borders.h - borders of modules that a builder gave none: of any that has parameters, or a name
 * of its builder's (graph/calls.h). */
#ifndef SHARDPLAN_BORDERS_H
#define SHARDPLAN_BORDERS_H

#include "graph/graph.h"

/* Gives modules of `count` names their borders (ROLE_INNER), with the parameters below them that
 * have no module further in: before the first operator of what one contains, and behind the last
 * one and what goes with its forward. The leaves come first. Returns how many were given; less than
 * `count`: of the next nothing is called, or it begins in one module and ends in another. */
uint32_t graph_give_borders(struct graph *graph, const char *const *names, uint32_t count);

#endif
