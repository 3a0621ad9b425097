/* allocator_parts.h - what the files of the allocator share.
 *
 *     allocator.c             what a call to alloc or free normally touches
 *     allocator_expandable.c  ... when the cache has no block: memory is had from the device and
 *                             given back to it, as segments or as pages of expandable ranges
 *     allocator_check.c       what is always true of it
 *     free_set.h, block.h     free blocks in order; blocks
 *
 * Read after allocator.h. */
#ifndef SHARDPLAN_ALLOCATOR_PARTS_H
#define SHARDPLAN_ALLOCATOR_PARTS_H

#include "memory/allocator.h"
#include "memory/free_set.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

#define SMALL_BYTES (1 * MIB)          /* largest request of the small pool */
#define SMALL_SEGMENT_BYTES (2 * MIB)  /* also the page of its expandable ranges */
#define LARGE_SEGMENT_BYTES (20 * MIB) /* likewise, for the large pool */
#define OWN_SEGMENT_BYTES (10 * MIB)   /* from here on a segment holds one request */
#define SEGMENT_ROUNDING (2 * MIB)
#define MAX_REQUEST_BYTES (16 * 1024 * GIB) /* more is refused; keeps sizes inside the bins */

struct expandable_range {
    struct expandable_range *older;
    uint64_t address, bytes, page_bytes;
    uint64_t *pages; /* what segment_new returned for each mapped page, else 0; NULL without it */
};

struct allocator {
    struct allocator_stats stats;
    struct free_set *sets[POOL_COUNT][ALLOCATOR_STREAMS]; /* NULL until first used */
    uint64_t searches[POOL_COUNT];   /* counted only while garbage collection is on */
    uint64_t least_rest[POOL_COUNT]; /* a smaller rest is not split off */
    uint64_t split_below;            /* requests from here on take blocks whole */
    uint64_t oversize_from;          /* blocks from here on serve only requests from here on */
    bool picky;    /* a setting is on that can refuse, age or prefer a free block */
    bool rounding; /* roundup_power2_divisions is in use */
    bool collecting;
    struct block_store store;
    struct expandable_range *ranges;
    uint64_t next_address; /* of made-up segments and ranges */
    struct allocator_settings settings;
};

struct request {
    uint64_t bytes, rounded; /* as asked, and as charged when the block is split */
    enum pool_kind pool;
    int stream;
};

/* Puts a block that is not allocated any more, and merged, into its set. */
static inline void block_release(const struct allocator *allocator, struct free_set *set,
                                 struct allocator_block *block)
{
    block->free_since = allocator->searches[block->pool];
    free_set_insert(set, block);
}

/* Lets `block`, which is in no set, swallow a neighbour that is free and equally mapped; the caller
 * has taken an unmapped one out of `unmapped`. Returns the bytes gained. */
static inline uint64_t block_merge(struct allocator *allocator, struct free_set *set,
                                   struct allocator_block *block, struct allocator_block *neighbour)
{
    if (!neighbour || neighbour->allocated || neighbour->mapped != block->mapped)
        return 0;
    const uint64_t gained = neighbour->bytes;
    if (neighbour->mapped)
        free_set_remove(set, neighbour);
    if (block->prev == neighbour) {
        block->address = neighbour->address;
        block->prev = neighbour->prev;
        if (block->prev)
            block->prev->next = block;
    } else {
        block->next = neighbour->next;
        if (block->next)
            block->next->prev = block;
    }
    block->bytes += gained;
    block_drop(&allocator->store, neighbour);
    return gained;
}

static inline void record(const struct allocator *allocator, enum allocator_action action,
                          uint64_t address, uint64_t bytes, int stream)
{
    const struct allocator_settings *settings = &allocator->settings;
    if (settings->on_action)
        settings->on_action(settings->action_context, action, address, bytes, stream);
}

/* ---- allocator_expandable.c ---- */

/* New memory for a request that no cached block serves, in no free set: a segment or mapped
 * pages. Releases cached memory when the device refuses; NULL when that was not enough. */
struct allocator_block *allocator_obtain(struct allocator *allocator,
                                         const struct request *request);

/* Gives every segment and page back to the device, whatever is in it. */
void allocator_return_all(struct allocator *allocator);

#endif
