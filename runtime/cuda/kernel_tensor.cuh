/* kernel_tensor.cuh - how kernels read and write operands, and how a block sums.
 *
 * Kernels see numbers as fp32 and do not know the storage dtype: each access of eight elements
 * branches once on it, the same way in every thread, which costs nothing beside the memory access.
 * So a kernel is compiled once, not once for every mix of dtypes. */
#ifndef SHARDPLAN_KERNEL_TENSOR_CUH
#define SHARDPLAN_KERNEL_TENSOR_CUH

#include "runtime/cuda/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

enum { LANES = 32, VECTOR = 8 };

/* Queues a kernel. The result is this launch's own: cudaGetLastError would also say what any call
 * before it left behind. */
template <typename... T, typename... Given>
static inline cudaError_t kernel_launch(void (*kernel)(T...), dim3 blocks, dim3 threads,
                                        cudaStream_t stream, const Given &...given)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, given...);
}

static inline uint64_t ceil_div(uint64_t x, uint64_t y)
{
    return (x + y - 1) / y;
}

/* Enough to fill any GPU. Tests make it small, so that blocks loop over small operands, too. */
#ifndef KERNEL_MOST_BLOCKS
#define KERNEL_MOST_BLOCKS 65536
#endif

/* Blocks for `items` with `threads` each; beyond the most, each of them loops. */
static inline unsigned blocks_for(uint64_t items, unsigned threads)
{
    const uint64_t most = KERNEL_MOST_BLOCKS, blocks = ceil_div(items, threads);
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* ---- one element ---- */

/* n / d of d's inverse (kernels.h). */
static __device__ __forceinline__ uint64_t divide(uint64_t n, uint64_t inverse)
{
    return inverse ? __umul64hi(n, inverse) : n;
}

static __device__ __forceinline__ uint64_t tensor_at(const struct kernel_tensor &x, uint64_t i)
{
    if (!x.pitch)
        return i;
    const uint64_t row = divide(i, x.inverse);
    return row * x.pitch + (i - row * x.width);
}

static __device__ __forceinline__ float load_raw(const void *data, unsigned dtype, uint64_t at)
{
    if (dtype == KERNEL_FP32)
        return static_cast<const float *>(data)[at];
    if (dtype == KERNEL_BF16)
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(data)[at]);
    return __half2float(static_cast<const __half *>(data)[at]);
}

static __device__ __forceinline__ void store_raw(void *data, unsigned dtype, uint64_t at,
                                                 float value)
{
    if (dtype == KERNEL_FP32)
        static_cast<float *>(data)[at] = value;
    else if (dtype == KERNEL_BF16)
        static_cast<__nv_bfloat16 *>(data)[at] = __float2bfloat16_rn(value);
    else
        static_cast<__half *>(data)[at] = __float2half_rn(value);
}

static __device__ __forceinline__ float load_one(const struct kernel_tensor &x, uint64_t i)
{
    return load_raw(x.data, x.dtype, tensor_at(x, i));
}

static __device__ __forceinline__ void store_one(const struct kernel_tensor &y, uint64_t i,
                                                 float value)
{
    store_raw(y.data, y.dtype, tensor_at(y, i), value);
}

/* ---- eight elements beside each other, `at` a place in memory that fits 16-byte accesses ---- */

union half_bits {
    uint4 all;
    __nv_bfloat16 bf16[VECTOR];
    __half fp16[VECTOR];
};

static __device__ __forceinline__ void load_wide(const void *data, unsigned dtype, uint64_t at,
                                                 float out[VECTOR])
{
    if (dtype == KERNEL_FP32) {
        const float4 *from =
            reinterpret_cast<const float4 *>(static_cast<const float *>(data) + at);
        const float4 low = from[0], high = from[1];
        out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
        out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
        return;
    }
    half_bits bits;
    bits.all = *reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(data) + at);
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        out[j] = dtype == KERNEL_BF16 ? __bfloat162float(bits.bf16[j]) : __half2float(bits.fp16[j]);
}

