/* allocator.c - see allocator.h; the rules are those of c10/cuda/CUDACachingAllocator.cpp.
 *
 * A plan is replayed thousands of times while the planner searches, so one call must cost tens
 * of nanoseconds. Blocks are cache lines from slabs, chained to their address neighbours. What
 * takes time is the ordered set of free blocks: every pool and stream has one, and a call does
 * about one search, one removal and one insertion in it.
 *
 *     free_set    words   0100...0010  one bit per bin; lowest bit from a size on = best bin
 *                           |       |
 *                 bins    [   ] ... [   ]   32 size ranges per power of two
 *                           |       |
 *                 leaf    {key, block} ...  sorted, highest key first, at most 128 entries;
 *                                           a bin that outgrows its leaf gets a list of leaves
 *
 * A key is 64 bits and orders a bin by (size, address). With 2^m the power of two below the
 * size, two free blocks of one size are at least 2^m apart, so address >> m still tells them
 * apart; size / 512 in front of it just fits. A search therefore compares plain integers, and in
 * a training step it mostly looks at the last entry of one leaf: memory is freed in the reverse
 * order of allocation, and the last entry is the lowest address of the smallest size.
 *
 * PyTorch keeps a balanced tree of blocks. That would be shorter here too, but every level of a
 * tree is a jump to memory that is likely not in cache. One sorted array is as fast while it is
 * small, but moves kilobytes per call once there are thousands of free blocks. Here n free blocks
 * of one size cost O(log n) comparisons and moving at most 128 entries per call.
 *
 * Always true: no two free, equally mapped blocks are neighbours; a block is in its free set or
 * allocated or unmapped, never two of these; stats.reserved_bytes is the sum of all mapped
 * blocks. */
#include "memory/allocator_internal.h"

#include "base/arena.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAF_START = 4, LEAF_MAX = 128, SLAB_START = 64, SLAB_MAX = 4096, CACHE_LINE = 64 };

/* Made-up addresses look like CUDA's and stay below 2^53, where a snapshot viewer's doubles end. */
#define FIRST_ADDRESS ((uint64_t)0x7f0000000000)

static inline uint32_t floor_log2(uint64_t n)
{
    return 63 - (uint32_t)__builtin_clzll(n);
}

/* ---- free sets ---- */

static inline uint32_t bin_of(uint64_t bytes)
{
    const uint64_t units = bytes / MIN_BLOCK_BYTES;
    const uint32_t shift = floor_log2(units | 32) - 5;
    return (shift << 5) + (uint32_t)(units >> shift);
}

static inline uint64_t key_of(uint64_t bytes, uint64_t address)
{
    const uint32_t log2 = floor_log2(bytes);
    return (bytes / MIN_BLOCK_BYTES) << (64 - log2) | address >> log2;
}

/* How many entries have a key of at least `key`. */
static inline uint32_t leaf_rank(const struct free_leaf *leaf, uint64_t key)
{
    uint32_t rank = 0, left = leaf->count;
    if (left && leaf->entries[left - 1].key >= key)
        return left;
    while (left) {
        const uint32_t half = left / 2;
        const bool high = leaf->entries[rank + half].key >= key;
        rank += high ? half + 1 : 0;
        left = high ? left - half - 1 : half;
    }
    return rank;
}

/* How many leaves of a list begin with a key of at least `key`. */
static uint32_t list_rank(const struct free_bin *bin, uint64_t key)
{
    uint32_t rank = 0, left = bin->leaf_count;
    while (left) {
        const uint32_t half = left / 2;
        if (bin->list[rank + half]->entries[0].key >= key) {
            rank += half + 1;
            left -= half + 1;
        } else {
            left = half;
        }
    }
    return rank;
}

