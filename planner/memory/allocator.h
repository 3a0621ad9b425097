/* allocator.h - PyTorch's CUDA caching allocator, as rules over numbers.
 *
 * The same code serves the planner (where a segment is only an address range) and the runtime
 * (where `segment_new` really asks the device), so predicted and recorded bytes agree by
 * construction. Rules: c10/cuda/CUDACachingAllocator.cpp; default settings unless changed.
 *
 * A request is rounded up to 512 bytes, served from the smallest free block of its own stream
 * that is large enough (lowest address on ties), and the front of a larger block is split off
 * when the rest is worth keeping. A free block merges with its free neighbours. Segments stay
 * with the allocator until it would otherwise run out of memory. */
#ifndef SHARDPLAN_ALLOCATOR_H
#define SHARDPLAN_ALLOCATOR_H

#include "base/err.h"
#include "base/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct allocator;       /* opaque; fields in allocator.c */
struct allocator_block; /* opaque: one block handed out, valid until its free is complete */

enum { ALLOCATOR_STREAMS = 8 }; /* stream numbers are 0 ... ALLOCATOR_STREAMS - 1 */

enum allocator_action { /* the names of PyTorch's memory snapshot */
                        ALLOCATOR_ALLOC,
                        ALLOCATOR_FREE_REQUESTED,
                        ALLOCATOR_FREE_COMPLETED,
                        ALLOCATOR_SEGMENT_ALLOC,
                        ALLOCATOR_SEGMENT_FREE,
                        ALLOCATOR_SEGMENT_MAP,
                        ALLOCATOR_SEGMENT_UNMAP,
                        ALLOCATOR_OOM,
};

struct allocator_settings { /* zero means PyTorch's default everywhere */
    bool expandable_segments;
    uint64_t max_split_bytes;              /* 0: unlimited; else at least 20 MiB */
    uint64_t max_non_split_rounding;       /* 0: 20 MiB; else at least that */
    uint32_t roundup_power2_divisions[16]; /* by size class 1 MiB ... 32 GiB; 0: off */
    double garbage_collection_threshold;   /* 0: off; acts only when capacity_bytes is set */
    uint64_t capacity_bytes;               /* segments may not exceed this in all; 0: no limit.
                                              Expandable ones may, by less than one page of 20 MiB:
                                              PyTorch compares with the size of a usual segment */
    uint64_t device_bytes; /* size of the device, for the virtual ranges of expandable segments;
                              0: 80 GiB */

    /* Where segments come from. NULL: address ranges made up in order, none is ever refused.
     * Returns the address of `bytes` new bytes, or 0 when the device has none left. With
     * expandable_segments it is asked for each page; addresses of blocks are then made up. */
    uint64_t (*segment_new)(void *context, uint64_t bytes);
    void (*segment_drop)(void *context, uint64_t address, uint64_t bytes);
    void *context;

    /* Called before everything cached is given back (out of memory, allocator_empty_cache):
     * waits for the streams and completes the frees that were requested, as PyTorch's
     * synchronize_and_free_events. NULL: none waits. */
    void (*complete_frees)(void *context);
    void *free_context;

    /* Called after each action with the requested bytes of allocs and frees, and the segment's
     * bytes of segment actions. ALLOCATOR_OOM comes with the rounded request and, as address,
     * the bytes left under capacity_bytes. May be NULL. Used to write memory snapshots. */
    void (*on_action)(void *context, enum allocator_action action, uint64_t address, uint64_t bytes,
                      int stream);
    void *action_context;
};

struct allocator_stats { /* bytes; the meaning of each is that of torch.cuda.memory_stats() */
    uint64_t requested_bytes, allocated_bytes, reserved_bytes, inactive_split_bytes;
    uint64_t requested_peak, allocated_peak, reserved_peak;
    uint64_t segments, inactive_splits, alloc_retries, ooms;
};

/* Makes an allocator; `settings` is copied (its context pointers stay the caller's). The caller
 * owns the result: allocator_free. */
struct allocator *allocator_new(const struct allocator_settings *settings);

/* Frees the allocator and every block; segments go back through segment_drop. NULL is allowed. */
void allocator_free(struct allocator *allocator);

/* Hands out a block for `bytes` > 0 on `stream`. ERR_NOMEM when no segment can be had, even
 * after releasing what is cached: *out is NULL, err names bytes asked, allocated and reserved. */
enum err_code allocator_alloc(struct allocator *allocator, uint64_t bytes, int stream,
                              struct allocator_block **out, struct err *err);

/* Takes the block back; it is free for its stream at once (no record_stream). */
void allocator_free_block(struct allocator *allocator, struct allocator_block *block);

/* The same in two parts, for a block that other streams may still use: from the request on it is
 * not counted as allocated, but nobody gets its memory, and its requested bytes stay counted, until
 * the free is completed. Whoever requests it knows when (deferred.h). */
void allocator_request_free(struct allocator *allocator, struct allocator_block *block);
void allocator_complete_free(struct allocator *allocator, struct allocator_block *block);

/* The device address of a block. */
uint64_t allocator_block_address(const struct allocator_block *block);

/* Bytes of the block: the rounded request, or more when a rest was not worth splitting off. */
uint64_t allocator_block_bytes(const struct allocator_block *block);

/* Statistics now: lent, valid until allocator_free, changing with every call. */
const struct allocator_stats *allocator_stats(const struct allocator *allocator);

/* Sets all peaks to the present values, as torch.cuda.reset_peak_memory_stats(). */
void allocator_reset_peaks(struct allocator *allocator);

/* Returns every unused segment to the device, as torch.cuda.empty_cache(). */
void allocator_empty_cache(struct allocator *allocator);

/* One block or gap of a segment, for snapshots. */
struct allocator_span {
    uint64_t segment_address, segment_bytes;
    uint64_t address, bytes, requested_bytes;
    int stream;
    bool small_pool, expandable;
    bool allocated; /* handed out, or not yet back */
    bool pending;   /* not yet back: its free was requested */
};

/* Calls visit for every block in address order within each segment, segments by address. */
void allocator_visit(const struct allocator *allocator,
                     void (*visit)(void *context, const struct allocator_span *span),
                     void *context);

/* Whether everything is true that always is (allocator_check.c): ERR_INTERNAL, and *err says what
 * is broken. Looks at every block; for tests and checked builds. */
enum err_code allocator_check(const struct allocator *allocator, struct err *err);

/* Rounds a request as the allocator does with default settings: up to a multiple of 512. */
static inline uint64_t allocator_round(uint64_t bytes)
{
    return request_round(bytes ? bytes : 1);
}

#endif
