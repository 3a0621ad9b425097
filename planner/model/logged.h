/* logged.h - numbers that a trainer makes of its loss for the log, outside autograd: what steps of
 * TRL's trainers (model/dpo.h, hf/reward.c) share. */
#ifndef SHARDPLAN_LOGGED_H
#define SHARDPLAN_LOGGED_H

#include "graph/ops.h"

/* A number () of x, in its dtype, or in int64 of bools: its sum, for example. */
uint32_t logged_number(struct graph *graph, enum work_kind work, enum aten aten, uint32_t x);
uint32_t logged_sum(struct graph *graph, uint32_t x);
/* The sum in the place of x. */
uint32_t logged_summed(struct graph *graph, uint32_t x);
/* item() of a number, which goes with it; and of the mean of x. */
void logged_read(struct graph *graph, uint32_t x);
void logged_mean(struct graph *graph, uint32_t x);
/* Of two operands, of x's shape. */
uint32_t logged_both(struct graph *graph, enum work_kind work, enum aten aten, enum dtype dtype,
                     uint32_t x, uint32_t y);

#endif