/* The lowest entry of the first used bin from `bin` on. */
static inline struct free_spot set_first_from(const struct free_set *set, uint32_t bin)
{
    const struct free_spot none = {0};
    uint32_t word = bin / 64;
    uint64_t bits = bin < BIN_COUNT ? set->words[word] >> (bin % 64) << (bin % 64) : 0;
    if (!bits) {
        const uint64_t later = word + 1 < BIN_WORDS ? set->words_in_use >> (word + 1) : 0;
        if (!later)
            return none;
        word += 1 + (uint32_t)__builtin_ctzll(later);
        bits = set->words[word];
    }
    const uint32_t found = 64 * word + (uint32_t)__builtin_ctzll(bits);
    const struct free_bin *in = &set->bins[found];
    const uint32_t last = in->leaf_count - 1;
    struct free_leaf *leaf = last ? in->list[last] : in->leaf;
    return (struct free_spot){leaf, found, last, leaf->count - 1};
}

/* The lowest entry of `bin` with at least `key`. */
static inline struct free_spot bin_find(const struct free_set *set, uint32_t bin, uint64_t key)
{
    const struct free_spot none = {0};
    const struct free_bin *in = &set->bins[bin];
    uint32_t leaf_index = 0;
    if (!(set->words[bin / 64] >> (bin % 64) & 1))
        return none;
    if (in->leaf_count > 1) {
        leaf_index = list_rank(in, key);
        if (!leaf_index)
            return none;
        leaf_index--;
    }
    struct free_leaf *leaf = in->leaf_count > 1 ? in->list[leaf_index] : in->leaf;
    const uint32_t rank = leaf_rank(leaf, key);
    return rank ? (struct free_spot){leaf, bin, leaf_index, rank - 1} : none;
}

/* The smallest block of at least `bytes`, at the lowest address among equals. */
static inline struct free_spot set_find(const struct free_set *set, uint64_t bytes)
{
    const uint32_t bin = bin_of(bytes);
    const struct free_spot spot = bin_find(set, bin, key_of(bytes, 0));
    return spot.leaf ? spot : set_first_from(set, bin + 1);
}

/* The next block in order after `spot`. */
static struct free_spot set_after(const struct free_set *set, struct free_spot spot)
{
    if (spot.entry) {
        spot.entry--;
        return spot;
    }
    if (!spot.leaf_index)
        return set_first_from(set, spot.bin + 1);
    spot.leaf = set->bins[spot.bin].list[--spot.leaf_index];
    spot.entry = spot.leaf->count - 1;
    return spot;
}

static inline struct allocator_block *spot_block(struct free_spot spot)
{
    return spot.leaf->entries[spot.entry].block;
}

static struct free_leaf *leaf_resize(struct free_leaf *leaf, uint32_t capacity)
{
    const uint32_t count = leaf ? leaf->count : 0;
    struct free_leaf *resized = xrealloc(leaf, sizeof *leaf + capacity * sizeof leaf->entries[0]);
    resized->count = count;
    resized->capacity = capacity;
    return resized;
}

/* Moves the lower half of the full leaf at `index` to a new leaf behind it. */
static void bin_split_leaf(struct free_bin *bin, uint32_t index)
{
    if (bin->leaf_count == 1) {
        struct free_leaf *only = bin->leaf;
        bin->list_capacity = 8;
        bin->list = xmalloc(bin->list_capacity * sizeof(struct free_leaf *));
        bin->list[0] = only;
    } else if (bin->leaf_count == bin->list_capacity) {
        bin->list_capacity *= 2;
        bin->list = xrealloc(bin->list, bin->list_capacity * sizeof(struct free_leaf *));
    }
    struct free_leaf *full = bin->list[index];
    struct free_leaf *lower = leaf_resize(NULL, LEAF_MAX);
    full->count = LEAF_MAX / 2;
    lower->count = LEAF_MAX - full->count;
    memcpy(lower->entries, full->entries + full->count, lower->count * sizeof lower->entries[0]);
    memmove(bin->list + index + 2, bin->list + index + 1,
            (bin->leaf_count - index - 1) * sizeof(struct free_leaf *));
    bin->list[index + 1] = lower;
    bin->leaf_count++;
}

