/* paces.h - how much ranks differ: from traces of all ranks of the same plans.
 *
 *     ln(seconds of arithmetic) = plan + rank + rest        seconds: rows of one plan, a rank each
 *     "rank_spread": standard deviation of `rank`           stays with the card
 *     "step_jitter": of `rest`                              from step to step
 *
 * A plan has no part in either: it is as long for all ranks. What of the rests' mean over plans
 * would look like a rank is taken off its variance. */
#ifndef SHARDPLAN_PACES_H
#define SHARDPLAN_PACES_H

#include "calibrate/suite.h"
#include "traces/trace.h"

struct paces {       /* zero-initialise; paces_free */
    double *seconds; /* (plans, ranks) of arithmetic */
    uint32_t plans, ranks, cap;
};

struct paces_found {
    double rank, step;               /* relative standard deviations */
    double rank_spread, step_spread; /* of these, relative: what so few of them leave unknown */
};

/* Adds a model's step of at least two ranks; others, and those of another number of ranks, say
 * nothing. `traces` are those of the plan's ranks in order: of every one, or nothing is added. */
void paces_add(struct paces *paces, const struct suite_item *item,
               const struct trace *const *traces);

/* False: fewer than two plans or ranks. */
bool paces_find(const struct paces *paces, struct paces_found *out);

void paces_free(struct paces *paces);

#endif
