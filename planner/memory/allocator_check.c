/* allocator_check.c - what is always true of an allocator between two calls.
 *
 *     blocks      are chained by address without a gap, and no two neighbours could be one
 *     a chain     is a whole segment, of a size that segments have, or a whole expandable range
 *     pages       of a range have memory exactly where its blocks are mapped
 *     free sets   hold the free blocks of their pool and stream, all and in order (free_set_check)
 *     statistics  are the sums over the blocks; no peak is below its sum
 *     a cap       is kept: exactly by segments, to less than a page by ranges */
#include "memory/allocator_parts.h"

#include "base/arena.h"

#include <inttypes.h>
#include <stdlib.h>

#define BROKEN(...) err_set(err, ERR_INTERNAL, __VA_ARGS__)

struct sums { /* over all blocks */
    struct allocator_stats stats;
    size_t unused, ranges;
    size_t cached[POOL_COUNT][ALLOCATOR_STREAMS], unmapped[POOL_COUNT][ALLOCATOR_STREAMS];
    const struct allocator_block **heads; /* first blocks of chains */
    size_t head_count;
};

static enum err_code check_block(const struct allocator_block *b, struct err *err)
{
    if (b->bytes % MIN_BLOCK_BYTES != 0)
        return BROKEN("block %#" PRIx64 ": %" PRIu64 " bytes are no multiple of 512", b->address,
                      b->bytes);
    if (b->pool >= POOL_COUNT || b->stream >= ALLOCATOR_STREAMS)
        return BROKEN("block %#" PRIx64 ": no such pool (%u) or stream (%u)", b->address, b->pool,
                      b->stream);
    if (b->allocated && !b->mapped)
        return BROKEN("block %#" PRIx64 " is allocated without memory behind it", b->address);
    if (b->pending && !b->allocated)
        return BROKEN("block %#" PRIx64 " is free, and its free waits", b->address);
    if (!b->mapped && !b->range)
        return BROKEN("block %#" PRIx64 " of a segment is not mapped", b->address);
    if (b->allocated ? b->requested_bytes == 0 || b->requested_bytes > b->bytes
                     : b->requested_bytes != 0)
        return BROKEN("block %#" PRIx64 ": %" PRIu64 " bytes requested of %" PRIu64 ", %s",
                      b->address, b->requested_bytes, b->bytes,
                      b->allocated ? "allocated" : "free");
    return ERR_OK;
}

static enum err_code check_neighbours(const struct allocator_block *b, struct err *err)
{
    const struct allocator_block *next = b->next;
    if (b->prev && b->prev->next != b)
        return BROKEN("block %#" PRIx64 " is not the next of its previous", b->address);
    if (!next)
        return ERR_OK;
    if (next->prev != b || next->address != b->address + b->bytes)
        return BROKEN("block %#" PRIx64 " of %" PRIu64 " bytes is followed by %#" PRIx64,
                      b->address, b->bytes, next->address);
    if (next->pool != b->pool || next->stream != b->stream || next->range != b->range)
        return BROKEN("blocks %#" PRIx64 " and %#" PRIx64 " are neighbours of different kinds",
                      b->address, next->address);
    if (!b->allocated && !next->allocated && b->mapped == next->mapped)
        return BROKEN("blocks %#" PRIx64 " and %#" PRIx64 " are both free and not one", b->address,
                      next->address);
    return ERR_OK;
}

/* Adds what a block contributes to the statistics. */
static void add_block(const struct allocator_block *b, struct sums *sums)
{
    sums->stats.reserved_bytes += b->mapped ? b->bytes : 0;
    sums->stats.allocated_bytes += b->allocated && !b->pending ? b->bytes : 0;
    sums->stats.requested_bytes += b->requested_bytes;
    sums->cached[b->pool][b->stream] += !b->allocated && b->mapped;
    sums->unmapped[b->pool][b->stream] += !b->mapped;
    if (!b->allocated && !b->range && block_is_split(b)) {
        sums->stats.inactive_splits++;
        sums->stats.inactive_split_bytes += b->bytes;
    }
    if (!b->prev)
        sums->heads[sums->head_count++] = b;
}

static enum err_code check_blocks(const struct allocator *allocator, struct sums *sums,
                                  struct err *err)
{
    for (const struct block_slab *slab = allocator->store.slabs; slab; slab = slab->older) {
        for (size_t i = 0; i < slab->count; i++) {
            const struct allocator_block *block = &slab->blocks[i];
            sums->unused += block->bytes == 0;
            if (block->bytes == 0)
                continue;
            TRY(check_block(block, err));
            TRY(check_neighbours(block, err));
            add_block(block, sums);
        }
    }
    size_t unused = 0;
    for (const struct allocator_block *b = allocator->store.unused; b; b = b->next)
        unused += b->bytes == 0;
    if (unused != sums->unused)
        return BROKEN("%zu slots are unused, %zu of them listed", sums->unused, unused);
    return ERR_OK;
}

/* Pages with memory behind them, where segment_new is asked for each. */
static enum err_code check_pages(const struct allocator_block *b, struct err *err)
{
    const struct expandable_range *range = b->range;
    const uint64_t start = b->address - range->address, end = start + b->bytes;
    if (!b->mapped && (start % range->page_bytes || end % range->page_bytes))
        return BROKEN("unmapped block %#" PRIx64 " does not begin and end at pages", b->address);
    const uint64_t pages_end = (end + range->page_bytes - 1) / range->page_bytes;
    for (uint64_t page = start / range->page_bytes; range->pages && page < pages_end; page++)
        if ((range->pages[page] != 0) != b->mapped)
            return BROKEN("page %" PRIu64 " of range %#" PRIx64 " %s, and its block is %smapped",
                          page, range->address, range->pages[page] ? "has memory" : "has none",
                          b->mapped ? "" : "un");
    return ERR_OK;
}

