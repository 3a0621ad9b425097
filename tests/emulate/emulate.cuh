/* emulate.cuh - the CUDA that our kernels use, on one CPU core: included before a kernel_*.cu when
 * that is compiled as plain C++. What runs is the kernels' own source, with real blocks, warps,
 * barriers and shuffles (emulate.c), one block at a time, when its turn comes (emulated_stream.h).
 *
 * So indices, shapes, sums and synchronisation are tested where no GPU is. Not tested: races
 * between blocks, what nvcc makes of the source, and time. */
#ifndef SHARDPLAN_EMULATE_CUH
#define SHARDPLAN_EMULATE_CUH

#include "tests/emulate/emulated_stream.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <tuple>
#include <utility>

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
/* All lanes of the warp come here, each with 8 bytes. Returns those of the 32 lanes, there until
 * the lane comes here again. */
const uint64_t *emulate_exchange(uint64_t own);
}

/* So few that most operands of the tests take every block round its loop several times. */
#define KERNEL_MOST_BLOCKS 3

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

inline struct emulated_place &threadIdx = emulated_thread, &blockIdx = emulated_block,
                             &blockDim = emulated_block_size, &gridDim = emulated_grid;

#define __syncthreads() emulate_barrier(0)
#define __syncthreads_or(flag) emulate_barrier(flag)
#define __threadfence_system()
#define __umul64hi(x, y) ((uint64_t)((unsigned __int128)(x) * (y) >> 64))
#define rsqrtf(x) (1.0F / sqrtf(x))
#define __fmul_rn(x, y) ((x) * (y))
/* rounded twice, as the kernels' other products are */
#define __fmaf_rn(x, y, z) ((x) * (y) + (z))
#define __popc(x) __builtin_popcount(x)

template <typename T> static inline T emulated_shuffle(T x, unsigned lane)
{
    uint64_t own = 0;
    T result;
    memcpy(&own, &x, sizeof x);
    memcpy(&result, &emulate_exchange(own)[lane % 32], sizeof result);
    return result;
}

#define __shfl_sync(mask, own, lane) emulated_shuffle((own), (unsigned)(lane))
#define __shfl_up_sync(mask, own, step)                                                            \
    emulated_shuffle((own), threadIdx.x % 32 < (unsigned)(step)                                    \
                                ? threadIdx.x % 32                                                 \
                                : threadIdx.x % 32 - (unsigned)(step))
#define __shfl_xor_sync(mask, own, step)                                                           \
    emulated_shuffle((own), (threadIdx.x % 32) ^ (unsigned)(step))

/* The fragments of m16n8k16 (kernel_product.cu), from all lanes of the warp. */
template <typename T>
static inline void emulated_multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    uint64_t low[32], high[32], own;
    memcpy(&own, &a[0], sizeof own);
    memcpy(low, emulate_exchange(own), sizeof low);
    memcpy(&own, &a[2], sizeof own);
    memcpy(high, emulate_exchange(own), sizeof high);
    memcpy(&own, &b[0], sizeof own);
    const uint64_t *right = emulate_exchange(own);
    const auto half = [](uint64_t pairs, unsigned place) {
        const uint16_t bits = (uint16_t)(pairs >> 16 * place);
        T number;
        memcpy((void *)&number, &bits, sizeof bits);
        return (float)number;
    };
    for (unsigned e = 0; e < 4; e++) {
        const unsigned lane = threadIdx.x % 32, row = lane / 4 + e / 2 * 8,
                       column = lane % 4 * 2 + e % 2;
        for (unsigned k = 0; k < 16; k++) {
            const uint64_t left = (k < 8 ? low : high)[row % 8 * 4 + k % 8 / 2];
            d[e] += half(left, row / 8 * 2 + k % 2) *
                    half(right[column * 4 + k % 8 / 2], k / 8 * 2 + k % 2);
        }
    }
}
#define MULTIPLY_FRAGMENTS(type, d, a, b)                                                          \
    (type[0] == 'b' ? emulated_multiply<__nv_bfloat16>((d), (a), (b))                              \
                    : emulated_multiply<__half>((d), (a), (b)))

static inline unsigned __ballot_sync(unsigned, bool vote)
{
    const uint64_t *all = emulate_exchange(vote);
    unsigned mask = 0;
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

/* A launch: the kernel and its arguments, by value, until their turn comes. */
template <typename... T> struct emulated_launch {
    void (*kernel)(T...);
    std::tuple<T...> arguments;
    dim3 blocks, threads;
};

static inline struct emulated_place emulated_size(dim3 size)
{
    return {size.x, size.y, size.z};
}

template <typename... T> static void emulated_run_thread(void *context)
{
    const auto *launch = static_cast<emulated_launch<T...> *>(context);
    std::apply(launch->kernel, launch->arguments);
}

template <typename... T> static int emulated_run(void *context)
{
    const auto *launch = static_cast<emulated_launch<T...> *>(context);
    emulate_grid(emulated_size(launch->blocks), emulated_size(launch->threads),
                 emulated_run_thread<T...>, context);
    return 1;
}

/* As nvcc's template of this name: the arguments become what the kernel takes. */
template <typename... T, typename... Given>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(T...),
                                             Given &&...given)
{
    auto *launch = new emulated_launch<T...>{
        kernel, std::tuple<T...>(std::forward<Given>(given)...), config->gridDim, config->blockDim};
    return emulated_queue(
        config->stream, emulated_run<T...>,
        [](void *context) { delete static_cast<emulated_launch<T...> *>(context); }, launch);
}

#endif
