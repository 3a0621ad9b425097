/* kernel_broadcast.cu - z = x + y and z = x · y with repeated dims, complex numbers too.
 *
 * Operands of one shape go through eight elements at a time. With repeated dims, eight elements of
 * z that lie in one row of its last dim need one search for their place in x and y. */
#include "runtime/cuda/kernel_tensor.cuh"

enum { THREADS = 256 };

static __device__ __forceinline__ float combine(int multiply, float x, float y)
{
    return multiply ? x * y : x + y;
}

static __global__ void combine_flat(int multiply, struct kernel_tensor x, struct kernel_tensor y,
                                    struct kernel_tensor z)
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

/* Where element i of z is in the lists of x and y. */
static __device__ __forceinline__ void find_places(const struct kernel_spread &spread, uint64_t i,
                                                   uint64_t *x_at, uint64_t *y_at)
{
    *x_at = *y_at = 0;
    for (int dim = (int)spread.rank - 1; dim >= 0; dim--) {
        const uint64_t place = i % spread.dim[dim];
        i /= spread.dim[dim];
        *x_at += place * spread.x_step[dim];
        *y_at += place * spread.y_step[dim];
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
    for (int j = 0; j < VECTOR; j++)
        out[j] = value;
}

static __global__ void combine_spread(int multiply, struct kernel_spread spread,
                                      struct kernel_tensor x, struct kernel_tensor y,
                                      struct kernel_tensor z)
{
    const uint32_t inner = spread.rank ? spread.rank - 1 : 0;
    const bool whole = spread.rank && spread.dim[inner] % VECTOR == 0;
    FOR_GROUPS(i, z.count)
    {
        uint64_t x_at, y_at;
        float left[VECTOR], right[VECTOR];
        if (whole) {
            find_places(spread, i, &x_at, &y_at);
            load_spread(x, x_at, spread.x_step[inner], left);
            load_spread(y, y_at, spread.y_step[inner], right);
        } else {
            for (int j = 0; j < VECTOR; j++) {
                find_places(spread, i + j < z.count ? i + j : i, &x_at, &y_at);
                left[j] = load_one(x, x_at);
                right[j] = load_one(y, y_at);
            }
        }
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            left[j] = combine(multiply, left[j], right[j]);
        store_some(z, i, z.count, left);
    }
}

/* (a + bi)(c + di) */
static __global__ void multiply_complex(struct kernel_spread spread, const float2 *x,
                                        const float2 *y, float2 *z, uint64_t count)
{
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count; i += step) {
        uint64_t x_at, y_at;
        find_places(spread, i, &x_at, &y_at);
        const float2 left = x[x_at], right = y[y_at];
        z[i] =
            make_float2(left.x * right.x - left.y * right.y, left.x * right.y + left.y * right.x);
    }
}

static __global__ void conjugate(const float2 *x, float2 *y, uint64_t count)
{
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count; i += step)
        y[i] = make_float2(x[i].x, -x[i].y);
}

cudaError_t kernel_broadcast(int multiply, int flat, const struct kernel_spread *spread,
                             struct kernel_tensor x, struct kernel_tensor y, struct kernel_tensor z,
                             cudaStream_t stream)
{
    const unsigned blocks = blocks_for(ceil_div(z.count, VECTOR), THREADS);
    if (flat)
        return kernel_launch(combine_flat, blocks, THREADS, stream, multiply, x, y, z);
    return kernel_launch(combine_spread, blocks, THREADS, stream, multiply, *spread, x, y, z);
}

cudaError_t kernel_multiply_complex(const struct kernel_spread *spread, const void *x,
                                    const void *y, void *z, uint64_t count, cudaStream_t stream)
{
    return kernel_launch(multiply_complex, blocks_for(count, THREADS), THREADS, stream, *spread,
                         static_cast<const float2 *>(x), static_cast<const float2 *>(y),
                         static_cast<float2 *>(z), count);
}

cudaError_t kernel_conjugate(const void *x, void *y, uint64_t count, cudaStream_t stream)
{
    return kernel_launch(conjugate, blocks_for(count, THREADS), THREADS, stream,
                         static_cast<const float2 *>(x), static_cast<float2 *>(y), count);
}
