/* cuda_nccl.h - NCCL: one communicator a group of ranks, split from the world's.
 *
 * All calls are for one thread, the host's, but for cuda_nccl_watch. Communicators are
 * non-blocking: a rank that never comes is noticed after the time-out and named, and a fault that
 * NCCL reports later, of whatever rank, is found by cuda_nccl_watch. */
#ifndef SHARDPLAN_CUDA_NCCL_H
#define SHARDPLAN_CUDA_NCCL_H

#include "base/err.h"
#include "runtime/cuda/backend.h"

#include <cuda_runtime_api.h>

struct cuda_nccl;

/* Joins the other ranks. Settings are lent for the call. The caller owns *out. */
enum err_code cuda_nccl_open(const struct cuda_settings *settings, struct cuda_nccl **out,
                             struct err *err);
/* `failed`: gives up what is under way instead of waiting for it. NULL is allowed. */
void cuda_nccl_close(struct cuda_nccl *nccl, bool failed);

/* Queues a collective that work_check has passed. */
enum err_code cuda_nccl_launch(struct cuda_nccl *nccl, const struct work *work, cudaStream_t stream,
                               struct err *err);

/* ERR_DEVICE when a communicator has failed since, with NCCL's own account of it. Else *oldest is
 * the instruction of the first collective that has not ended, if it has begun; UINT32_MAX: all have
 * ended, or this rank is not there yet. When it changes, there is progress. From any thread,
 * between opening and closing. */
enum err_code cuda_nccl_watch(struct cuda_nccl *nccl, uint32_t *oldest, struct err *err);

/* Memory that NCCL's transports may use without a copy of their own: ncclMemAlloc, registered with
 * every communicator. 0: none left. */
uint64_t cuda_nccl_memory_new(struct cuda_nccl *nccl, uint64_t bytes);
void cuda_nccl_memory_drop(struct cuda_nccl *nccl, uint64_t address);

#endif