/* The leaf of `bin` where `key` belongs, with room for it. */
static struct free_leaf *bin_make_room(struct free_bin *bin, uint64_t key)
{
    for (;;) {
        if (!bin->leaf_count) {
            bin->leaf = leaf_resize(NULL, LEAF_START);
            bin->leaf_count = 1;
        }
        uint32_t index = bin->leaf_count > 1 ? list_rank(bin, key) : 0;
        index -= index > 0;
        struct free_leaf *leaf = bin->leaf_count > 1 ? bin->list[index] : bin->leaf;
        if (leaf->count < leaf->capacity)
            return leaf;
        if (leaf->capacity == LEAF_MAX)
            bin_split_leaf(bin, index);
        else /* only a single leaf is ever small */
            return bin->leaf = leaf_resize(leaf, 2 * leaf->capacity);
    }
}

static inline void set_insert(struct allocator *allocator, struct free_set *set,
                              struct allocator_block *block)
{
    const uint64_t key = key_of(block->bytes, block->address);
    const uint32_t index = bin_of(block->bytes);
    struct free_bin *bin = &set->bins[index];
    struct free_leaf *leaf = bin->leaf;
    if (bin->leaf_count != 1 || leaf->count == leaf->capacity)
        leaf = bin_make_room(bin, key);

    const uint32_t rank = leaf_rank(leaf, key);
    struct free_entry *at = leaf->entries + rank;
    if (rank < leaf->count)
        memmove(at + 1, at, (leaf->count - rank) * sizeof *at);
    *at = (struct free_entry){key, block};
    leaf->count++;
    set->words[index / 64] |= (uint64_t)1 << (index % 64);
    set->words_in_use |= (uint64_t)1 << (index / 64);
    block->free_since = allocator->searches[block->pool];
}

/* Takes the emptied leaf of `spot` out of the list of leaves. */
static void bin_drop_leaf(struct free_bin *bin, uint32_t leaf_index)
{
    free(bin->list[leaf_index]);
    bin->leaf_count--;
    memmove(bin->list + leaf_index, bin->list + leaf_index + 1,
            (bin->leaf_count - leaf_index) * sizeof(struct free_leaf *));
    if (bin->leaf_count == 1) {
        struct free_leaf **list = bin->list;
        bin->leaf = list[0];
        free(list);
    }
}

static inline void set_remove_at(struct free_set *set, struct free_spot spot)
{
    struct free_leaf *leaf = spot.leaf;
    leaf->count--;
    struct free_entry *at = leaf->entries + spot.entry;
    if (spot.entry < leaf->count)
        memmove(at, at + 1, (leaf->count - spot.entry) * sizeof *at);
    if (leaf->count)
        return;
    struct free_bin *bin = &set->bins[spot.bin];
    if (bin->leaf_count > 1) {
        bin_drop_leaf(bin, spot.leaf_index);
        return;
    }
    uint64_t *word = &set->words[spot.bin / 64]; /* the leaf stays for the next block */
    *word &= ~((uint64_t)1 << (spot.bin % 64));
    set->words_in_use &= ~((uint64_t)(*word == 0) << (spot.bin / 64));
}

static inline void set_remove(struct free_set *set, const struct allocator_block *block)
{
    const struct free_spot spot =
        bin_find(set, bin_of(block->bytes), key_of(block->bytes, block->address));
    assert(spot.leaf && spot_block(spot) == block);
    set_remove_at(set, spot);
}

void free_set_insert(struct allocator *allocator, struct free_set *set,
                     struct allocator_block *block)
{
    set_insert(allocator, set, block);
}

void free_set_remove(struct free_set *set, const struct allocator_block *block)
{
    set_remove(set, block);
}

struct free_set *free_set_get(struct allocator *allocator, enum pool_kind pool, int stream)
{
    struct free_set **set = &allocator->sets[pool][stream];
    if (!*set) {
        *set = xmalloc(sizeof **set);
        memset(*set, 0, sizeof **set);
    }
    return *set;
}

