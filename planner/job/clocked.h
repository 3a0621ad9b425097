/* clocked.h - what a job's allocator reserves where late frees come back by a machine's clock.
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

#include "job/step_time.h"

/* stackoverflow.com/questions/53970187: of 10,000 short kernels about a thousand are launched at
 * once, on each stream; each further launch takes as long as a kernel. */
enum { LAUNCHES_AHEAD = 1024 };

/* Peak of the allocator's segments in bytes, on a GPU without an end, by the moments of the
 * prediction's simulated step; 0: nothing is freed late, or few micro-batches stand for many, whose
 * moments are not there. Errors as memory_replay. */
enum err_code clocked_reserved(const struct prediction *prediction, const struct machine *machine,
                               const struct step_time *time, uint64_t *bytes, struct err *err);

#endif
