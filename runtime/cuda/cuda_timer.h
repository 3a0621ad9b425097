/* cuda_timer.h - when each piece of work began and ended on the device: a pair of timed events
 * around it, read after a synchronisation. Events are kept and used again. */
#ifndef SHARDPLAN_CUDA_TIMER_H
#define SHARDPLAN_CUDA_TIMER_H

#include "base/err.h"
#include "base/kernel.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

struct cuda_timer;

/* Work is timed from now on. */
struct cuda_timer *cuda_timer_new(void);
void cuda_timer_free(struct cuda_timer *timer); /* NULL is allowed */

/* `on`: false makes begin and end do nothing from now on; not between a begin and its end. */
void cuda_timer_turn(struct cuda_timer *timer, bool on);

/* Around the work of one instruction on a stream; one pair at a time. */
enum err_code cuda_timer_begin(struct cuda_timer *timer, uint8_t id, cudaStream_t stream,
                               uint32_t instruction, struct err *err);
enum err_code cuda_timer_end(struct cuda_timer *timer, cudaStream_t stream, struct err *err);

/* Hands out what ran since the last call, as device_ops.take_times; the device is idle. */
void cuda_timer_take(struct cuda_timer *timer,
                     void (*take)(void *context, uint32_t instruction, uint8_t stream,
                                  double begin_s, double end_s),
                     void *context);

#endif