struct allocator_block **free_set_list(const struct free_set *set, size_t *count)
{
    *count = 0;
    if (!set)
        return NULL;
    for (struct free_spot spot = set_first_from(set, 0); spot.leaf; spot = set_after(set, spot))
        ++*count;
    struct allocator_block **blocks = xmalloc(*count * sizeof(struct allocator_block *));
    struct allocator_block **next = blocks;
    for (struct free_spot spot = set_first_from(set, 0); spot.leaf; spot = set_after(set, spot))
        *next++ = spot_block(spot);
    return blocks;
}

static void free_set_free(struct free_set *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < BIN_COUNT; i++) {
        struct free_bin *bin = &set->bins[i];
        if (bin->leaf_count == 1)
            free(bin->leaf);
        for (uint32_t leaf = 0; bin->leaf_count > 1 && leaf < bin->leaf_count; leaf++)
            free(bin->list[leaf]);
        if (bin->leaf_count > 1)
            free(bin->list);
    }
    free(set->unmapped);
    free(set);
}

/* ---- blocks ---- */

static struct allocator_block *slab_grow(struct allocator *allocator)
{
    const struct block_slab *newest = allocator->slabs;
    size_t capacity = newest ? 2 * newest->capacity : SLAB_START;
    capacity = capacity < SLAB_MAX ? capacity : SLAB_MAX;
    struct block_slab *slab = xmalloc(sizeof *slab + (capacity + 1) * sizeof *slab->blocks);
    unsigned char *start = (unsigned char *)(slab + 1);
    start += -(uintptr_t)start % CACHE_LINE;
    *slab = (struct block_slab){.older = allocator->slabs,
                                .count = 1,
                                .capacity = capacity,
                                .blocks = (struct allocator_block *)(void *)start};
    allocator->slabs = slab;
    return slab->blocks;
}

struct allocator_block *block_new(struct allocator *allocator, enum pool_kind pool, int stream,
                                  uint64_t address, uint64_t bytes)
{
    struct allocator_block *block = allocator->unused_blocks;
    if (block)
        allocator->unused_blocks = block->next;
    else if (allocator->slabs && allocator->slabs->count < allocator->slabs->capacity)
        block = &allocator->slabs->blocks[allocator->slabs->count++];
    else
        block = slab_grow(allocator);
    *block = (struct allocator_block){.address = address,
                                      .bytes = bytes,
                                      .stream = (uint8_t)stream,
                                      .pool = (uint8_t)pool,
                                      .allocated = true,
                                      .mapped = true};
    return block;
}

void block_drop(struct allocator *allocator, struct allocator_block *block)
{
    block->bytes = 0;
    block->next = allocator->unused_blocks;
    allocator->unused_blocks = block;
}

/* `block` is in no set while it changes; a mapped neighbour leaves its set here. */
static inline uint64_t merge(struct allocator *allocator, struct free_set *set,
                             struct allocator_block *block, struct allocator_block *neighbour)
{
    if (!neighbour || neighbour->allocated || neighbour->mapped != block->mapped)
        return 0;
    const uint64_t gained = neighbour->bytes;
    if (neighbour->mapped)
        set_remove(set, neighbour);
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
    block_drop(allocator, neighbour);
    return gained;
}

uint64_t block_merge(struct allocator *allocator, struct free_set *set,
                     struct allocator_block *block, struct allocator_block *neighbour)
{
    return merge(allocator, set, block, neighbour);
}

/* ---- sizes ---- */

/* Rounds up to the next of `divisions` equal steps between powers of two. */
static uint64_t round_to_division(uint64_t bytes, uint32_t divisions)
{
    const uint64_t floor = (uint64_t)1 << floor_log2(bytes);
    const uint64_t step = floor >> floor_log2(divisions);
    if (bytes == floor)
        return bytes;
    return step ? (bytes + step - 1) & ~(step - 1) : 2 * floor;
}

