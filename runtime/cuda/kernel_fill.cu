/* kernel_fill.cu - constants: first, first + 1, ... and one value everywhere. */
#include "runtime/cuda/kernel_tensor.cuh"

enum { THREADS = 256 };

static __global__ void arange(struct kernel_index ids, uint32_t first)
{
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < ids.count; i += step) {
        if (ids.is_64)
            static_cast<int64_t *>(const_cast<void *>(ids.data))[i] = (int64_t)(first + i);
        else
            static_cast<int32_t *>(const_cast<void *>(ids.data))[i] = (int32_t)(first + i);
    }
}

static __global__ void fill(struct kernel_tensor y, float value)
{
    float all[VECTOR];
    for (int j = 0; j < VECTOR; j++)
        all[j] = value;
    FOR_GROUPS(i, y.count)
    store_some(y, i, y.count, all);
}

cudaError_t kernel_arange(struct kernel_index ids, uint32_t first, cudaStream_t stream)
{
    return kernel_launch(arange, blocks_for(ids.count, THREADS), THREADS, stream, ids, first);
}

cudaError_t kernel_fill(struct kernel_tensor y, float value, cudaStream_t stream)
{
    return kernel_launch(fill, blocks_for(ceil_div(y.count, VECTOR), THREADS), THREADS, stream, y,
                         value);
}
