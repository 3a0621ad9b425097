/* kernel_broadcast.cu - z = x · y of complex numbers with repeated dims: two numbers that are
 * neighbours in all operands need one search for their place. A search divides by each dim. */
#include "runtime/cuda/kernel_formula.cuh"
#include "runtime/cuda/kernel_walk.cuh"

enum { THREADS = 256 };

static __global__ void __launch_bounds__(THREADS)
    multiply_complex(const __grid_constant__ struct kernel_spread spread, const float2 *x,
                     const float2 *y, float2 *z, uint64_t count)
{
    const uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < count; i += step) {
        const struct places at = find_places(spread, i);
        z[i] = multiply(x[at.x], y[at.y]);
    }
}

/* Numbers 2i and 2i + 1 of z, neighbours in x and y too: 16 bytes each. */
static __global__ void __launch_bounds__(THREADS)
    multiply_pairs(const __grid_constant__ struct kernel_spread spread, const float2 *x,
                   const float2 *y, float2 *z, uint64_t count)
{
    const uint64_t step = 2 * (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = 2 * (blockIdx.x * (uint64_t)THREADS + threadIdx.x); i < count; i += step) {
        const struct places at = find_places(spread, i);
        const float4 left = *reinterpret_cast<const float4 *>(x + at.x);
        const float4 right = *reinterpret_cast<const float4 *>(y + at.y);
        const float2 low = multiply(make_float2(left.x, left.y), make_float2(right.x, right.y));
        const float2 high = multiply(make_float2(left.z, left.w), make_float2(right.z, right.w));
        *reinterpret_cast<float4 *>(z + i) = make_float4(low.x, low.y, high.x, high.y);
    }
}

/* Side 0 = side 1 times side 2, of any layout: steps are in complex numbers. */
static __global__ void __launch_bounds__(THREADS)
    multiply_in_walk(const __grid_constant__ struct kernel_walk walk)
{
    const uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < walk.count; i += step) {
        const walk_places<3> at = find_in_walk<3>(walk, i);
        static_cast<float2 *>(walk.side[0].data)[at.of[0]] =
            multiply(static_cast<const float2 *>(walk.side[1].data)[at.of[1]],
                     static_cast<const float2 *>(walk.side[2].data)[at.of[2]]);
    }
}

static __global__ void __launch_bounds__(THREADS)
    conjugate(const float2 *x, float2 *y, uint64_t count)
{
    const uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < count; i += step)
        y[i] = make_float2(x[i].x, -x[i].y);
}

/* ---- launchers ---- */

/* Whether any two numbers from an even one on are neighbours, and 16 bytes apart from the next. */
static bool are_pairs(const struct kernel_spread *spread, const void *x, const void *y,
                      const void *z)
{
    const int inner = KERNEL_DIMS - 1;
    uint64_t odd = spread->dim[inner] % 2;
    for (int i = 0; i < inner; i++)
        odd |= spread->x_step[i] % 2 | spread->y_step[i] % 2;
    return !odd && spread->x_step[inner] == 1 && spread->y_step[inner] == 1 &&
           ((uintptr_t)x | (uintptr_t)y | (uintptr_t)z) % sizeof(float4) == 0;
}

cudaError_t kernel_multiply_complex(const struct kernel_spread *spread, const void *x,
                                    const void *y, void *z, uint64_t count, cudaStream_t stream)
{
    const bool pairs = are_pairs(spread, x, y, z);
    return kernel_launch(pairs ? multiply_pairs : multiply_complex,
                         blocks_for(pairs ? count / 2 : count, THREADS), THREADS, stream, *spread,
                         static_cast<const float2 *>(x), static_cast<const float2 *>(y),
                         static_cast<float2 *>(z), count);
}

cudaError_t kernel_multiply_complex_walk(const struct kernel_walk *walk, cudaStream_t stream)
{
    return kernel_launch(multiply_in_walk, blocks_for(walk->count, THREADS), THREADS, stream,
                         *walk);
}

cudaError_t kernel_conjugate(const void *x, void *y, uint64_t count, cudaStream_t stream)
{
    return kernel_launch(conjugate, blocks_for(count, THREADS), THREADS, stream,
                         static_cast<const float2 *>(x), static_cast<float2 *>(y), count);
}
