/* emulated_stream.h - for the files of tests/emulate: the queues of the emulated device.
 *
 * Work is done late, and in an order that only streams and events hold: nothing runs before the
 * host waits for something, and then a seeded choice says whose turn it is. A stream may be far
 * ahead of another one or far behind it, as on a GPU that is busy; a program that lacks a wait gets
 * other results for some seed. SHARDRUN_EMULATED_SEED: the seed, by default 1.
 *
 * One lock guards all of it; work is done by the thread that waits, with the lock held. */
#ifndef SHARDPLAN_EMULATED_STREAM_H
#define SHARDPLAN_EMULATED_STREAM_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues work: `run(context)` returns whether it has ended (1), or is to be asked again (0): it
 * waits for the clock or for another process. `drop(context)` (NULL: nothing) comes after it. */
cudaError_t emulated_queue(cudaStream_t stream, int (*run)(void *context),
                           void (*drop)(void *context), void *context);

/* The same for a copy of `bytes` bytes at `context`. */
cudaError_t emulated_queue_copy(cudaStream_t stream, int (*run)(void *context), const void *context,
                                size_t bytes);

/* For work that runs: it takes so much longer on the clock of events. */
void emulated_spend(double ms);

/* Until no queue can go on: what cudaFree does before it frees. */
void emulated_drain(void);

#ifdef __cplusplus
}
#endif

#endif
