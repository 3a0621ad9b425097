/* state.c - see state.h. */
#include "memory/state.h"

#include "base/err.h"
#include "base/hash.h"

#include <stdlib.h>

/* A segment that is given back and asked for anew is elsewhere, and nothing depends on where: only
 * on which comes first. So a block counts from its segment, and segments by their order. An
 * expandable segment has its addresses for good. */
struct place {
    uint64_t address, counted;
};

struct noting {
    struct hash hash;
    struct place *places; /* (count) of blocks, by address */
    uint32_t count, cap;
    uint64_t segment, segments; /* the one before's address; how many there were */
};

enum { SEGMENT_SHIFT = 44 }; /* no segment has as many bytes */

static void add_span(void *context, const struct allocator_span *span)
{
    struct noting *n = context;
    if (n->segments == 0 || span->segment_address != n->segment)
        n->segments++;
    n->segment = span->segment_address;
    const uint64_t counted =
        span->expandable ? span->address
                         : (n->segments << SEGMENT_SHIFT) + (span->address - span->segment_address);
    const uint64_t words[] = {
        counted,
        span->segment_bytes,
        span->bytes,
        span->requested_bytes,
        (uint64_t)span->stream,
        span->small_pool,
        span->allocated,
        span->pending,
    };
    hash_add(&n->hash, words, sizeof words);
    ARRAY_GROW(n->places, n->count, n->cap);
    n->places[n->count++] = (struct place){span->address, counted};
}

static int by_address(const void *a, const void *b)
{
    const uint64_t x = ((const struct place *)a)->address, y = ((const struct place *)b)->address;
    return (x > y) - (x < y);
}

static uint64_t counted_of(const struct noting *n, const struct allocator_block *block)
{
    const struct place wanted = {.address = allocator_block_address(block)};
    const struct place *found =
        bsearch(&wanted, n->places, n->count, sizeof *n->places, by_address);
    return found ? found->counted : wanted.address; /* every block is visited */
}

uint64_t memory_state(const struct plan *plan, const struct allocator *allocator,
                      struct allocator_block *const *blocks, const struct plan_micro_batch *at)
{
    const uint32_t from = at[-1].buffer;
    struct noting n = {.count = 0};
    hash_begin(&n.hash);
    allocator_visit(allocator, add_span, &n);
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        if (!blocks[b])
            continue;
        const bool recent = b >= from && b < at->buffer;
        const uint64_t words[] = {recent, recent ? b - from : b, counted_of(&n, blocks[b])};
        hash_add(&n.hash, words, sizeof words);
    }
    free(n.places);
    return hash_end(&n.hash);
}
