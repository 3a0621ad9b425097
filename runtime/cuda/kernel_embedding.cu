/* kernel_embedding.cu - rows of a table by id, and the gradient of the table.
 *
 * Backward without sorting and without atomics: the block of position i leaves at once if its id
 * stands earlier, too; otherwise it is the one that sums the rows of all positions with that id, in
 * their order. Each block reads ids only, from the cache, and rows that it adds. */
#include "runtime/cuda/kernel_tensor.cuh"

enum { THREADS = 256, WIDE_THREADS = 512, SLABS = 2, SLAB = WIDE_THREADS * VECTOR };

static __device__ __forceinline__ bool is_id(int64_t id, uint64_t rows)
{
    return id >= 0 && (uint64_t)id < rows;
}

static __global__ void __launch_bounds__(THREADS)
    take_rows(struct kernel_index ids, struct kernel_tensor weight, uint64_t rows, uint64_t h,
              struct kernel_tensor y, struct kernel_fault *fault, struct kernel_site site)
{
    for (uint64_t i = blockIdx.x; i < ids.count; i += gridDim.x) {
        const int64_t id = load_index(ids, i);
        if (!is_id(id, rows)) {
            if (threadIdx.x == 0)
                raise_fault(fault, site, id, rows);
            continue;
        }
        for (uint64_t at = threadIdx.x * (uint64_t)VECTOR; at < h; at += blockDim.x * VECTOR) {
            float value[VECTOR];
            load_some(weight, (uint64_t)id * h + at, ((uint64_t)id + 1) * h, value);
            store_some(y, i * h + at, (i + 1) * h, value);
        }
    }
}

/* Whether `id` stands before position i; the same answer in every thread. */
static __device__ __forceinline__ bool stands_before(const struct kernel_index &ids, uint64_t i,
                                                     int64_t id)
{
    for (uint64_t from = 0; from < i; from += blockDim.x) {
        const uint64_t j = from + threadIdx.x;
        if (__syncthreads_or(j < i && load_index(ids, j) == id))
            return true;
    }
    return false;
}

/* The positions from `from` to from + blockDim.x that hold `id`, in order; returns how many. */
static __device__ __forceinline__ unsigned find_equal(const struct kernel_index &ids, uint64_t from,
                                                      int64_t id, uint64_t *position,
                                                      unsigned *warp_count)
{
    const uint64_t j = from + threadIdx.x;
    const bool equal = j < ids.count && load_index(ids, j) == id;
    const unsigned mask = __ballot_sync(0xffffffffU, equal);
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    if (lane == 0)
        warp_count[warp] = __popc(mask);
    __syncthreads();
    unsigned before = 0, all = 0;
    for (unsigned w = 0; w < blockDim.x / LANES; w++) {
        before += w < warp ? warp_count[w] : 0;
        all += warp_count[w];
    }
    if (equal)
        position[before + __popc(mask & ((1U << lane) - 1U))] = j;
    __syncthreads();
    return all;
}

static __global__ void __launch_bounds__(WIDE_THREADS, 1)
    sum_rows(const __grid_constant__ struct kernel_tensor dy,
             const __grid_constant__ struct kernel_index ids,
             const __grid_constant__ struct kernel_tensor dweight, uint64_t rows, uint64_t h,
             struct kernel_fault *fault, struct kernel_site site)
{
    __shared__ uint64_t position[WIDE_THREADS];
    __shared__ unsigned warp_count[WIDE_THREADS / LANES];
    const uint64_t i = blockIdx.x;
    const int64_t id = load_index(ids, i);
    if (!is_id(id, rows)) {
        if (threadIdx.x == 0)
            raise_fault(fault, site, id, rows);
        return;
    }
    if (stands_before(ids, i, id))
        return;
    for (uint64_t base = 0; base < h; base += SLABS * SLAB) {
        double total[SLABS][VECTOR] = {{0}};
        for (uint64_t from = i; from < ids.count; from += blockDim.x) {
            const unsigned found = find_equal(ids, from, id, position, warp_count);
            for (unsigned k = 0; k < found; k++) {
#pragma unroll
                for (int slab = 0; slab < SLABS; slab++) {
                    const uint64_t at = base + slab * SLAB + threadIdx.x * VECTOR;
                    float value[VECTOR] = {0};
                    if (at < h)
                        load_some(dy, position[k] * h + at, (position[k] + 1) * h, value);
#pragma unroll
                    for (int j = 0; j < VECTOR; j++)
                        total[slab][j] += (double)value[j];
                }
            }
            __syncthreads(); /* `position` is written anew */
        }
#pragma unroll
        for (int slab = 0; slab < SLABS; slab++) {
            const uint64_t at = base + slab * SLAB + threadIdx.x * VECTOR;
            float value[VECTOR];
            for (int j = 0; j < VECTOR; j++)
                value[j] = (float)total[slab][j];
            if (at < h)
                store_some(dweight, (uint64_t)id * h + at, ((uint64_t)id + 1) * h, value);
        }
    }
}

cudaError_t kernel_embedding(struct kernel_index ids, struct kernel_tensor weight, uint64_t rows,
                             uint64_t h, struct kernel_tensor y, struct kernel_fault *fault,
                             struct kernel_site site, cudaStream_t stream)
{
    return kernel_launch(take_rows, blocks_for(ids.count, 1), THREADS, stream, ids, weight, rows, h,
                         y, fault, site);
}

cudaError_t kernel_embedding_backward(struct kernel_tensor dy, struct kernel_index ids,
                                      struct kernel_tensor dweight, uint64_t rows, uint64_t h,
                                      struct kernel_fault *fault, struct kernel_site site,
                                      cudaStream_t stream)
{
    const cudaError_t rc = kernel_fill(dweight, 0.0F, stream);
    if (rc != cudaSuccess || ids.count == 0)
        return rc;
    return kernel_launch(sum_rows, (unsigned)ids.count, WIDE_THREADS, stream, dy, ids, dweight,
                         rows, h, fault, site);
}
