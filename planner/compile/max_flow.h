/* max_flow.h - the least cut between two vertices of a small directed graph (Dinic's algorithm). */
#ifndef SHARDPLAN_MAX_FLOW_H
#define SHARDPLAN_MAX_FLOW_H

#include <stdbool.h>
#include <stdint.h>

#define FLOW_ENDLESS (INT64_C(1) << 60) /* a capacity that no cut may take */

struct flow_edge { /* edge e and its way back, e ^ 1, are neighbours */
    uint32_t to, next;
    int64_t left; /* capacity less flow */
};

struct max_flow {
    struct flow_edge *edges;
    uint32_t *first; /* (vertices) edge; UINT32_MAX: none */
    uint32_t *level, *at, *queue;
    uint32_t vertices, edge_count, edge_cap;
};

struct max_flow *max_flow_new(uint32_t vertices);
void max_flow_free(struct max_flow *flow); /* NULL is allowed */
void max_flow_edge(struct max_flow *flow, uint32_t from, uint32_t to, int64_t capacity);

/* The flow from source to sink. Of the cuts that are as small, the one nearest to the sink:
 * behind[v] (vertices) says of each vertex whether it is on the sink's side. A flow of FLOW_ENDLESS
 * or more: there is no cut. */
int64_t max_flow_cut(struct max_flow *flow, uint32_t source, uint32_t sink, bool *behind);

#endif
