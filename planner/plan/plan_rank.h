/* plan_rank.h - the same plan for another rank.
 *
 * Ranks run the same instructions. What differs is which part of each parameter they hold (the last
 * ranks may have less, or nothing) and which chunk of a secondary shard is theirs. Under some
 * systems they do not (plan.own_programs): then each has a file, plan.json is rank 0's and
 * plan-1.json rank 1's. */
#ifndef SHARDPLAN_PLAN_RANK_H
#define SHARDPLAN_PLAN_RANK_H

#include "plan/plan_json.h"

/* The name of the file of a rank, beside `path`, which is rank 0's, in `text`; returns text. */
char *plan_rank_path(const char *path, uint32_t rank, char *text, size_t size);

/* Turns a plan made for rank 0 into the plan of `rank` in place. ERR_INVALID: the plan is not rank
 * 0's, there is no such rank, or what would be its plan does not pass plan_verify. */
enum err_code plan_for_rank(struct plan *plan, uint32_t rank, struct err *err);

/* The same for a plan read from `path`; *plan is another one where each rank has its own file,
 * which must have the same groups. `extra` is what the first file said besides and becomes what the
 * other one says; NULL: nobody asks. */
enum err_code plan_read_rank(const char *path, uint32_t rank, struct plan **plan,
                             struct plan_json_extra *extra, struct err *err);

#endif
