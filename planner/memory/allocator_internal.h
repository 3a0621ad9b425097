/* allocator_internal.h - what allocator.c, allocator_expandable.c and snapshot.c share.
 *
 * allocator.c holds the free sets and what a call to alloc or free normally touches;
 * allocator_expandable.c what happens when the cache has no block: memory is had from the device
 * and given back to it, as segments or as pages of expandable ranges. Read after allocator.h. */
#ifndef SHARDPLAN_ALLOCATOR_INTERNAL_H
#define SHARDPLAN_ALLOCATOR_INTERNAL_H

#include "memory/allocator.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

#define MIN_BLOCK_BYTES ((uint64_t)512)
#define SMALL_BYTES (1 * MIB)          /* largest request of the small pool */
#define SMALL_SEGMENT_BYTES (2 * MIB)  /* also the page of its expandable ranges */
#define LARGE_SEGMENT_BYTES (20 * MIB) /* likewise, for the large pool */
#define OWN_SEGMENT_BYTES (10 * MIB)   /* from here on a segment holds one request */
#define SEGMENT_ROUNDING (2 * MIB)
#define MAX_REQUEST_BYTES (16 * 1024 * GIB) /* more is refused; keeps sizes inside the bins */

enum pool_kind { POOL_LARGE, POOL_SMALL, POOL_COUNT }; /* in the order they are released */

enum {
    BIN_COUNT = 1024, /* 32 per power of two, up to 32 TiB */
    BIN_WORDS = BIN_COUNT / 64,
};

struct expandable_range;

struct allocator_block { /* one cache line; 0 bytes: unused slot of a slab */
    uint64_t address, bytes;
    uint64_t requested_bytes;            /* 0 unless allocated */
    struct allocator_block *prev, *next; /* address neighbours in the segment or range */
    struct expandable_range *range;      /* NULL: an ordinary segment */
    uint64_t free_since;                 /* the pool's search count when it became free */
    uint8_t stream, pool;
    bool allocated;
    bool mapped; /* has memory behind it; false only inside expandable ranges */
};

/* The free blocks of one pool and stream, ordered by size, then address: see allocator.c. */
struct free_entry {
    uint64_t key;
    struct allocator_block *block;
};

struct free_leaf {
    uint32_t count, capacity;
    struct free_entry entries[]; /* highest key first */
};

struct free_bin {
    uint32_t leaf_count, list_capacity;
    union {
        struct free_leaf *leaf;  /* leaf_count 1 */
        struct free_leaf **list; /* leaf_count > 1, highest keys first */
    };
};

struct free_set {
    uint64_t words_in_use;     /* bit w: words[w] is not 0 */
    uint64_t words[BIN_WORDS]; /* bit b: bin b has entries */
    struct free_bin bins[BIN_COUNT];

    struct allocator_block **unmapped; /* of expandable ranges, by address; rarely more than one */
    size_t unmapped_count;
};

struct free_spot { /* a place in a free set, valid until the set changes; leaf NULL: none */
    struct free_leaf *leaf;
    uint32_t bin, leaf_index, entry;
};

struct block_slab {
    struct block_slab *older;
    size_t count, capacity;
    struct allocator_block *blocks; /* behind this header, aligned to a cache line */
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
    struct allocator_block *unused_blocks; /* linked by next */
    struct block_slab *slabs;
    struct expandable_range *ranges;
    uint64_t next_address; /* of made-up segments and ranges */
    struct allocator_settings settings;
};

struct request {
    uint64_t bytes, rounded; /* as asked, and as charged when the block is split */
    enum pool_kind pool;
    int stream;
};

/* allocator.c */

struct free_set *free_set_get(struct allocator *allocator, enum pool_kind pool, int stream);
void free_set_insert(struct allocator *allocator, struct free_set *set,
                     struct allocator_block *block);
void free_set_remove(struct free_set *set, const struct allocator_block *block);

/* The free blocks in order; the caller frees the array. */
struct allocator_block **free_set_list(const struct free_set *set, size_t *count);

/* A block with nothing but these fields set, allocated and mapped. Lent by a slab. */
struct allocator_block *block_new(struct allocator *allocator, enum pool_kind pool, int stream,
                                  uint64_t address, uint64_t bytes);
void block_drop(struct allocator *allocator, struct allocator_block *block);

/* Lets `block`, which is in no set, swallow a neighbour that is free and equally mapped; the caller
 * has taken an unmapped one out of `unmapped`. Returns the bytes gained. */
uint64_t block_merge(struct allocator *allocator, struct free_set *set,
                     struct allocator_block *block, struct allocator_block *neighbour);

/* allocator_expandable.c */

/* New memory for a request that no cached block serves, in no free set: a segment or mapped
 * pages. Releases cached memory when the device refuses; NULL when that was not enough. */
struct allocator_block *allocator_obtain(struct allocator *allocator,
                                         const struct request *request);

/* Gives every segment and page back to the device, whatever is in it. */
void allocator_return_all(struct allocator *allocator);

static inline void record(const struct allocator *allocator, enum allocator_action action,
                          uint64_t address, uint64_t bytes, int stream)
{
    const struct allocator_settings *settings = &allocator->settings;
    if (settings->on_action)
        settings->on_action(settings->action_context, action, address, bytes, stream);
}

static inline bool block_is_split(const struct allocator_block *block)
{
    return block->prev || block->next;
}

#endif
