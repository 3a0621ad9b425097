/* start_up_program.h - the programs of start_up.c's ways, for it and for who holds them to
 * recordings. */
#ifndef SHARDPLAN_START_UP_PROGRAM_H
#define SHARDPLAN_START_UP_PROGRAM_H

#include "job/start_up.h"

/* The way as the job's system goes it; NULL: it has none. */
struct start_up_method;
const struct start_up_method *start_up_method(const struct start_up_job *job,
                                              enum start_up_way way);

/* The program of a way for the rank of the job's plan, as rank 0 runs it or as others do. Buffers
 * that are there before it are resident; what lives at its end is freed behind a mark "end", so
 * that it can be repeated. The caller owns it: plan_free. The system has the way. */
struct plan *start_up_program(const struct start_up_job *job, enum start_up_way way, bool first);

/* How many ranks shared the checkpoint that a way loads. */
uint32_t start_up_saved_by(const struct plan *plan, enum start_up_way way);

/* Bytes that a rank reads or writes on a way that the system has. */
uint64_t start_up_file_bytes(const struct start_up_job *job, enum start_up_way way, uint32_t rank);

/* Bytes of elements that a rank has of its parameters, and of the optimizer's states. */
struct start_up_bytes {
    uint64_t parameters, states;
};
struct start_up_bytes start_up_shards(const struct start_up_job *job, uint32_t rank);

/* What a rank reads of a checkpoint that `saved_by` ranks wrote, shard by shard: a stored shard is
 * read whole where a part of it is wanted. */
struct start_up_bytes start_up_reads(const struct start_up_job *job, uint32_t rank,
                                     uint32_t saved_by);

/* The same of the whole model. */
struct start_up_bytes start_up_whole(const struct start_up_job *job);

#endif
