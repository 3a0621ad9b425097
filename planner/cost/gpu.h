/* gpu.h - what a GPU is to the planner: its memory, and what takes memory outside the allocator.
 *
 * Every number has a source. A profile read from a file overrides the built-in one. */
#ifndef SHARDPLAN_GPU_H
#define SHARDPLAN_GPU_H

#include "base/err.h"

#include <stdint.h>

struct gpu {
    char name[32];                   /* "h100-sxm" */
    char title[48];                  /* "NVIDIA H100 SXM 80 GB" */
    uint64_t capacity_bytes;         /* what cudaMemGetInfo reports as total */
    uint64_t context_bytes;          /* CUDA context and loaded kernels of a PyTorch process */
    uint64_t cublas_workspace_bytes; /* of each thread's handle, inside the allocator */
    uint64_t nccl_init_bytes;        /* per communicator: channels and device structures */
    uint64_t nccl_ring_bytes;        /* per communicator within a node: ring connections */
    uint64_t nccl_net_bytes;         /* per communicator across nodes: ring connections */
    const char *capacity_source, *nccl_source;
};

/* All built-in GPUs: lent. */
const struct gpu *gpu_list(uint32_t *count);

/* Looks a GPU up by name. ERR_INVALID lists the known names. */
enum err_code gpu_find(const char *name, struct gpu *out, struct err *err);

/* Reads a profile: a JSON object with any of the byte fields above (same names), "name", and
 * "gpu", the built-in GPU it starts from. Errors name file, line and key. */
enum err_code gpu_read(const char *path, struct gpu *out, struct err *err);

/* Bytes that one communicator of `ranks` ranks takes on each GPU when `across_nodes` or not;
 * 0 for a single rank. */
uint64_t gpu_communicator_bytes(const struct gpu *gpu, uint32_t ranks, int across_nodes);

#endif
