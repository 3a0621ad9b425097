/* allocator_expandable.c - memory from the device and back: segments and expandable ranges.
 *
 * This is the slow half of the allocator, used a few hundred times in a plan's first step and
 * then hardly ever. An ordinary segment is one block when it comes and may go back only when it
 * is one free block again. With expandable segments, a stream instead has one range of addresses
 * per pool, a little larger than the device, and gets memory behind it page by page:
 *
 *     range   | allocated | free |   unmapped   | allocated |        unmapped ...        |
 *     pages   |-----|-----|-----|.....|.....|.....|-----|.....|.....|.....|.....|.....|.....
 *
 * All blocks of a range are one chain of neighbours. Unmapped blocks start and end at pages; any
 * other block may straddle them. A request maps just enough pages behind the last free block, so
 * nothing is lost at the end of segments.
 *
 * The planner has no pages: segment_new, if set, is asked for each one and may refuse; what it
 * returns is kept to give the page back, and addresses are made up. A cap is compared with the
 * size of an ordinary segment, as PyTorch does, so pages may exceed it by less than one page.
 *
 * Always true: the unmapped blocks of a stream's ranges are in its set's `unmapped`, by address. */
#include "memory/allocator_parts.h"

#include "base/arena.h"
#include "base/checked.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Keeps two ranges from looking like one, to a reader of addresses. */
#define RANGE_GAP_BYTES (2 * MIB)

static void reserved_grow(struct allocator *allocator, uint64_t bytes)
{
    struct allocator_stats *stats = &allocator->stats;
    stats->reserved_bytes += bytes;
    if (stats->reserved_bytes > stats->reserved_peak)
        stats->reserved_peak = stats->reserved_bytes;
}

/* ---- expandable ranges: pages ---- */

static void pages_drop(struct allocator *allocator, struct expandable_range *range, uint64_t first,
                       uint64_t end)
{
    const struct allocator_settings *settings = &allocator->settings;
    for (uint64_t page = first; range->pages && page < end; page++) {
        if (range->pages[page] && settings->segment_drop)
            settings->segment_drop(settings->context, range->pages[page], range->page_bytes);
        range->pages[page] = 0;
    }
}

/* All pages or none. */
static bool pages_new(struct allocator *allocator, struct expandable_range *range, uint64_t first,
                      uint64_t end)
{
    const struct allocator_settings *settings = &allocator->settings;
    for (uint64_t page = first; range->pages && page < end; page++) {
        range->pages[page] = settings->segment_new(settings->context, range->page_bytes);
        if (!range->pages[page]) {
            pages_drop(allocator, range, first, page);
            return false;
        }
    }
    return true;
}

/* ---- expandable ranges: unmapped blocks ---- */

static void unmapped_insert(struct free_set *set, struct allocator_block *block)
{
    size_t at = set->unmapped_count++;
    set->unmapped = xrealloc(set->unmapped, set->unmapped_count * sizeof(struct allocator_block *));
    for (; at > 0 && set->unmapped[at - 1]->address > block->address; at--)
        set->unmapped[at] = set->unmapped[at - 1];
    set->unmapped[at] = block;
}

static void unmapped_remove(struct free_set *set, const struct allocator_block *block)
{
    size_t at = 0;
    while (at < set->unmapped_count && set->unmapped[at] != block)
        at++;
    assert(at < set->unmapped_count);
    set->unmapped_count--;
    memmove(set->unmapped + at, set->unmapped + at + 1,
            (set->unmapped_count - at) * sizeof(struct allocator_block *));
}

/* A new block of the same range as `block`, right behind it or right before it. */
static struct allocator_block *neighbour_new(struct allocator *allocator,
                                             struct allocator_block *block, bool behind,
                                             uint64_t address, uint64_t bytes)
{
    struct allocator_block *added =
        block_new(&allocator->store, block->pool, block->stream, address, bytes);
    added->allocated = false;
    added->range = block->range;
    added->prev = behind ? block : block->prev;
    added->next = behind ? block->next : block;
    if (added->prev)
        added->prev->next = added;
    if (added->next)
        added->next->prev = added;
    return added;
}

/* ---- expandable ranges: growing and shrinking ---- */