static uint64_t round_request(const struct allocator *allocator, uint64_t bytes)
{
    if (allocator->rounding && bytes >= MIN_BLOCK_BYTES) {
        const uint32_t log2 = floor_log2(bytes);
        const uint32_t index = log2 < 20 ? 0 : log2 > 35 ? 15 : log2 - 20;
        const uint32_t divisions = allocator->settings.roundup_power2_divisions[index];
        if (divisions > 1 && bytes > MIN_BLOCK_BYTES * divisions)
            return round_to_division(bytes, divisions);
    }
    return allocator_round(bytes);
}

/* ---- alloc and free ---- */

/* How large a block can become by mapping the pages behind it. */
static uint64_t block_reach(const struct allocator_block *block)
{
    return block->bytes + (block->next && !block->next->mapped ? block->next->bytes : 0);
}

/* Best fit under settings other than the defaults: moves `spot` on, or refuses it. */
static bool spot_choose(const struct allocator *allocator, const struct free_set *set,
                        const struct request *request, struct free_spot *spot)
{
    if (allocator->settings.expandable_segments) {
        /* Prefer holes in the middle of a range over its end, which can still grow. */
        for (;;) {
            const struct free_spot after = set_after(set, *spot);
            if (!after.leaf || block_reach(spot_block(after)) >= block_reach(spot_block(*spot)))
                break;
            *spot = after;
        }
    }
    const uint64_t bytes = spot_block(*spot)->bytes;
    if (request->rounded < allocator->oversize_from)
        return bytes < allocator->oversize_from;
    return bytes < request->rounded + allocator->settings.max_non_split_rounding;
}

static inline struct allocator_block *take_cached(struct allocator *allocator, struct free_set *set,
                                                  const struct request *request)
{
    struct free_spot spot = set_find(set, request->rounded);
    if (allocator->picky) {
        if (allocator->collecting)
            allocator->searches[request->pool]++;
        if (spot.leaf && !spot_choose(allocator, set, request, &spot))
            return NULL;
    }
    if (!spot.leaf)
        return NULL;
    struct allocator_block *block = spot_block(spot);
    set_remove_at(set, spot);
    return block;
}

static enum err_code out_of_memory(struct allocator *allocator, const struct request *request,
                                   struct err *err)
{
    struct allocator_stats *stats = &allocator->stats;
    const uint64_t capacity = allocator->settings.capacity_bytes;
    const uint64_t left = capacity > stats->reserved_bytes ? capacity - stats->reserved_bytes : 0;
    char limit[64] = "";
    stats->ooms++;
    record(allocator, ALLOCATOR_OOM, left, request->rounded, request->stream);
    if (capacity)
        snprintf(limit, sizeof limit, " of %" PRIu64 " allowed", capacity);
    return err_set(err, ERR_NOMEM,
                   "cannot allocate %" PRIu64 " bytes on stream %d: %" PRIu64
                   " bytes are allocated, %" PRIu64 " reserved%s",
                   request->bytes, request->stream, stats->allocated_bytes, stats->reserved_bytes,
                   limit);
}

/* Cuts the front of request->rounded bytes off `block`; the rest becomes free. */
static inline struct allocator_block *split_front(struct allocator *allocator, struct free_set *set,
                                                  struct allocator_block *block,
                                                  const struct request *request)
{
    struct allocator_block *front =
        block_new(allocator, request->pool, request->stream, block->address, request->rounded);
    front->range = block->range;
    front->prev = block->prev;
    front->next = block;
    if (front->prev)
        front->prev->next = front;
    block->prev = front;
    block->address += request->rounded;
    block->bytes -= request->rounded;
    block->allocated = false;
    set_insert(allocator, set, block);
    return front;
}

