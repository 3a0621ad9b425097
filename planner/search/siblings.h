/* siblings.h - configurations that do the same until the optimizer's update.
 *
 *     one     micro-batches ... clipping | update, foreach |
 *     other   micro-batches ... clipping | update, fused |
 *                                        S
 *
 * How the update is done (--optimizer-impl) is nothing that comes before it takes notice of, so
 * once one of them was simulated the others are known to last until S and their own update's time,
 * where the update is the end of a step's work on the device (evaluation.update_s). */
#ifndef SHARDPLAN_SIBLINGS_H
#define SHARDPLAN_SIBLINGS_H

#include "search/candidates.h"

struct siblings; /* a table of those that were simulated: opaque */

/* The candidates are lent until siblings_free. */
struct siblings *siblings_new(const struct candidates *candidates);
void siblings_free(struct siblings *siblings); /* NULL is allowed */

/* The siblings of a member, by number: the same of each of them. */
uint32_t siblings_of(struct siblings *siblings, uint32_t candidate, uint64_t point);

/* One of them was simulated: when its update began (evaluation.update_s), or 0. */
void siblings_note(struct siblings *siblings, uint32_t of, double update_s);
/* Seconds that a step of `candidate`, which has one of them, lasts at least by that, or 0. */
double siblings_floor(const struct siblings *siblings, uint32_t of, uint32_t candidate);

#endif