static struct allocator_block *range_new(struct allocator *allocator, struct free_set *set,
                                         const struct request *request)
{
    const struct allocator_settings *settings = &allocator->settings;
    const uint64_t page = request->pool == POOL_SMALL ? SMALL_SEGMENT_BYTES : LARGE_SEGMENT_BYTES;
    uint64_t bytes = settings->device_bytes + settings->device_bytes / 8;
    if (bytes < request->rounded) /* only a simulation without limits gets here */
        bytes = request->rounded;
    bytes = (bytes + page - 1) / page * page;

    struct expandable_range *range = xmalloc(sizeof *range);
    *range = (struct expandable_range){.older = allocator->ranges,
                                       .address = allocator->next_address,
                                       .bytes = bytes,
                                       .page_bytes = page};
    if (settings->segment_new) {
        range->pages = xmalloc(bytes / page * sizeof *range->pages);
        memset(range->pages, 0, bytes / page * sizeof *range->pages);
    }
    allocator->ranges = range;
    allocator->next_address += bytes + RANGE_GAP_BYTES;

    struct allocator_block *block =
        block_new(&allocator->store, request->pool, request->stream, range->address, bytes);
    block->allocated = block->mapped = false;
    block->range = range;
    unmapped_insert(set, block);
    return block;
}

static void range_free(struct allocator *allocator, struct expandable_range *range)
{
    struct expandable_range **link = &allocator->ranges;
    while (*link != range)
        link = &(*link)->older;
    *link = range->older;
    pages_drop(allocator, range, 0, range->bytes / range->page_bytes);
    free(range->pages);
    free(range);
}

/* The lowest block from which free and unmapped neighbours together hold the request. */
static struct allocator_block *range_find(struct allocator *allocator, struct free_set *set,
                                          const struct request *request)
{
    for (size_t i = 0; i < set->unmapped_count; i++) {
        struct allocator_block *first = set->unmapped[i];
        if (first->prev && !first->prev->allocated)
            first = first->prev;
        uint64_t bytes = 0;
        for (const struct allocator_block *block = first;
             block && !block->allocated && bytes < request->rounded; block = block->next)
            bytes += block->bytes;
        if (bytes >= request->rounded)
            return first;
    }
    return range_new(allocator, set, request);
}

/* Maps the first pages of an unmapped block, enough for `bytes`. It becomes a free block together
 * with its free neighbours, so it may begin earlier and end later than those pages. */
static bool block_map(struct allocator *allocator, struct free_set *set,
                      struct allocator_block *block, uint64_t bytes)
{
    struct expandable_range *range = block->range;
    const uint64_t page = range->page_bytes;
    const uint64_t first = (block->address - range->address) / page;
    const uint64_t count = (bytes + page - 1) / page;
    const uint64_t address = block->address, mapped = count * page;
    assert(!block->mapped && mapped <= block->bytes);
    if (!pages_new(allocator, range, first, first + count))
        return false;

    unmapped_remove(set, block);
    block->mapped = true;
    if (mapped < block->bytes) {
        struct allocator_block *rest =
            neighbour_new(allocator, block, true, address + mapped, block->bytes - mapped);
        rest->mapped = false;
        unmapped_insert(set, rest);
        block->bytes = mapped;
    }
    block_merge(allocator, set, block, block->prev);
    block_merge(allocator, set, block, block->next);
    block_release(allocator, set, block);
    reserved_grow(allocator, mapped);
    record(allocator, ALLOCATOR_SEGMENT_MAP, address, mapped, block->stream);
    return true;
}

static struct allocator_block *expandable_grow(struct allocator *allocator,
                                               const struct request *request)
{
    struct free_set *set = allocator->sets[request->pool][request->stream];
    struct allocator_block *block = range_find(allocator, set, request);
    const uint64_t wanted = request->rounded;
    if (!block->mapped &&
        !block_map(allocator, set, block, block->bytes < wanted ? block->bytes : wanted))
        return NULL;
    while (block->bytes < wanted) {
        struct allocator_block *next = block->next; /* unmapped, else it would have merged */
        const uint64_t missing = wanted - block->bytes;
        if (!block_map(allocator, set, next, next->bytes < missing ? next->bytes : missing))
            return NULL;
        block = next;
    }
    assert(block->mapped && block->bytes >= wanted);
    free_set_remove(set, block);
    return block;
}

