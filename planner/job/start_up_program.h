/* start_up_program.h - for start_up.c only: the programs of its ways. */
#ifndef SHARDPLAN_START_UP_PROGRAM_H
#define SHARDPLAN_START_UP_PROGRAM_H

#include "job/start_up.h"

/* The program of a way for the rank of `plan` (lent for the call), as rank 0 runs it or as others
 * do. `tied`: the model's state dict names the token embedding twice. Buffers that are there before
 * it are resident; what lives at its end is freed behind a mark "end", so that it can be repeated.
 * The caller owns it: plan_free. */
struct plan *start_up_program(const struct plan *plan, bool tied, enum start_up_way way,
                              bool first);

/* How many ranks shared the checkpoint that a way loads. */
uint32_t start_up_saved_by(const struct plan *plan, enum start_up_way way);

/* Bytes of elements that a rank has of its parameters, and of the optimizer's states. */
struct start_up_bytes {
    uint64_t parameters, states;
};
struct start_up_bytes start_up_shards(const struct plan *plan, bool tied, uint32_t rank);

/* What a rank reads of a checkpoint that `saved_by` ranks wrote, shard by shard: a stored shard is
 * read whole where a part of it is wanted. */
struct start_up_bytes start_up_reads(const struct plan *plan, bool tied, uint32_t rank,
                                     uint32_t saved_by);

/* The same of the whole model. */
struct start_up_bytes start_up_whole(const struct plan *plan, bool tied);

#endif
