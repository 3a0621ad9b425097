/* act_graph.c - see act_graph.h. */
#include "compile/act_graph.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

static uint64_t *row(const struct act_graph *graph, uint32_t act)
{
    return graph->before + (size_t)act * graph->words;
}

static bool has_bit(const uint64_t *bits, uint32_t act)
{
    return bits[act / 64] >> (act % 64) & 1;
}

uint32_t act_graph_now(struct act_graph *graph, uint32_t act)
{
    while (graph->into[act] != act) { /* the way is halved for who comes next */
        graph->into[act] = graph->into[graph->into[act]];
        act = graph->into[act];
    }
    return act;
}

/* ---- from the acts ---- */

uint32_t *writers_of(const struct building *b)
{
    const uint32_t memories = b->program->memory_count;
    uint32_t *writer = xmalloc((memories + 1) * sizeof *writer);
    memset(writer, 0xff, (memories + 1) * sizeof *writer);
    for (uint32_t i = 0; i < b->act_count; i++)
        for (uint32_t w = 0; w < b->acts[i].writes.count; w++)
            writer[b->acts[i].writes.of[w]] = i;
    return writer;
}

static void find_readers(struct act_graph *graph, const struct building *b)
{
    const uint32_t memories = b->program->memory_count;
    graph->writer = writers_of(b);
    graph->first = xcalloc((size_t)memories + 2, sizeof *graph->first);
    for (uint32_t i = 0; i < b->act_count; i++)
        for (uint32_t r = 0; r < b->acts[i].reads.count; r++)
            graph->first[b->acts[i].reads.of[r] + 2]++;
    for (uint32_t m = 2; m < memories + 2; m++)
        graph->first[m] += graph->first[m - 1];
    graph->readers = xmalloc(((size_t)graph->first[memories + 1] + 1) * sizeof *graph->readers);
    for (uint32_t i = 0; i < b->act_count; i++) /* first[m + 1] grows to be the end of m's */
        for (uint32_t r = 0; r < b->acts[i].reads.count; r++)
            graph->readers[graph->first[b->acts[i].reads.of[r] + 1]++] = i;
}

/* Adds what is before those that an act reads of. Returns whether any was new. */
static bool add_before(struct act_graph *graph, const struct draft *act, uint64_t *bits)
{
    uint64_t added = 0;
    for (uint32_t r = 0; r < act->reads.count; r++) {
        const uint32_t writer = graph->writer[act->reads.of[r]];
        if (writer == JOINT_NONE)
            continue;
        const uint64_t *from = row(graph, writer);
        for (uint32_t i = 0; i < graph->words; i++) {
            added |= from[i] & ~bits[i];
            bits[i] |= from[i];
        }
    }
    return added != 0;
}

/* Acts are nearly in order, but for what is put in memory for a call: a second turn adds that, and
 * the last one nothing. */
static void find_before(struct act_graph *graph, const struct building *b)
{
    graph->before = xcalloc((size_t)graph->acts * graph->words + 1, sizeof *graph->before);
    for (uint32_t i = 0; i < graph->acts; i++)
        row(graph, i)[i / 64] |= (uint64_t)1 << (i % 64);
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < graph->acts; i++)
            more |= add_before(graph, &b->acts[i], row(graph, i));
    }
}

void act_graph_open(struct act_graph *graph, const struct building *b)
{
    *graph = (struct act_graph){.acts = b->act_count, .words = (b->act_count + 63) / 64};
    graph->into = xmalloc((graph->acts + 1) * sizeof *graph->into);
    for (uint32_t i = 0; i < graph->acts; i++)
        graph->into[i] = i;
    find_readers(graph, b);
    find_before(graph, b);
}

void act_graph_close(struct act_graph *graph)
{
    free(graph->into);
    free(graph->writer);
    free(graph->first);
    free(graph->readers);
    free(graph->before);
    *graph = (struct act_graph){0};
}

/* ---- as they are fused ---- */

bool act_graph_has_between(struct act_graph *graph, const struct building *b, uint32_t x,
                           uint32_t y)
{
    const struct list *reads = &b->acts[y].reads;
    for (uint32_t r = 0; r < reads->count; r++) {
        const uint32_t writer = graph->writer[reads->of[r]];
        if (writer == JOINT_NONE)
            continue;
        const uint32_t by = act_graph_now(graph, writer);
        if (by != x && by != y && has_bit(row(graph, by), x))
            return true;
    }
    return false;
}

void act_graph_join(struct act_graph *graph, uint32_t x, uint32_t y)
{
    uint64_t *to = row(graph, x);
    const uint64_t *from = row(graph, y);
    uint32_t begin = 0, end = graph->words; /* the words in which the two differ: all that is new */
    while (begin < end && to[begin] == from[begin])
        begin++;
    while (end > begin && to[end - 1] == from[end - 1])
        end--;
    for (uint32_t i = begin; i < end; i++)
        to[i] |= from[i];
    graph->into[y] = x;
    for (uint32_t i = 0; i < graph->acts; i++) {
        uint64_t *bits = row(graph, i);
        if (i == x || graph->into[i] != i || (!has_bit(bits, x) && !has_bit(bits, y)))
            continue;
        for (uint32_t k = begin; k < end; k++)
            bits[k] |= to[k];
    }
}
