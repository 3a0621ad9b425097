/* periods.h - blocks of a model that take as long as the one before, passed over in one go.
 *
 *     tasks     ... | block 3 | block 4 | block 5 | block 6 | ... | block 30 | head ...
 *                   t1        t2        |------- the same, shifted --------|
 *                   every stream as     every stream, and whatever runs, k periods later
 *                   far behind t1 as behind t2
 *
 * A model has many blocks alike, and so has the program of a step, forward and backward. From a
 * moment when the simulator is where it was a block before, whatever comes next is what came then,
 * as long as the tasks are the same and the host has issued them in time. So what is passed over
 * differs from the longer way's by a rounding, as all times within an outline's spans
 * (sequence.h).
 *
 * That tasks are the same is known by 64 bits of what they are. */
#ifndef SHARDPLAN_PERIODS_H
#define SHARDPLAN_PERIODS_H

#include "simulate/run.h"

struct periods; /* of a simulation of an outline, while it runs: opaque */

/* Which tasks are as those before them, however the times of classes are scaled. The caller owns
 * what it returns: free its `of`. */
struct ranges periods_find(const struct simulation *simulation, const struct costs *costs);

/* Finds them, if simulation->alike is not known. NULL: none. The caller owns it: periods_free. */
struct periods *periods_new(const struct simulation *simulation, const struct costs *costs);
void periods_free(struct periods *periods); /* NULL is allowed */

/* At a moment when rates are shared out: if it repeats an earlier one, goes on to where the tasks
 * stop to be alike. Nobody is waited for (run.slower is NULL). */
void periods_pass(struct periods *periods, struct run *run);

#endif
