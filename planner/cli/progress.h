/* progress.h - how far a long command is: one line on a terminal, nothing in a pipe. */
#ifndef SHARDPLAN_PROGRESS_H
#define SHARDPLAN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress { /* zero-initialise, then progress_begin */
    bool shown;
    int percent;  /* that the line says */
    double begin; /* seconds of the monotonic clock */
};

/* Shows nothing unless standard error is a terminal and `wanted`. */
struct progress progress_begin(bool wanted);

/* "  [#####     ]  52 %  13 of 25", from half a second on; gone when all is done. `progress` is a
 * struct progress: a sweep_progress (search/sweep.h). */
void progress_show(void *progress, uint32_t done, uint32_t total);

#endif
