/* kernel_formula.cuh - what a kernel and the fused one that takes its place both compute: one
 * function, so that both give the same bits. Where a compiler could fuse a product with either of
 * two sums, it is told which. */
#ifndef SHARDPLAN_KERNEL_FORMULA_CUH
#define SHARDPLAN_KERNEL_FORMULA_CUH

#include "runtime/cuda/kernel_tensor.cuh"

/* What a store of that dtype and a load make of a number. */
static __device__ __forceinline__ float round_to(unsigned dtype, float x)
{
    if (dtype == KERNEL_FP32)
        return x;
    return dtype == KERNEL_BF16 ? __bfloat162float(__float2bfloat16_rn(x))
                                : __half2float(__float2half_rn(x));
}

static __device__ __forceinline__ float silu_of(float x)
{
    return x / (1.0F + expf(-x));
}

/* (a + bi)(c + di) */
static __device__ __forceinline__ float2 multiply(float2 x, float2 y)
{
    return make_float2(__fmaf_rn(x.x, y.x, -__fmul_rn(x.y, y.y)),
                       __fmaf_rn(x.x, y.y, __fmul_rn(x.y, y.x)));
}

/* Back through log-softmax: dy - softmax · Σ dy. */
static __device__ __forceinline__ float log_softmax_slope_of(float dy, float y, float sum)
{
    return __fmaf_rn(-expf(y), sum, dy);
}

/* ---- where an element is in operands with repeated dims ---- */

struct places {
    uint64_t x, y;
};

/* Where element i of z is in the lists of x and y. The loop is unrolled: an index of the lists that
 * is only known when the kernel runs would move them to local memory. */
static __device__ __forceinline__ struct places find_places(const struct kernel_spread &spread,
                                                            uint64_t i)
{
    struct places at = {0, 0};
#pragma unroll
    for (int dim = KERNEL_DIMS - 1; dim >= 0; dim--) {
        const uint64_t next = divide(i, spread.inverse[dim]), place = i - next * spread.dim[dim];
        at.x += place * spread.x_step[dim];
        at.y += place * spread.y_step[dim];
        i = next;
    }
    return at;
}

#endif