static __device__ __forceinline__ void store_wide(void *data, unsigned dtype, uint64_t at,
                                                  const float in[VECTOR])
{
    if (dtype == KERNEL_FP32) {
        float4 *to = reinterpret_cast<float4 *>(static_cast<float *>(data) + at);
        to[0] = make_float4(in[0], in[1], in[2], in[3]);
        to[1] = make_float4(in[4], in[5], in[6], in[7]);
        return;
    }
    half_bits bits;
#pragma unroll
    for (int j = 0; j < VECTOR; j++) {
        if (dtype == KERNEL_BF16)
            bits.bf16[j] = __float2bfloat16_rn(in[j]);
        else
            bits.fp16[j] = __float2half_rn(in[j]);
    }
    *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(data) + at) = bits.all;
}

/* ---- elements [i, i + 8), those before `end`; the rest reads as 0 and is not written ---- */

static __device__ __forceinline__ void load_some(const struct kernel_tensor &x, uint64_t i,
                                                 uint64_t end, float out[VECTOR])
{
    if (x.wide && i % VECTOR == 0 && i + VECTOR <= end) {
        load_wide(x.data, x.dtype, tensor_at(x, i), out);
        return;
    }
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        out[j] = i + j < end ? load_one(x, i + j) : 0.0F;
}

static __device__ __forceinline__ void store_some(const struct kernel_tensor &y, uint64_t i,
                                                  uint64_t end, const float in[VECTOR])
{
    if (y.wide && i % VECTOR == 0 && i + VECTOR <= end) {
        store_wide(y.data, y.dtype, tensor_at(y, i), in);
        return;
    }
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        if (i + j < end)
            store_one(y, i + j, in[j]);
}

/* A loop over groups of eight of `count` elements, spread over the whole grid. */
#define FOR_GROUPS(i, count)                                                                       \
    for (uint64_t i = VECTOR * (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x); i < (count);     \
         i += VECTOR * ((uint64_t)gridDim.x * blockDim.x))

/* ---- indices ---- */

static __device__ __forceinline__ int64_t load_index(const struct kernel_index &ids, uint64_t i)
{
    return ids.is_64 ? static_cast<const int64_t *>(ids.data)[i]
                     : static_cast<const int32_t *>(ids.data)[i];
}

/* The first thread that comes fills it in. */
static __device__ __forceinline__ void
raise_fault(struct kernel_fault *fault, struct kernel_site site, int64_t value, uint64_t bound)
{
    const unsigned none = KERNEL_FAULT_NONE, begun = KERNEL_FAULT_BEGUN;
    if (atomicCAS(&fault->raised, none, begun) == none) {
        fault->site = site;
        fault->value = value;
        fault->bound = bound;
        __threadfence_system(); /* the host sees all of it before it sees that it is whole */
        *(volatile uint32_t *)&fault->raised = KERNEL_FAULT_WHOLE;
    }
}

/* ---- sums and maxima over a block of whole warps, in a fixed order ---- */

template <typename T> static __device__ __forceinline__ T warp_sum(T x)
{
    for (int step = LANES / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffU, x, step);
    return x;
}

/* fmaxf drops a NaN; here it stays, as the sums that follow would lose it. */
static __device__ __forceinline__ float larger(float x, float y)
{
    return x > y || x != x ? x : y;
}

static __device__ __forceinline__ float warp_max(float x)
{
    for (int step = LANES / 2; step > 0; step /= 2)
        x = larger(x, __shfl_xor_sync(0xffffffffU, x, step));
    return x;
}

/* The sum of x over the block, in every thread. `room`: one T a warp, of shared memory; it may be
 * used again after the call. */
template <typename T> static __device__ __forceinline__ T block_sum(T x, T *room)
{
    const unsigned warp = threadIdx.x / LANES, warps = blockDim.x / LANES;
    x = warp_sum(x);
    if (threadIdx.x % LANES == 0)
        room[warp] = x;
    __syncthreads();
    T sum = 0;
    for (unsigned w = 0; w < warps; w++)
        sum += room[w];
    __syncthreads();
    return sum;
}

static __device__ __forceinline__ float block_max(float x, float *room)
{
    const unsigned warp = threadIdx.x / LANES, warps = blockDim.x / LANES;
    x = warp_max(x);
    if (threadIdx.x % LANES == 0)
        room[warp] = x;
    __syncthreads();
    float most = room[0];
    for (unsigned w = 1; w < warps; w++)
        most = larger(most, room[w]);
    __syncthreads();
    return most;
}

#endif