/* Turns a block that is in no set into the block handed out. */
static inline struct allocator_block *hand_out(struct allocator *allocator, struct free_set *set,
                                               struct allocator_block *block,
                                               const struct request *request)
{
    struct allocator_stats *stats = &allocator->stats;
    const bool was_split = block_is_split(block);
    const bool counted = !block->range; /* pages of a range can be returned, so are never stuck */
    const uint64_t rest = block->bytes - request->rounded;

    if (rest >= allocator->least_rest[request->pool] && request->rounded < allocator->split_below) {
        block = split_front(allocator, set, block, request);
        if (counted && was_split) {
            stats->inactive_split_bytes -= request->rounded;
        } else if (counted) {
            stats->inactive_split_bytes += rest;
            stats->inactive_splits++;
        }
    } else if (was_split && counted) {
        stats->inactive_split_bytes -= block->bytes;
        stats->inactive_splits--;
    }

    block->allocated = true;
    block->requested_bytes = request->bytes;
    stats->allocated_bytes += block->bytes;
    stats->requested_bytes += request->bytes;
    if (stats->allocated_bytes > stats->allocated_peak)
        stats->allocated_peak = stats->allocated_bytes;
    if (stats->requested_bytes > stats->requested_peak)
        stats->requested_peak = stats->requested_bytes;
    record(allocator, ALLOCATOR_ALLOC, block->address, request->bytes, request->stream);
    return block;
}

enum err_code allocator_alloc(struct allocator *allocator, uint64_t bytes, int stream,
                              struct allocator_block **out, struct err *err)
{
    assert(bytes > 0 && stream >= 0 && stream < ALLOCATOR_STREAMS);
    struct request request = {.bytes = bytes, .stream = stream, .rounded = UINT64_MAX};
    if (bytes <= MAX_REQUEST_BYTES)
        request.rounded = round_request(allocator, bytes);
    request.pool = request.rounded <= SMALL_BYTES ? POOL_SMALL : POOL_LARGE;

    struct free_set *set = allocator->sets[request.pool][stream];
    if (!set)
        set = free_set_get(allocator, request.pool, stream);
    struct allocator_block *block = NULL;
    if (request.rounded <= MAX_REQUEST_BYTES)
        block = take_cached(allocator, set, &request);
    if (!block)
        block = allocator_obtain(allocator, &request);
    if (!block) {
        *out = NULL;
        return out_of_memory(allocator, &request, err);
    }
    *out = hand_out(allocator, set, block, &request);
    return ERR_OK;
}

void allocator_free_block(struct allocator *allocator, struct allocator_block *block)
{
    assert(block->allocated && block->bytes > 0);
    struct allocator_stats *stats = &allocator->stats;
    struct free_set *set = allocator->sets[block->pool][block->stream];
    record(allocator, ALLOCATOR_FREE_REQUESTED, block->address, block->requested_bytes,
           block->stream);
    record(allocator, ALLOCATOR_FREE_COMPLETED, block->address, block->requested_bytes,
           block->stream);
    stats->allocated_bytes -= block->bytes;
    stats->requested_bytes -= block->requested_bytes;
    block->allocated = false;
    block->requested_bytes = 0;

    const uint64_t before = merge(allocator, set, block, block->prev);
    const uint64_t after = merge(allocator, set, block, block->next);
    set_insert(allocator, set, block);
    if (!block->range) {
        const bool split = block_is_split(block);
        stats->inactive_splits += split;
        stats->inactive_splits -= (uint64_t)(before > 0) + (after > 0);
        stats->inactive_split_bytes += split ? block->bytes : 0;
        stats->inactive_split_bytes -= before + after;
    }
}

/* ---- the rest of the interface ---- */

struct allocator *allocator_new(const struct allocator_settings *settings)
{
    struct allocator *allocator = xmalloc(sizeof *allocator);
    *allocator = (struct allocator){.settings = *settings, .next_address = FIRST_ADDRESS};
    struct allocator_settings *own = &allocator->settings;
    if (!own->max_non_split_rounding)
        own->max_non_split_rounding = LARGE_SEGMENT_BYTES;
    if (!own->device_bytes)
        own->device_bytes = 80 * GIB;
    assert(!own->max_split_bytes || own->max_split_bytes >= LARGE_SEGMENT_BYTES);
    assert(own->max_non_split_rounding >= LARGE_SEGMENT_BYTES);
    assert(own->device_bytes <= MAX_REQUEST_BYTES);
    assert(own->garbage_collection_threshold >= 0 && own->garbage_collection_threshold < 1);

