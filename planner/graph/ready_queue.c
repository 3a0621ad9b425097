/* ready_queue.c - see ready_queue.h: std::push_heap and std::pop_heap, with two priorities. */
#include "graph/ready_queue.h"

#include "base/arena.h"

#include <stdlib.h>

enum { INPUT = UINT32_MAX }; /* the node of forward: the one that is below all others */

static bool is_below(uint32_t x, uint32_t y)
{
    return x == INPUT && y != INPUT;
}

static void rise(uint32_t *heap, uint32_t hole, uint32_t value)
{
    while (hole > 0 && is_below(heap[(hole - 1) / 2], value)) {
        heap[hole] = heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    heap[hole] = value;
}

/* __adjust_heap: the hole sinks to a leaf, of equal children by the right one; what was last takes
 * it, and rises. */
static uint32_t pop(uint32_t *heap, uint32_t count)
{
    const uint32_t top = heap[0], value = heap[count - 1], left = count - 1;
    uint32_t hole = 0;
    while (2 * hole + 2 < left) {
        uint32_t child = 2 * hole + 2;
        child -= is_below(heap[child], heap[child - 1]);
        heap[hole] = heap[child];
        hole = child;
    }
    if (2 * hole + 2 == left) {
        heap[hole] = heap[left - 1];
        hole = left - 1;
    }
    rise(heap, hole, value);
    return top;
}

void ready_queue_order(uint32_t count, uint32_t before, uint32_t *order)
{
    uint32_t *heap = xmalloc((count + 2UL) * sizeof *heap), size = 0, next = 0;
    for (uint32_t i = 0; i <= count; i++) {
        if (i == before)
            rise(heap, size++, INPUT);
        if (i < count)
            rise(heap, size++, i);
    }
    for (; size > 0; size--) {
        const uint32_t node = pop(heap, size);
        if (node != INPUT)
            order[next++] = node;
    }
    free(heap);
}
