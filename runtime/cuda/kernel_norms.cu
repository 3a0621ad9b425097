/* kernel_norms.cu - 2-norms of many tensors, and the coefficient that clips by them.
 *
 *     tensor     [  chunk  |  chunk  |  chunk ]        a block each: sum of squares to scratch
 *     scratch        s0        s1        s2            then a block a tensor: sqrt(s0 + s1 + s2)
 *
 * Sums are double, so that the square of no fp32 number overflows. */
#include "runtime/cuda/kernel_table.cuh"

enum { THREADS = 256, CHUNK = 65536 };

static __global__ void __launch_bounds__(THREADS)
    sum_squares(const __grid_constant__ struct table<struct kernel_tensor> tensors, double *sums)
{
    __shared__ double room[THREADS / LANES];
    const uint32_t which = table_find(tensors);
    const struct kernel_tensor &x = tensors.entry[which];
    const uint64_t begin = (uint64_t)(blockIdx.x - tensors.first[which]) * CHUNK;
    const uint64_t end = begin + CHUNK < x.count ? begin + CHUNK : x.count;
    double sum = 0;
    for (uint64_t i = begin + threadIdx.x * VECTOR; i < end; i += THREADS * VECTOR) {
        float value[VECTOR];
        load_some(x, i, end, value);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            sum += (double)value[j] * (double)value[j];
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(THREADS)
    take_roots(const __grid_constant__ struct table<struct kernel_tensor> norms, const double *sums)
{
    __shared__ double room[THREADS / LANES];
    double sum = 0;
    for (uint32_t i = norms.first[blockIdx.x] + threadIdx.x; i < norms.first[blockIdx.x + 1];
         i += THREADS)
        sum += sums[i];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0)
        store_one(norms.entry[blockIdx.x], 0, (float)sqrt(sum));
}

static __global__ void clip(struct kernel_tensor norm, struct kernel_tensor y, float most)
{
    const float ratio = most / (load_one(norm, 0) + 1e-6F);
    store_one(y, 0, ratio > 1.0F ? 1.0F : ratio); /* a NaN stays */
}

static cudaError_t launch(struct table<struct kernel_tensor> *x,
                          struct table<struct kernel_tensor> *y, double *sums, cudaStream_t stream)
{
    cudaError_t rc = cudaSuccess;
    if (x->count == 0)
        return rc;
    if (x->first[x->count] > 0)
        rc = kernel_launch(sum_squares, x->first[x->count], THREADS, stream, *x, sums);
    if (rc == cudaSuccess)
        rc = kernel_launch(take_roots, y->count, THREADS, stream, *y, sums);
    x->count = y->count = 0;
    return rc;
}

cudaError_t kernel_norms(const struct kernel_tensor *x, const struct kernel_tensor *y,
                         uint32_t tensors, struct kernel_scratch scratch, cudaStream_t stream)
{
    struct table<struct kernel_tensor> from, to;
    double *sums = static_cast<double *>(scratch.data);
    const uint64_t room = scratch.bytes / sizeof(double);
    from.count = to.count = 0;
    for (uint32_t i = 0; i < tensors; i++) {
        const uint64_t chunks = ceil_div(x[i].count, CHUNK);
        const uint64_t used = from.count ? from.first[from.count] : 0;
        if (chunks > room)
            return cudaErrorMemoryAllocation;
        if (table_is_full(&from) || used + chunks > room) {
            const cudaError_t rc = launch(&from, &to, sums, stream);
            if (rc != cudaSuccess)
                return rc;
        }
        table_add(&from, x[i], chunks);
        table_add(&to, y[i], chunks);
    }
    return launch(&from, &to, sums, stream);
}

cudaError_t kernel_clip_coefficient(struct kernel_tensor norm, struct kernel_tensor y, float most,
                                    cudaStream_t stream)
{
    return kernel_launch(clip, 1, 1, stream, norm, y, most);
}
