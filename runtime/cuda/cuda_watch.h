/* cuda_watch.h - a thread that looks at the collectives under way, whatever the host's is doing.
 *
 *     host's thread    launch ... launch (blocked: the GPU's queue is full) ...
 *     this one         look    look    look    look: has waited 600 s -> a failure is left
 *                                                      not taken in GRACE s -> the run is ended
 *
 * The host's own waits take what it found and end with it, as any failure does. A thread that is
 * blocked in the driver cannot: a queue that no GPU empties has room for about a thousand launches.
 * Then this thread ends the process, and with it the run, as PyTorch's ProcessGroupNCCL does. */
#ifndef SHARDPLAN_CUDA_WATCH_H
#define SHARDPLAN_CUDA_WATCH_H

#include "base/err.h"
#include "runtime/cuda/backend.h"

struct cuda_nccl;
struct cuda_watch;

/* Starts the thread for communicators that are open. `settings` and `nccl` are lent until close;
 * `ordinal`: the GPU. The caller owns *out. */
enum err_code cuda_watch_open(const struct cuda_settings *settings, struct cuda_nccl *nccl,
                              int ordinal, struct cuda_watch **out, struct err *err);
void cuda_watch_close(struct cuda_watch *watch); /* NULL is allowed */

/* What the thread has found: ERR_DEVICE when a communicator has failed, a rank is gone, or the same
 * collective has been the first that has not ended for longer than the time-out. `watch` NULL: all
 * is well. For the host's thread: what it takes is its to report. */
enum err_code cuda_watch_check(struct cuda_watch *watch, struct err *err);

#endif
