/* allocator.c - see allocator.h; the rules are those of c10/cuda/CUDACachingAllocator.cpp.
 *
 * A plan is replayed thousands of times while the planner searches, so one call must cost tens
 * of nanoseconds. Blocks are cache lines from slabs (block.h), chained to their address neighbours,
 * and free ones are kept in order (free_set.h). What a call needs when the cache has no block for
 * it is in allocator_expandable.c.
 *
 * What is always true is written down in allocator_check.c. */
#include "memory/allocator_parts.h"

#include "base/arena.h"
#include "base/checked.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Made-up addresses look like CUDA's and stay below 2^53, where a snapshot viewer's doubles end. */
#define FIRST_ADDRESS ((uint64_t)0x7f0000000000)

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
            const struct free_spot after = free_set_after(set, *spot);
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
    struct free_spot spot = free_set_find(set, request->rounded);
    if (allocator->picky) {
        if (allocator->collecting)
            allocator->searches[request->pool]++;
        if (spot.leaf && !spot_choose(allocator, set, request, &spot))
            return NULL;
    }
    if (!spot.leaf)
        return NULL;
    struct allocator_block *block = spot_block(spot);
    free_set_remove_at(set, spot);
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
    assert(block->bytes > request->rounded); /* the rest is kept */
    struct allocator_block *front = block_new(&allocator->store, request->pool, request->stream,
                                              block->address, request->rounded);
    front->range = block->range;
    front->prev = block->prev;
    front->next = block;
    if (front->prev)
        front->prev->next = front;
    block->prev = front;
    block->address += request->rounded;
    block->bytes -= request->rounded;
    block->allocated = false;
    block_release(allocator, set, block);
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
    assert(block->bytes >= request->rounded && block->mapped);
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

    struct free_set **own = &allocator->sets[request.pool][stream];
    if (!*own)
        *own = free_set_new();
    struct free_set *set = *own;
    struct allocator_block *block = NULL;
    if (request.rounded <= MAX_REQUEST_BYTES)
        block = take_cached(allocator, set, &request);
    if (!block)
        block = allocator_obtain(allocator, &request);
    if (!block) {
        *out = NULL;
        CHECKED(allocator_check, allocator);
        return out_of_memory(allocator, &request, err);
    }
    *out = hand_out(allocator, set, block, &request);
    CHECKED(allocator_check, allocator);
    return ERR_OK;
}

/* The first half of a free. */
static inline void request_free(struct allocator *allocator, struct allocator_block *block)
{
    /* handed out, and not taken back before */
    assert(block->allocated && !block->pending && block->bytes > 0);
    record(allocator, ALLOCATOR_FREE_REQUESTED, block->address, block->requested_bytes,
           block->stream);
    allocator->stats.allocated_bytes -= block->bytes;
}

/* And the second. */
static inline void complete_free(struct allocator *allocator, struct allocator_block *block)
{
    struct allocator_stats *stats = &allocator->stats;
    struct free_set *set = allocator->sets[block->pool][block->stream];
    record(allocator, ALLOCATOR_FREE_COMPLETED, block->address, block->requested_bytes,
           block->stream);
    stats->requested_bytes -= block->requested_bytes;
    block->allocated = false;
    block->requested_bytes = 0;

    const uint64_t before = block_merge(allocator, set, block, block->prev);
    const uint64_t after = block_merge(allocator, set, block, block->next);
    block_release(allocator, set, block);
    if (!block->range) {
        const bool split = block_is_split(block);
        stats->inactive_splits += split;
        stats->inactive_splits -= (uint64_t)(before > 0) + (after > 0);
        stats->inactive_split_bytes += split ? block->bytes : 0;
        stats->inactive_split_bytes -= before + after;
    }
    CHECKED(allocator_check, allocator);
}

void allocator_free_block(struct allocator *allocator, struct allocator_block *block)
{
    request_free(allocator, block);
    complete_free(allocator, block);
}

void allocator_request_free(struct allocator *allocator, struct allocator_block *block)
{
    request_free(allocator, block);
    block->pending = true;
    CHECKED(allocator_check, allocator);
}

void allocator_complete_free(struct allocator *allocator, struct allocator_block *block)
{
    assert(block->pending);
    block->pending = false;
    complete_free(allocator, block);
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
    block_store_free(&allocator->store);
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
        span.pending = block->pending;
        visit(context, &span);
    }
    return block;
}

void allocator_visit(const struct allocator *allocator,
                     void (*visit)(void *context, const struct allocator_span *span), void *context)
{
    size_t count = 0, blocks = 0;
    for (const struct block_slab *slab = allocator->store.slabs; slab; slab = slab->older)
        blocks += slab->count;
    const struct allocator_block **heads = xmalloc(blocks * sizeof(struct allocator_block *));
    for (const struct block_slab *slab = allocator->store.slabs; slab; slab = slab->older)
        for (size_t i = 0; i < slab->count; i++)
            if (slab->blocks[i].bytes && !slab->blocks[i].prev)
                heads[count++] = &slab->blocks[i];
    qsort(heads, count, sizeof(struct allocator_block *), compare_addresses);
    for (size_t i = 0; i < count; i++)
        for (const struct allocator_block *block = heads[i]; block;)
            block = visit_run(block, visit, context);
    free(heads);
}
