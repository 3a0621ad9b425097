/* act_graph.h - who comes behind whom while acts are fused (fusion.c): of every memory its readers
 * and its writer, and of every act all that have to run before it, kept as acts become one.
 *
 * As "ancestors" in torch/_inductor/scheduler.py, but with what an act gains by being fused passed
 * on to all behind it at once. Acts are named by their number in building.acts, which fusing leaves
 * alone. Takes acts * acts / 8 bytes. */
#ifndef SHARDPLAN_ACT_GRAPH_H
#define SHARDPLAN_ACT_GRAPH_H

#include "compile/program_parts.h"

struct act_graph {
    uint32_t acts, words; /* words: of 64 acts, in one row of `before` */
    uint32_t *into;       /* (acts) what it was fused into; itself: it is still there */
    uint32_t *writer;     /* (memories) JOINT_NONE: it is from outside */
    uint32_t *first;      /* (memories + 1) where its readers begin in `readers` */
    uint32_t *readers;    /* acts as they were before any were fused */
    uint64_t *before;     /* (acts, words) bit: itself, or has to run before it */
};

/* Of a building none of whose acts are fused. close frees what open took. */
void act_graph_open(struct act_graph *graph, const struct building *b);
void act_graph_close(struct act_graph *graph);

/* The act that one is in by now. */
uint32_t act_graph_now(struct act_graph *graph, uint32_t act);

/* Whether y comes behind x by way of another act. Both are still there. */
bool act_graph_has_between(struct act_graph *graph, const struct building *b, uint32_t x,
                           uint32_t y);

/* Says that y is fused into x, where nothing is between them. */
void act_graph_join(struct act_graph *graph, uint32_t x, uint32_t y);

#endif
