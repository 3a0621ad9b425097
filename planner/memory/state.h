/* state.h - the state of an allocator and of a plan's buffers in it, as one number. */
#ifndef SHARDPLAN_MEMORY_STATE_H
#define SHARDPLAN_MEMORY_STATE_H

#include "memory/allocator.h"
#include "plan/plan.h"

/* A hash of every segment and block, in their order, and of the block that each live buffer has:
 * `blocks` (buffers), NULL: none. Buffers of the micro-batch before `at` count from its first one,
 * so that two micro-batches that find the same have the same number. */
uint64_t memory_state(const struct plan *plan, const struct allocator *allocator,
                      struct allocator_block *const *blocks, const struct plan_micro_batch *at);

#endif