/* Unmaps the pages that lie wholly inside a free block; its ends stay free. */
static void expandable_shrink(struct allocator *allocator, struct allocator_block *block)
{
    struct free_set *set = allocator->sets[block->pool][block->stream];
    struct expandable_range *range = block->range;
    const uint64_t page = range->page_bytes, start = block->address - range->address;
    const uint64_t first = (start + page - 1) / page, end = (start + block->bytes) / page;
    assert(block->mapped && !block->allocated && block->address >= range->address);
    if (first >= end)
        return;
    const uint64_t address = range->address + first * page, bytes = (end - first) * page;
    const uint64_t before = address - block->address, after = block->bytes - before - bytes;
    assert(before < page && after < page); /* what is left of a page at each end */

    pages_drop(allocator, range, first, end);
    free_set_remove(set, block);
    if (before)
        block_release(allocator, set,
                      neighbour_new(allocator, block, false, block->address, before));
    if (after)
        block_release(allocator, set,
                      neighbour_new(allocator, block, true, address + bytes, after));
    block->address = address;
    block->bytes = bytes;
    block->mapped = false;
    if (block->prev && !block->prev->mapped)
        unmapped_remove(set, block->prev);
    if (block->next && !block->next->mapped)
        unmapped_remove(set, block->next);
    block_merge(allocator, set, block, block->prev);
    block_merge(allocator, set, block, block->next);
    allocator->stats.reserved_bytes -= bytes;
    record(allocator, ALLOCATOR_SEGMENT_UNMAP, address, bytes, block->stream);

    if (block_is_split(block)) {
        unmapped_insert(set, block);
    } else {
        range_free(allocator, range);
        block_drop(&allocator->store, block);
    }
}

/* ---- segments ---- */

static uint64_t segment_bytes_for(uint64_t rounded)
{
    if (rounded <= SMALL_BYTES)
        return SMALL_SEGMENT_BYTES;
    if (rounded < OWN_SEGMENT_BYTES)
        return LARGE_SEGMENT_BYTES;
    return (rounded + SEGMENT_ROUNDING - 1) / SEGMENT_ROUNDING * SEGMENT_ROUNDING;
}

/* A block of new memory, in no free set; NULL when the cap or the device refuses. */
static struct allocator_block *segment_new(struct allocator *allocator,
                                           const struct request *request)
{
    const uint64_t bytes = segment_bytes_for(request->rounded);
    assert(bytes >= request->rounded);
    const struct allocator_settings *settings = &allocator->settings;
    if (settings->capacity_bytes &&
        allocator->stats.reserved_bytes + bytes > settings->capacity_bytes)
        return NULL;
    if (settings->expandable_segments)
        return expandable_grow(allocator, request);

    uint64_t address = allocator->next_address;
    if (settings->segment_new)
        address = settings->segment_new(settings->context, bytes);
    else
        allocator->next_address += bytes;
    if (!address)
        return NULL;
    allocator->stats.segments++;
    reserved_grow(allocator, bytes);
    record(allocator, ALLOCATOR_SEGMENT_ALLOC, address, bytes, request->stream);
    return block_new(&allocator->store, request->pool, request->stream, address, bytes);
}

/* Returns a free block that is a whole segment to the device. */
static void segment_drop(struct allocator *allocator, struct allocator_block *block)
{
    const struct allocator_settings *settings = &allocator->settings;
    assert(!block->range && !block->allocated && !block_is_split(block));
    record(allocator, ALLOCATOR_SEGMENT_FREE, block->address, block->bytes, block->stream);
    if (settings->segment_drop)
        settings->segment_drop(settings->context, block->address, block->bytes);
    free_set_remove(allocator->sets[block->pool][block->stream], block);
    allocator->stats.segments--;
    allocator->stats.reserved_bytes -= block->bytes;
    block_drop(&allocator->store, block);
}

/* ---- releasing what is cached ---- */

/* The free blocks of the large pool that are whole segments; the caller frees the array. */
static struct allocator_block **whole_segments(const struct allocator *allocator, size_t *count)
{
    struct allocator_block **whole = NULL;
    *count = 0;
    for (int stream = 0; stream < ALLOCATOR_STREAMS; stream++) {
        size_t free_count;
        struct allocator_block **blocks =
            free_set_list(allocator->sets[POOL_LARGE][stream], &free_count);
        whole = xrealloc(whole, (*count + free_count) * sizeof(struct allocator_block *));
        for (size_t i = 0; i < free_count; i++)
            if (!blocks[i]->range && !block_is_split(blocks[i]))
                whole[(*count)++] = blocks[i];
        free(blocks);
    }
    return whole;
}

