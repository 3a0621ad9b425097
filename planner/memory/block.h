/* block.h - blocks of memory, from slabs: for the files of the allocator only. */
#ifndef SHARDPLAN_BLOCK_H
#define SHARDPLAN_BLOCK_H

#include "memory/allocator.h"

#include <assert.h>

#define MIN_BLOCK_BYTES ((uint64_t)REQUEST_UNIT) /* and what every size is a multiple of */

enum pool_kind { POOL_LARGE, POOL_SMALL, POOL_COUNT }; /* in the order they are released */

struct expandable_range;

struct allocator_block { /* one cache line; 0 bytes: unused slot of a slab */
    uint64_t address, bytes;
    uint64_t requested_bytes;            /* 0 unless allocated */
    struct allocator_block *prev, *next; /* address neighbours in the segment or range */
    struct expandable_range *range;      /* NULL: an ordinary segment */
    uint64_t free_since;                 /* the pool's search count when it became free */
    uint8_t stream, pool;
    bool allocated;
    bool pending; /* allocated still, and not counted so: its free was requested */
    bool mapped;  /* has memory behind it; false only inside expandable ranges */
};

struct block_slab {
    struct block_slab *older;
    size_t count, capacity;
    struct allocator_block *blocks; /* behind this header, aligned to a cache line */
};

struct block_store {
    struct allocator_block *unused; /* linked by next */
    struct block_slab *slabs;
};

/* The first slot of a new slab. */
struct allocator_block *block_store_grow(struct block_store *store);

/* Frees every slab, and with them every block. */
void block_store_free(struct block_store *store);

/* A block with nothing but these fields set, allocated and mapped. Lent by a slab. */
static inline struct allocator_block *block_new(struct block_store *store, enum pool_kind pool,
                                                int stream, uint64_t address, uint64_t bytes)
{
    struct allocator_block *block = store->unused;
    if (block)
        store->unused = block->next;
    else if (store->slabs && store->slabs->count < store->slabs->capacity)
        block = &store->slabs->blocks[store->slabs->count++];
    else
        block = block_store_grow(store);
    *block = (struct allocator_block){.address = address,
                                      .bytes = bytes,
                                      .stream = (uint8_t)stream,
                                      .pool = (uint8_t)pool,
                                      .allocated = true,
                                      .mapped = true};
    return block;
}

static inline void block_drop(struct block_store *store, struct allocator_block *block)
{
    assert(block->bytes > 0 && !block->allocated);
    block->bytes = 0;
    block->next = store->unused;
    store->unused = block;
}

static inline bool block_is_split(const struct allocator_block *block)
{
    return block->prev || block->next;
}

#endif
