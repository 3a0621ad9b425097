/* clocked.h - a machine's clock, by which late frees come back.
 *
 *     host    | kernel k issued | free b | ...        | alloc c: k has ended by now?
 *     lane L        |=========== k ===========|
 *
 * A tensor that another stream still uses comes back in the first allocation that finds the event
 * passed which its free put there (memory/deferred.h). Moments are those of a simulated step. The
 * host is ahead of a stream by LAUNCHES_AHEAD kernels at most: a launch waits for room in the
 * stream's queue. What Python does between kernels, in a system's hooks above all, is not known:
 * a slower host finds more events passed, and reserves less. */
#ifndef SHARDPLAN_CLOCKED_H
#define SHARDPLAN_CLOCKED_H

#include "machine/machine.h"
#include "memory/deferred.h"

/* stackoverflow.com/questions/53970187: of 10,000 short kernels about a thousand are launched at
 * once, on each stream; each further launch takes as long as a kernel. */
enum { LAUNCHES_AHEAD = 1024 };

/* Whether the plan frees anything of the device's so. */
bool clocked_any(const struct plan *plan);

/* The moments of a step in which nothing is given back to the driver, of the mean rank beside the
 * slowest (ranks.h); of a plan with repeats (plan/repeat.h), of the micro-batches that are there.
 * On ERR_OK the caller owns what is in *out: clocked_free. Errors as costs_of_plan. */
enum err_code clocked_moments(const struct plan *plan, const struct machine *machine,
                              struct deferred_clock *out, struct err *err);
void clocked_free(struct deferred_clock *clock);

#endif
