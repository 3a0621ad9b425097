/* state.c - see state.h. */
#include "memory/state.h"

#include "base/hash.h"

static void add_span(void *hash, const struct allocator_span *span)
{
    const uint64_t words[] = {
        span->segment_address, span->segment_bytes,   span->address,
        span->bytes,           span->requested_bytes, (uint64_t)span->stream,
        span->small_pool,      span->allocated,       span->pending,
    };
    hash_add(hash, words, sizeof words);
}

uint64_t memory_state(const struct plan *plan, const struct allocator *allocator,
                      struct allocator_block *const *blocks, const struct plan_micro_batch *at)
{
    const uint32_t from = at[-1].buffer;
    struct hash hash;
    hash_begin(&hash);
    allocator_visit(allocator, add_span, &hash);
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        if (!blocks[b])
            continue;
        const bool recent = b >= from && b < at->buffer;
        const uint64_t words[] = {recent, recent ? b - from : b,
                                  allocator_block_address(blocks[b])};
        hash_add(&hash, words, sizeof words);
    }
    return hash_end(&hash);
}
