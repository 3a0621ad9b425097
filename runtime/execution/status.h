/* status.h - where each rank is, in a small file that `shardplan run` can read after a crash. */
#ifndef SHARDPLAN_STATUS_H
#define SHARDPLAN_STATUS_H

#include <stdint.h>

struct rank_status {
    uint32_t step, instruction;
};

/* The variable that names the file; it holds one struct rank_status a rank. */
#define STATUS_VARIABLE "SHARDRUN_STATUS"

/* "1": what rank 0 prints ends on a terminal, whatever its own standard output is. */
#define TERMINAL_VARIABLE "SHARDRUN_TERMINAL"

/* This rank's place in the file that the environment names, mapped for the life of the process, or
 * `own` (lent) when there is none. */
volatile struct rank_status *status_of_rank(uint32_t rank, struct rank_status *own);

#endif
