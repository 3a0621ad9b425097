/* plan_rank.h - the same plan for another rank.
 *
 * Ranks run the same instructions. What differs is which part of each parameter they hold (the last
 * ranks may have less, or nothing) and which chunk of a secondary shard is theirs. */
#ifndef SHARDPLAN_PLAN_RANK_H
#define SHARDPLAN_PLAN_RANK_H

#include "plan/plan.h"

/* Turns a plan made for rank 0 into the plan of `rank` in place. ERR_INVALID: the plan is not rank
 * 0's, or there is no such rank. */
enum err_code plan_for_rank(struct plan *plan, uint32_t rank, struct err *err);

#endif
