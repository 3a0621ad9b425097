/* kernel_broadcast.cu - z = x + y and z = x · y with repeated dims, complex numbers too.
 *
 * Operands of one shape go through eight elements at a time. With repeated dims, eight elements of
 * z that lie in one row of its last dim need one search for their place in x and y, and so do two
 * complex numbers. A search divides by each dim. */
#include "runtime/cuda/kernel_formula.cuh"

enum { THREADS = 256 };

static __device__ __forceinline__ float combine(int multiply, float x, float y)
{
    return multiply ? x * y : x + y;
}

static __global__ void __launch_bounds__(THREADS)
    combine_flat(int multiply, const __grid_constant__ struct kernel_tensor x,
                 const __grid_constant__ struct kernel_tensor y,
                 const __grid_constant__ struct kernel_tensor z)
{
    FOR_GROUPS(i, z.count)
    {
        float left[VECTOR], right[VECTOR];
        load_some(x, i, z.count, left);
        load_some(y, i, z.count, right);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            left[j] = combine(multiply, left[j], right[j]);
        store_some(z, i, z.count, left);
    }
}

/* Eight elements of a row, of an operand that has the row (step 1) or its one element (step 0). */
static __device__ __forceinline__ void load_spread(const struct kernel_tensor &x, uint64_t at,
                                                   uint64_t step, float out[VECTOR])
{
    if (step) {
        load_some(x, at, at + VECTOR, out);
        return;
    }
    const float value = load_one(x, at);
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        out[j] = value;
}

static __global__ void __launch_bounds__(THREADS)
    combine_spread(int multiply, const __grid_constant__ struct kernel_spread spread,
                   const __grid_constant__ struct kernel_tensor x,
                   const __grid_constant__ struct kernel_tensor y,
                   const __grid_constant__ struct kernel_tensor z)
{
    const int inner = KERNEL_DIMS - 1;
    const bool whole = spread.dim[inner] % VECTOR == 0;
    FOR_GROUPS(i, z.count)
    {
        float left[VECTOR], right[VECTOR];
        if (whole) {
            const struct places at = find_places(spread, i);
            load_spread(x, at.x, spread.x_step[inner], left);
            load_spread(y, at.y, spread.y_step[inner], right);
        } else {
#pragma unroll
            for (int j = 0; j < VECTOR; j++) {
                const struct places at = find_places(spread, i + j < z.count ? i + j : i);
                left[j] = load_one(x, at.x);
                right[j] = load_one(y, at.y);
            }
        }
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            left[j] = combine(multiply, left[j], right[j]);
        store_some(z, i, z.count, left);
    }
}

/* ---- complex numbers ---- */

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

static __global__ void __launch_bounds__(THREADS)
    conjugate(const float2 *x, float2 *y, uint64_t count)
{
    const uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < count; i += step)
        y[i] = make_float2(x[i].x, -x[i].y);
}

/* ---- launchers ---- */

cudaError_t kernel_broadcast(int multiply, int flat, const struct kernel_spread *spread,
                             struct kernel_tensor x, struct kernel_tensor y, struct kernel_tensor z,
                             cudaStream_t stream)
{
    const unsigned blocks = blocks_for(ceil_div(z.count, VECTOR), THREADS);
    if (flat)
        return kernel_launch(combine_flat, blocks, THREADS, stream, multiply, x, y, z);
    return kernel_launch(combine_spread, blocks, THREADS, stream, multiply, *spread, x, y, z);
}

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

cudaError_t kernel_conjugate(const void *x, void *y, uint64_t count, cudaStream_t stream)
{
    return kernel_launch(conjugate, blocks_for(count, THREADS), THREADS, stream,
                         static_cast<const float2 *>(x), static_cast<float2 *>(y), count);
}
