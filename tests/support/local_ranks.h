/* local_ranks.h - the ranks of a run on this machine, started as torchrun would: over TCP, with a
 * quarter of the work that mpirun takes to start them. */
#ifndef SHARDPLAN_TESTS_LOCAL_RANKS_H
#define SHARDPLAN_TESTS_LOCAL_RANKS_H

#include <stdint.h>

/* Sets what torchrun would have set for a rank of this process's parent's: launch.h finds it. */
void local_rank_become(int rank, int ranks, uint16_t port);

/* Runs "shardrun ARGUMENTS" as so many ranks. Returns 0, or the status of a rank that ended with
 * another one; what they printed is in program_output(). */
int local_ranks(int ranks, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
