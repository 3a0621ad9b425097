/* max_flow.c - see max_flow.h. */
#include "compile/max_flow.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

#define NO_EDGE UINT32_MAX

struct max_flow *max_flow_new(uint32_t vertices)
{
    struct max_flow *flow = xcalloc(1, sizeof *flow);
    flow->vertices = vertices;
    flow->first = xmalloc(vertices * sizeof *flow->first);
    flow->level = xmalloc(vertices * sizeof *flow->level);
    flow->at = xmalloc(vertices * sizeof *flow->at);
    flow->queue = xmalloc(vertices * sizeof *flow->queue);
    memset(flow->first, 0xff, vertices * sizeof *flow->first);
    return flow;
}

void max_flow_free(struct max_flow *flow)
{
    if (!flow)
        return;
    free(flow->edges);
    free(flow->first);
    free(flow->level);
    free(flow->at);
    free(flow->queue);
    free(flow);
}

static void add_edge(struct max_flow *flow, uint32_t from, uint32_t to, int64_t capacity)
{
    ARRAY_GROW(flow->edges, flow->edge_count, flow->edge_cap);
    flow->edges[flow->edge_count] =
        (struct flow_edge){.to = to, .next = flow->first[from], .left = capacity};
    flow->first[from] = flow->edge_count++;
}

void max_flow_edge(struct max_flow *flow, uint32_t from, uint32_t to, int64_t capacity)
{
    add_edge(flow, from, to, capacity);
    add_edge(flow, to, from, 0);
}

/* Distances from the source along what is left; whether the sink is reached. */
static bool find_levels(struct max_flow *flow, uint32_t source, uint32_t sink)
{
    uint32_t head = 0, tail = 0;
    memset(flow->level, 0xff, flow->vertices * sizeof *flow->level);
    flow->level[source] = 0;
    flow->queue[tail++] = source;
    while (head < tail) {
        const uint32_t v = flow->queue[head++];
        for (uint32_t e = flow->first[v]; e != NO_EDGE; e = flow->edges[e].next) {
            const struct flow_edge *edge = &flow->edges[e];
            if (edge->left <= 0 || flow->level[edge->to] != UINT32_MAX)
                continue;
            flow->level[edge->to] = flow->level[v] + 1;
            flow->queue[tail++] = edge->to;
        }
    }
    return flow->level[sink] != UINT32_MAX;
}

/* As deep as the levels of a region's graph: a few hundred. */
static int64_t push(struct max_flow *flow, uint32_t v, uint32_t sink, int64_t amount) // NOLINT
{
    if (v == sink)
        return amount;
    for (; flow->at[v] != NO_EDGE; flow->at[v] = flow->edges[flow->at[v]].next) {
        const uint32_t e = flow->at[v];
        struct flow_edge *edge = &flow->edges[e];
        if (edge->left <= 0 || flow->level[edge->to] != flow->level[v] + 1)
            continue;
        const int64_t pushed =
            push(flow, edge->to, sink, edge->left < amount ? edge->left : amount);
        if (pushed == 0)
            continue;
        edge->left -= pushed;
        flow->edges[e ^ 1U].left += pushed;
        return pushed;
    }
    return 0;
}

/* Whatever can still send to the sink is on its side. */
static void find_behind(struct max_flow *flow, uint32_t sink, bool *behind)
{
    uint32_t head = 0, tail = 0;
    memset(behind, 0, flow->vertices * sizeof *behind);
    behind[sink] = true;
    flow->queue[tail++] = sink;
    while (head < tail) {
        const uint32_t v = flow->queue[head++];
        for (uint32_t e = flow->first[v]; e != NO_EDGE; e = flow->edges[e].next) {
            const uint32_t from = flow->edges[e].to; /* its edge to v is the other of the pair */
            if (behind[from] || flow->edges[e ^ 1U].left <= 0)
                continue;
            behind[from] = true;
            flow->queue[tail++] = from;
        }
    }
}

int64_t max_flow_cut(struct max_flow *flow, uint32_t source, uint32_t sink, bool *behind)
{
    int64_t total = 0;
    while (total < FLOW_ENDLESS && find_levels(flow, source, sink)) {
        memcpy(flow->at, flow->first, flow->vertices * sizeof *flow->at);
        for (int64_t pushed;
             total < FLOW_ENDLESS && (pushed = push(flow, source, sink, FLOW_ENDLESS)) > 0;)
            total += pushed;
    }
    find_behind(flow, sink, behind);
    return total;
}
