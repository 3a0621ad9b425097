/* ready_queue.c - see ready_queue.h: std::push_heap and std::pop_heap. */
#include "graph/ready_queue.h"

#include "base/arena.h"

#include <stdlib.h>

struct heap {
    const uint32_t *numbers; /* of nodes */
    uint32_t *nodes;         /* the heap */
};

static bool is_below(const struct heap *heap, uint32_t x, uint32_t y)
{
    return heap->numbers[x] < heap->numbers[y];
}

static void rise(const struct heap *heap, uint32_t hole, uint32_t node)
{
    uint32_t *nodes = heap->nodes;
    while (hole > 0 && is_below(heap, nodes[(hole - 1) / 2], node)) {
        nodes[hole] = nodes[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    nodes[hole] = node;
}

/* __adjust_heap: the hole sinks to a leaf, of equal children by the right one; what was last takes
 * it, and rises. */
static uint32_t pop(const struct heap *heap, uint32_t count)
{
    uint32_t *nodes = heap->nodes;
    const uint32_t top = nodes[0], last = nodes[count - 1], left = count - 1;
    uint32_t hole = 0;
    while (2 * hole + 2 < left) {
        uint32_t child = 2 * hole + 2;
        child -= is_below(heap, nodes[child], nodes[child - 1]);
        nodes[hole] = nodes[child];
        hole = child;
    }
    if (2 * hole + 2 == left) {
        nodes[hole] = nodes[left - 1];
        hole = left - 1;
    }
    rise(heap, hole, last);
    return top;
}

void ready_queue_order(uint32_t count, const uint32_t *numbers, uint32_t *order)
{
    const struct heap heap = {numbers, xmalloc((count + 1UL) * sizeof *heap.nodes)};
    for (uint32_t i = 0; i < count; i++)
        rise(&heap, i, i);
    for (uint32_t i = 0; i < count; i++)
        order[i] = pop(&heap, count - i);
    free(heap.nodes);
}
