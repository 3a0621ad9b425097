/* kernel_fused.cu - chains of elementwise kernels as one pass (runtime/work/fused.h). What lies
 * between them is rounded to its dtype in registers: the bits are those of the chain. */
#include "runtime/cuda/kernel_formula.cuh"

enum { THREADS = 256, PAIRS = VECTOR / 2 };

/* ---- pairs of x, each times a complex number ---- */

/* Four angles that follow each other: of one row's pairs where `whole`. */
static __device__ __forceinline__ void load_angles(const struct kernel_spread &spread,
                                                   const float2 *angles, bool whole, uint64_t pair,
                                                   uint64_t pairs, float2 out[PAIRS])
{
    const uint64_t step = spread.y_step[KERNEL_DIMS - 1];
    const uint64_t at = find_places(spread, pair).y;
    if (whole && step == 1 && (uintptr_t)(angles + at) % sizeof(float4) == 0) {
        const float4 *from = reinterpret_cast<const float4 *>(angles + at);
        const float4 low = from[0], high = from[1];
        out[0] = make_float2(low.x, low.y), out[1] = make_float2(low.z, low.w);
        out[2] = make_float2(high.x, high.y), out[3] = make_float2(high.z, high.w);
        return;
    }
#pragma unroll
    for (int k = 0; k < PAIRS; k++) {
        const uint64_t there = pair + k < pairs ? pair + k : pair;
        out[k] = angles[whole ? at + k * step : find_places(spread, there).y];
    }
}

static __global__ void __launch_bounds__(THREADS)
    rotate(const __grid_constant__ struct kernel_spread spread,
           const __grid_constant__ struct kernel_tensor x, const float2 *angles, float sign,
           const __grid_constant__ struct kernel_tensor y)
{
    const bool whole = spread.dim[KERNEL_DIMS - 1] % PAIRS == 0;
    FOR_GROUPS(i, y.count)
    {
        float value[VECTOR];
        float2 angle[PAIRS];
        load_some(x, i, y.count, value);
        load_angles(spread, angles, whole, i / 2, y.count / 2, angle);
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            const float2 z = multiply(make_float2(value[2 * k], value[2 * k + 1]),
                                      make_float2(angle[k].x, sign * angle[k].y));
            value[2 * k] = z.x;
            value[2 * k + 1] = z.y;
        }
        store_some(y, i, y.count, value);
    }
}

/* ---- products ---- */

static __global__ void __launch_bounds__(THREADS)
    gate(const __grid_constant__ struct kernel_tensor x,
         const __grid_constant__ struct kernel_tensor u,
         const __grid_constant__ struct kernel_tensor silu,
         const __grid_constant__ struct kernel_tensor product)
{
    FOR_GROUPS(i, product.count)
    {
        float value[VECTOR], factor[VECTOR];
        load_some(x, i, product.count, value);
        load_some(u, i, product.count, factor);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            value[j] = silu_of(value[j]);
        if (silu.data)
            store_some(silu, i, product.count, value);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            value[j] = round_to(silu.dtype, value[j]) * factor[j];
        store_some(product, i, product.count, value);
    }
}

/* All is read before a result takes its place. */
static __global__ void __launch_bounds__(THREADS)
    products(const __grid_constant__ struct kernel_tensor z,
             const __grid_constant__ struct kernel_tensor x,
             const __grid_constant__ struct kernel_tensor y,
             const __grid_constant__ struct kernel_tensor xz,
             const __grid_constant__ struct kernel_tensor yz)
{
    FOR_GROUPS(i, z.count)
    {
        float factor[VECTOR], left[VECTOR], right[VECTOR];
        load_some(z, i, z.count, factor);
        load_some(x, i, z.count, left);
        load_some(y, i, z.count, right);
#pragma unroll
        for (int j = 0; j < VECTOR; j++) {
            left[j] *= factor[j];
            right[j] *= factor[j];
        }
        store_some(xz, i, z.count, left);
        store_some(yz, i, z.count, right);
    }
}

/* ---- launchers ---- */

static unsigned blocks_of(const struct kernel_tensor *y)
{
    return blocks_for(ceil_div(y->count, VECTOR), THREADS);
}

cudaError_t kernel_rotate(const struct kernel_spread *spread, struct kernel_tensor x,
                          const void *angles, int conjugate, struct kernel_tensor y,
                          cudaStream_t stream)
{
    return kernel_launch(rotate, blocks_of(&y), THREADS, stream, *spread, x,
                         static_cast<const float2 *>(angles), conjugate ? -1.0F : 1.0F, y);
}

cudaError_t kernel_gate(struct kernel_tensor x, struct kernel_tensor u, struct kernel_tensor silu,
                        struct kernel_tensor product, cudaStream_t stream)
{
    return kernel_launch(gate, blocks_of(&product), THREADS, stream, x, u, silu, product);
}

cudaError_t kernel_products(struct kernel_tensor z, struct kernel_tensor x, struct kernel_tensor y,
                            struct kernel_tensor xz, struct kernel_tensor yz, cudaStream_t stream)
{
    return kernel_launch(products, blocks_of(&z), THREADS, stream, z, x, y, xz, yz);
}
