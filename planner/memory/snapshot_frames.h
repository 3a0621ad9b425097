/* snapshot_frames.h - what a plan's memory is for, said to a snapshot: a frame for each instruction
 * that allocates or frees, and one for each buffer that is there before the first step.
 *
 *     "layers.0.attention: mm [64, 256] bfloat16, in fwd"       plan.json:412
 *     "layers.0.attention.wq.weight and 6 more: init [54784] float32"  plan.json:0
 *
 * Who replays or executes the plan says where it is before it goes on. */
#ifndef SHARDPLAN_SNAPSHOT_FRAMES_H
#define SHARDPLAN_SNAPSHOT_FRAMES_H

#include "memory/snapshot.h"
#include "plan/plan.h"

struct snapshot_frames; /* opaque */

/* Plan and snapshot are lent until snapshot_frames_free, which must come after the last
 * snapshot_write. */
struct snapshot_frames *snapshot_frames_new(const struct plan *plan, struct snapshot *snapshot);
void snapshot_frames_free(struct snapshot_frames *frames); /* NULL is allowed */

/* Now comes the instruction; or the allocation of a buffer that no instruction allocates. Times are
 * Unix times in microseconds. */
void snapshot_frames_instruction(struct snapshot_frames *frames, uint32_t instruction,
                                 uint64_t time_us);
void snapshot_frames_buffer(struct snapshot_frames *frames, uint32_t buffer, uint64_t time_us);

#endif