static bool is_segment_size(const struct allocator_block *head, uint64_t bytes)
{
    if (head->pool == POOL_SMALL)
        return bytes == SMALL_SEGMENT_BYTES;
    return bytes == LARGE_SEGMENT_BYTES ||
           (bytes >= OWN_SEGMENT_BYTES && bytes % SEGMENT_ROUNDING == 0);
}

static enum err_code check_chain(const struct allocator_block *head, struct sums *sums,
                                 uint64_t *bytes, struct err *err)
{
    const struct expandable_range *range = head->range;
    *bytes = 0;
    for (const struct allocator_block *b = head; b; b = b->next) {
        *bytes += b->bytes;
        if (b->range)
            TRY(check_pages(b, err));
    }
    if (range) {
        sums->ranges++;
        if (head->address != range->address || *bytes != range->bytes)
            return BROKEN("the blocks of range %#" PRIx64 " are not all of it", range->address);
        return ERR_OK;
    }
    sums->stats.segments++;
    if (!is_segment_size(head, *bytes))
        return BROKEN("segment %#" PRIx64 " has %" PRIu64 " bytes", head->address, *bytes);
    return ERR_OK;
}

static int by_address(const void *a, const void *b)
{
    const uint64_t x = (*(const struct allocator_block *const *)a)->address;
    const uint64_t y = (*(const struct allocator_block *const *)b)->address;
    return (x > y) - (x < y);
}

static enum err_code check_chains(const struct allocator *allocator, struct sums *sums,
                                  struct err *err)
{
    uint64_t bytes, end = 0;
    qsort(sums->heads, sums->head_count, sizeof(struct allocator_block *), by_address);
    for (size_t i = 0; i < sums->head_count; i++) {
        TRY(check_chain(sums->heads[i], sums, &bytes, err));
        if (sums->heads[i]->address < end)
            return BROKEN("segment %#" PRIx64 " lies in the one before", sums->heads[i]->address);
        end = sums->heads[i]->address + bytes;
    }
    size_t ranges = 0;
    for (const struct expandable_range *range = allocator->ranges; range; range = range->older)
        ranges++;
    if (ranges != sums->ranges)
        return BROKEN("%zu ranges have blocks, %zu are listed", sums->ranges, ranges);
    return ERR_OK;
}

static enum err_code check_sets(const struct allocator *allocator, const struct sums *sums,
                                struct err *err)
{
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        for (int stream = 0; stream < ALLOCATOR_STREAMS; stream++) {
            const struct free_set *set = allocator->sets[pool][stream];
            size_t count = 0;
            if (set)
                TRY(free_set_check(set, (enum pool_kind)pool, stream, &count, err));
            if (count != sums->cached[pool][stream] ||
                (set ? set->unmapped_count : 0) != sums->unmapped[pool][stream])
                return BROKEN("pool %d, stream %d: %zu blocks are free, %zu of them in the set",
                              pool, stream, sums->cached[pool][stream], count);
        }
    }
    return ERR_OK;
}

static enum err_code check_stats(const struct allocator *allocator, const struct sums *sums,
                                 struct err *err)
{
    const struct allocator_stats *kept = &allocator->stats, *sum = &sums->stats;
    const struct {
        const char *name;
        uint64_t kept, sum, peak;
    } rows[] = {
        {"requested_bytes", kept->requested_bytes, sum->requested_bytes, kept->requested_peak},
        {"allocated_bytes", kept->allocated_bytes, sum->allocated_bytes, kept->allocated_peak},
        {"reserved_bytes", kept->reserved_bytes, sum->reserved_bytes, kept->reserved_peak},
        {"inactive_split_bytes", kept->inactive_split_bytes, sum->inactive_split_bytes, UINT64_MAX},
        {"inactive_splits", kept->inactive_splits, sum->inactive_splits, UINT64_MAX},
        {"segments", kept->segments, sum->segments, UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].kept != rows[i].sum)
            return BROKEN("%s is %" PRIu64 ", the blocks' sum %" PRIu64, rows[i].name, rows[i].kept,
                          rows[i].sum);
        if (rows[i].kept > rows[i].peak)
            return BROKEN("%s is %" PRIu64 ", its peak %" PRIu64, rows[i].name, rows[i].kept,
                          rows[i].peak);
    }
    return ERR_OK;
}

static enum err_code check_cap(const struct allocator *allocator, struct err *err)
{
    const struct allocator_settings *settings = &allocator->settings;
    const uint64_t over = settings->expandable_segments ? LARGE_SEGMENT_BYTES - 1 : 0;
    if (settings->capacity_bytes &&
        allocator->stats.reserved_bytes > settings->capacity_bytes + over)
        return BROKEN("%" PRIu64 " bytes are reserved of %" PRIu64 " allowed",
                      allocator->stats.reserved_bytes, settings->capacity_bytes);
    return ERR_OK;
}

static enum err_code check_all(const struct allocator *allocator, struct sums *sums,
                               struct err *err)
{
    TRY(check_blocks(allocator, sums, err));
    TRY(check_chains(allocator, sums, err));
    TRY(check_sets(allocator, sums, err));
    TRY(check_stats(allocator, sums, err));
    return check_cap(allocator, err);
}

enum err_code allocator_check(const struct allocator *allocator, struct err *err)
{
    size_t slots = 1;
    for (const struct block_slab *slab = allocator->store.slabs; slab; slab = slab->older)
        slots += slab->count;
    struct sums sums = {.heads = xmalloc(slots * sizeof(struct allocator_block *))};
    const enum err_code rc = check_all(allocator, &sums, err);
    free(sums.heads);
    return rc;
}
