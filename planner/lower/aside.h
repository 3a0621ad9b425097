/* aside.h - copies between host and device that a stream has (tape_options.saved_on): on a lane of
 * their own, or on the compute stream's. */
#ifndef SHARDPLAN_ASIDE_H
#define SHARDPLAN_ASIDE_H

#include "lower/lowering.h"

/* Behind the system's set_up: the lane, if the stream has one. */
void aside_set_up(struct lowering *low);
/* The stream's buffers are the plan's from `first` on: LANE_ASIDE is that lane. */
void aside_place(struct lowering *low, uint32_t first, uint32_t count);
/* One of these steps. */
void aside_pass(struct lowering *low, struct stream_step step);
/* A buffer of the stream's dies. */
void aside_free(struct lowering *low, uint32_t buffer);

#endif
