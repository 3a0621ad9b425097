/* placer.h - what the caching allocator reserves for a ledger, for those who ask of very many
 * programs: in less than half of its own time, and at once where a pool is one of before.
 *
 * The rules are the allocator's (allocator.h) under its default settings, with expandable segments
 * or without, where memory is never refused. Then segments are never given back, pools do not hear
 * of each other, and nothing of a pool is asked but the order of its blocks in memory: a block is
 * a few numbers. What was asked before is remembered by 128 bits of it: in a search most programs
 * share their largest pool with another. tests/memory/test_placer.c holds it to the allocator. */
#ifndef SHARDPLAN_PLACER_H
#define SHARDPLAN_PLACER_H

#include "plan/ledger.h"

struct placer; /* memory that is used again from pool to pool; for one thread */

struct placer *placer_new(void);
void placer_free(struct placer *placer); /* NULL is allowed */

struct placer_options {
    bool expandable_segments;
    uint64_t device_bytes; /* as allocator_settings.device_bytes, not 0 */
    bool repeats;          /* whether the pool is steady is asked, too */
    uint64_t enough_bytes; /* how much more than that is reserved does not matter; 0: it does */
};

/* Bytes of one pool's segments after the first step and another one: memory.reserved_bytes is the
 * sum over pools. UINT64_MAX: more than enough_bytes, which is known sooner (with `repeats`,
 * however many micro-batches more there are). False: not planned here (more than 2 TiB, or beyond
 * the range of expandable segments); ask memory_replay. */
bool placer_pool(struct placer *placer, const struct ledger_pool *pool, bool small,
                 const struct placer_options *options, uint64_t *reserved_bytes);

/* Of the pool of the last call, with options->repeats: whether in both steps the last micro-batch
 * found the pool's blocks, and its buffers in them, where the one before it had found its own. More
 * micro-batches between them, if the ledger repeats (ledger_repeats), then change nothing. */
bool placer_is_steady(const struct placer *placer);

#endif