    allocator->oversize_from = own->max_split_bytes ? own->max_split_bytes : UINT64_MAX;
    allocator->split_below = own->expandable_segments ? UINT64_MAX : allocator->oversize_from;
    allocator->least_rest[POOL_SMALL] = MIN_BLOCK_BYTES;
    allocator->least_rest[POOL_LARGE] =
        own->expandable_segments ? MIN_BLOCK_BYTES : SMALL_BYTES + 1;
    allocator->collecting = own->capacity_bytes > 0 && own->garbage_collection_threshold > 0;
    allocator->picky = own->expandable_segments || own->max_split_bytes || allocator->collecting;
    for (size_t i = 0; i < 16; i++)
        allocator->rounding |= own->roundup_power2_divisions[i] > 1;
    return allocator;
}

void allocator_free(struct allocator *allocator)
{
    if (!allocator)
        return;
    allocator_return_all(allocator);
    for (int pool = 0; pool < POOL_COUNT; pool++)
        for (int stream = 0; stream < ALLOCATOR_STREAMS; stream++)
            free_set_free(allocator->sets[pool][stream]);
    while (allocator->slabs) {
        struct block_slab *older = allocator->slabs->older;
        free(allocator->slabs);
        allocator->slabs = older;
    }
    free(allocator);
}

uint64_t allocator_block_address(const struct allocator_block *block)
{
    return block->address;
}

uint64_t allocator_block_bytes(const struct allocator_block *block)
{
    return block->bytes;
}

const struct allocator_stats *allocator_stats(const struct allocator *allocator)
{
    return &allocator->stats;
}

void allocator_reset_peaks(struct allocator *allocator)
{
    struct allocator_stats *stats = &allocator->stats;
    stats->requested_peak = stats->requested_bytes;
    stats->allocated_peak = stats->allocated_bytes;
    stats->reserved_peak = stats->reserved_bytes;
}

static int compare_addresses(const void *a, const void *b)
{
    const uint64_t x = (*(struct allocator_block *const *)a)->address;
    const uint64_t y = (*(struct allocator_block *const *)b)->address;
    return (x > y) - (x < y);
}

/* Visits the mapped blocks from `block` up to a gap; returns where to go on, or NULL. */
static const struct allocator_block *
visit_run(const struct allocator_block *block,
          void (*visit)(void *context, const struct allocator_span *span), void *context)
{
    while (block && !block->mapped)
        block = block->next;
    if (!block)
        return NULL;
    struct allocator_span span = {.segment_address = block->address};
    for (const struct allocator_block *b = block; b && b->mapped; b = b->next)
        span.segment_bytes += b->bytes;
    for (; block && block->mapped; block = block->next) {
        span.address = block->address;
        span.bytes = block->bytes;
        span.requested_bytes = block->requested_bytes;
        span.stream = block->stream;
        span.small_pool = block->pool == POOL_SMALL;
        span.expandable = block->range != NULL;
        span.allocated = block->allocated;
        visit(context, &span);
    }
    return block;
}

void allocator_visit(const struct allocator *allocator,
                     void (*visit)(void *context, const struct allocator_span *span), void *context)
{
    size_t count = 0, blocks = 0;
    for (const struct block_slab *slab = allocator->slabs; slab; slab = slab->older)
        blocks += slab->count;
    const struct allocator_block **heads = xmalloc(blocks * sizeof(struct allocator_block *));
    for (const struct block_slab *slab = allocator->slabs; slab; slab = slab->older)
        for (size_t i = 0; i < slab->count; i++)
            if (slab->blocks[i].bytes && !slab->blocks[i].prev)
                heads[count++] = &slab->blocks[i];
    qsort(heads, count, sizeof(struct allocator_block *), compare_addresses);
    for (size_t i = 0; i < count; i++)
        for (const struct allocator_block *block = heads[i]; block;)
            block = visit_run(block, visit, context);
    free(heads);
}