/* Before a new segment is asked for: drops long unused segments while more than the threshold is
 * reserved. Each pass drops all of at least average age, without stopping at the target, so that
 * the next collection is not needed soon. */
static void collect_garbage(struct allocator *allocator)
{
    const struct allocator_settings *settings = &allocator->settings;
    const uint64_t allowed =
        (uint64_t)(settings->garbage_collection_threshold * (double)settings->capacity_bytes);
    const uint64_t reserved = allocator->stats.reserved_bytes;
    const uint64_t now = allocator->searches[POOL_LARGE];
    if (reserved <= allowed)
        return;

    size_t count;
    struct allocator_block **unused = whole_segments(allocator, &count);
    uint64_t total_age = 0;
    for (size_t i = 0; i < count; i++)
        total_age += now - unused[i]->free_since;

    for (uint64_t dropped = 0; dropped < reserved - allowed && count > 0;) {
        const double average = (double)total_age / (double)count;
        size_t kept = 0;
        for (size_t i = 0; i < count; i++) {
            const uint64_t age = now - unused[i]->free_since;
            if ((double)age < average) {
                unused[kept++] = unused[i];
                continue;
            }
            dropped += unused[i]->bytes;
            total_age -= age;
            segment_drop(allocator, unused[i]);
        }
        if (kept == count) /* rounding put the average above every age */
            break;
        count = kept;
    }
    free(unused);
}

/* With max_split_bytes: drops the one oversize block of the stream that fits the request best, or
 * as many of the largest as it takes. False when even all of them are not enough. */
static bool release_oversize(struct allocator *allocator, const struct request *request)
{
    const uint64_t least = allocator->oversize_from;
    const uint64_t wanted = request->rounded > least ? request->rounded : least;
    if (least == UINT64_MAX || allocator->settings.expandable_segments)
        return false;

    size_t count, best = 0;
    struct allocator_block **blocks =
        free_set_list(allocator->sets[request->pool][request->stream], &count);
    while (best < count && blocks[best]->bytes < wanted)
        best++;
    uint64_t dropped = 0;
    if (best < count) {
        dropped = blocks[best]->bytes;
        segment_drop(allocator, blocks[best]);
    }
    while (dropped < wanted && count > 0 && blocks[count - 1]->bytes >= least) {
        dropped += blocks[--count]->bytes;
        segment_drop(allocator, blocks[count]);
    }
    free(blocks);
    return dropped >= wanted;
}

void allocator_empty_cache(struct allocator *allocator)
{
    if (allocator->settings.complete_frees)
        allocator->settings.complete_frees(allocator->settings.free_context);
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        for (int stream = 0; stream < ALLOCATOR_STREAMS; stream++) {
            size_t count;
            struct allocator_block **blocks = free_set_list(allocator->sets[pool][stream], &count);
            for (size_t i = 0; i < count; i++) {
                if (blocks[i]->range)
                    expandable_shrink(allocator, blocks[i]);
                else if (!block_is_split(blocks[i]))
                    segment_drop(allocator, blocks[i]);
            }
            free(blocks);
        }
    }
    CHECKED(allocator_check, allocator);
}

struct allocator_block *allocator_obtain(struct allocator *allocator, const struct request *request)
{
    if (request->rounded > MAX_REQUEST_BYTES)
        return NULL;
    if (allocator->collecting)
        collect_garbage(allocator);
    struct allocator_block *block = segment_new(allocator, request);
    if (!block && release_oversize(allocator, request))
        block = segment_new(allocator, request);
    if (!block) {
        allocator_empty_cache(allocator);
        allocator->stats.alloc_retries++;
        block = segment_new(allocator, request);
    }
    return block;
}

void allocator_return_all(struct allocator *allocator)
{
    const struct allocator_settings *settings = &allocator->settings;
    for (const struct block_slab *slab = allocator->store.slabs; slab; slab = slab->older) {
        for (size_t i = 0; settings->segment_drop && i < slab->count; i++) {
            const struct allocator_block *head = &slab->blocks[i];
            if (!head->bytes || head->prev || head->range)
                continue;
            uint64_t bytes = 0;
            for (const struct allocator_block *block = head; block; block = block->next)
                bytes += block->bytes;
            settings->segment_drop(settings->context, head->address, bytes);
        }
    }
    while (allocator->ranges)
        range_free(allocator, allocator->ranges);
}
