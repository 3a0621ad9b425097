/* deferred.h - frees on another lane than the buffer's pool: when their blocks come back.
 *
 * A tensor that another stream still uses (PyTorch's record_stream) is gone for the host at once;
 * its block is not. It comes back when the plan itself shows that the lane of the free, L, is done
 * with it: when the pool's lane is behind the last kernel on L before the free that has the buffer
 * for an operand. That takes one wait, or several by way of other lanes. At the latest it comes
 * back when the step ends.
 *
 *     host     kernel reads b | free b  | record e | wait for e     | alloc c
 *     lane     L              | L       | L        | the pool's     | the pool's
 *     block                   | pending            | free           | may be c's
 *
 * Where a `use` named other lanes before, all of these are waited for.
 *
 * A wait of the host's own lane holds the host: what it issues later, on any lane, is behind that.
 * And the collectives of a group run one after the other, whatever their lanes.
 *
 * What is allocated from a pool is used behind what the pool's lane waited for, so this is always
 * safe. PyTorch puts an event of its own behind L's work at the free, and takes the block back in
 * the first allocation that finds it passed: a matter of clocks, which a plan has not. Out of
 * memory, both wait for all of them first.
 *
 * Planned and recorded memory are equal because both go through here (replay.c, runtime's
 * execute.c). A plan without such frees costs nothing.
 *
 * Who has a clock gives it: blocks come back as PyTorch's do then, and waits show nothing. */
#ifndef SHARDPLAN_DEFERRED_H
#define SHARDPLAN_DEFERRED_H

#include "memory/allocator.h"
#include "plan/plan.h"

struct deferred; /* opaque; fields in deferred.c */

/* Seconds from a step's start, one for each instruction of the plan. */
struct deferred_clock {
    double *host_s; /* the host is there */
    double *done_s; /* of a deferred free: its lanes are done with what they had before it */
};

/* No block waits. The plan, which plan_verify accepts, the allocator and the clock (NULL: there is
 * none) are lent until deferred_close; the caller owns the result. */
struct deferred *deferred_new(const struct plan *plan, struct allocator *allocator,
                              const struct deferred_clock *clock);
/* Blocks that still wait stay the allocator's. NULL is allowed. */
void deferred_close(struct deferred *deferred);

/* Instruction `id`, a free with plan_free_is_deferred, gives `block` back when the time has come.
 * `first_step`: PLAN_FIRST_STEP instructions are run in this step. */
void deferred_free(struct deferred *deferred, uint32_t id, bool first_step,
                   struct allocator_block *block);

/* Instruction `id`, a record, a wait, a use or a collective, is issued; it may complete frees. */
void deferred_pass(struct deferred *deferred, uint32_t id);

/* With a clock: before instruction `id`, an alloc, which may complete frees (the caching
 * allocator's process_events). */
void deferred_reach(struct deferred *deferred, uint32_t id);

/* Completes all frees that wait: every stream has been waited for. */
void deferred_complete(struct deferred *deferred);

/* The step has ended, and with it everything on every stream. */
void deferred_end_step(struct deferred *deferred);

#endif
