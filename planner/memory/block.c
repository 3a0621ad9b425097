/* block.c - see block.h. */
#include "memory/block.h"

#include "base/arena.h"

#include <assert.h>
#include <stdlib.h>

enum { SLAB_START = 64, SLAB_MAX = 4096, CACHE_LINE = 64 };
static_assert(sizeof(struct allocator_block) == CACHE_LINE, "one block, one cache line");

struct allocator_block *block_store_grow(struct block_store *store)
{
    const struct block_slab *newest = store->slabs;
    size_t capacity = newest ? 2 * newest->capacity : SLAB_START;
    capacity = capacity < SLAB_MAX ? capacity : SLAB_MAX;
    struct block_slab *slab = xmalloc(sizeof *slab + (capacity + 1) * sizeof *slab->blocks);
    unsigned char *start = (unsigned char *)(slab + 1);
    start += -(uintptr_t)start % CACHE_LINE;
    *slab = (struct block_slab){.older = store->slabs,
                                .count = 1,
                                .capacity = capacity,
                                .blocks = (struct allocator_block *)(void *)start};
    store->slabs = slab;
    return slab->blocks;
}

void block_store_free(struct block_store *store)
{
    while (store->slabs) {
        struct block_slab *older = store->slabs->older;
        free(store->slabs);
        store->slabs = older;
    }
    store->unused = NULL;
}
