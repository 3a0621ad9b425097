/* nearer.h - the same, for all that is shown, with fewer settings off the framework's defaults.
 *
 *     --units torchtitan --forward-prefetch 2      0.9193 s  77.38 GiB
 *     --units torchtitan                           0.9193 s  77.38 GiB     taken
 *
 * One setting is put back after the other, as long as what is without it is as good: what gains
 * nothing that a reader could see is no reason to type it. */
#ifndef SHARDPLAN_NEARER_H
#define SHARDPLAN_NEARER_H

#include "search/search.h"

/* Less of a step is +0.0 % in a table, and fewer bytes are +0.00 GiB. */
#define SHOWN_STEP 5e-4
#define SHOWN_BYTES (UINT64_C(1073741824) / 200)

/* Whether a configuration takes no more than another one of `bytes` and `step_s`, as far as is
 * shown. */
bool is_as_good(double step_s, uint64_t bytes, double than_s, uint64_t than_bytes);

/* In place of the chosen one, that of (count) others that takes the least memory of those which are
 * as fast as `first_s`, as far as is shown. That is the step of what was chosen first: against what
 * took its place, each a little slower, one after the other could give up as much again. Returns
 * whether it is another one. */
bool nearer_take_less(struct found *chosen, double first_s, const struct found *others,
                      uint32_t count);

/* The points that a point becomes with one of its settings at the framework's default instead, in
 * `points`. Returns their number. */
uint32_t nearer_points(const struct grid *grid, uint64_t point, uint64_t points[AXES_MOST]);

/* Of a found one that fits and was worked out in full, in place: `within` its candidate, or of all.
 * Same result whatever the number of threads. */
void nearer_take(const struct candidates *candidates, struct pool *pool, uint64_t limit_bytes,
                 bool within, struct found *found);

/* Of a front, in place: what does not take less than all before it then is dropped. Returns how
 * many are left. */
uint32_t nearer_front(const struct candidates *candidates, struct pool *pool, uint64_t limit_bytes,
                      struct found *front, uint32_t count);

#endif
