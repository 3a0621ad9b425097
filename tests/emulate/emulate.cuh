/* emulate.cuh - the CUDA that our kernels use, on one CPU core: included before a kernel_*.cu when
 * that is compiled as plain C++. What runs is the kernels' own source, with real blocks, warps,
 * barriers and shuffles (emulate.c), one block at a time.
 *
 * So indices, shapes, sums and synchronisation are tested where no GPU is. Not tested: races
 * between blocks, what nvcc makes of the source, and time. */
#ifndef SHARDPLAN_EMULATE_CUH
#define SHARDPLAN_EMULATE_CUH

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

extern "C" {
struct emulated_place {
    unsigned x, y, z;
};
/* Runs `body(context)` once for each thread of each block, threads of a block taking turns. */
void emulate_grid(struct emulated_place blocks, struct emulated_place threads,
                  void (*body)(void *context), void *context);
/* Where the running thread is. */
extern struct emulated_place emulated_thread, emulated_block, emulated_block_size, emulated_grid;
/* All threads of the block that have not ended come here; returns whether `flag` was set in one. */
int emulate_barrier(int flag);
/* All lanes of the warp come here, each with 8 bytes; *all is those of the 32 lanes. */
void emulate_exchange(const void *own, uint64_t all[32]);
}

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

#define threadIdx emulated_thread
#define blockIdx emulated_block
#define blockDim emulated_block_size
#define gridDim emulated_grid

#define __syncthreads() emulate_barrier(0)
#define __syncthreads_or(flag) emulate_barrier(flag)
#define __threadfence_system()
#define __popc(x) __builtin_popcount(x)

template <typename T> static inline T emulated_shuffle(T x, unsigned lane)
{
    uint64_t all[32], own = 0;
    T result;
    memcpy(&own, &x, sizeof x);
    emulate_exchange(&own, all);
    memcpy(&result, &all[lane % 32], sizeof result);
    return result;
}

#define __shfl_sync(mask, x, lane) emulated_shuffle((x), (unsigned)(lane))
#define __shfl_xor_sync(mask, x, step) emulated_shuffle((x), (threadIdx.x % 32) ^ (unsigned)(step))

static inline unsigned __ballot_sync(unsigned, bool vote)
{
    uint64_t all[32], own = vote;
    unsigned mask = 0;
    emulate_exchange(&own, all);
    for (unsigned lane = 0; lane < 32; lane++)
        mask |= (unsigned)(all[lane] != 0) << lane;
    return mask;
}

static inline unsigned atomicCAS(unsigned *at, unsigned expected, unsigned value)
{
    const unsigned old = *at;
    if (old == expected)
        *at = value;
    return old;
}

static inline struct emulated_place emulated_size(dim3 size)
{
    return {size.x, size.y, size.z};
}

template <typename F> static inline cudaError_t emulate_launch(dim3 blocks, dim3 threads, F body)
{
    emulate_grid(
        emulated_size(blocks), emulated_size(threads),
        [](void *context) { (*static_cast<F *>(context))(); }, &body);
    return cudaSuccess;
}

#define KERNEL_LAUNCH(kernel, blocks, threads, stream, ...)                                        \
    ((void)(stream), emulate_launch((blocks), (threads), [&] { kernel(__VA_ARGS__); }))

#endif
