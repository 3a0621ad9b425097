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

/* "  [#####     ]  52 %  13 of 25", from half a second on; no line any more when all is done.
 * `progress` is a struct progress: this is a sweep_progress (search/sweep.h). */
void progress_show(void *progress, uint32_t done, uint32_t total);

/* "  [#####     ]  52 %  bounding": the same of a share of something named, until progress_end. As
 * tune_options.progress (search/tune.h). */
void progress_name(void *progress, const char *what, double share);
void progress_end(const struct progress *progress);

#endif
