/* kernel_sum.cu - sums of x over some of its dims.
 *
 *     threadIdx.x   one element of y each, neighbours beside each other
 *     threadIdx.y   every blockDim.y-th term of it; these sums are added in order at the end
 *
 * Sums are double: a bias's gradient sums one term a token. */
#include "runtime/cuda/kernel_tensor.cuh"

enum { COLUMNS = 32, MOST_ROWS = 32 };

static __device__ __forceinline__ uint64_t place_of(uint64_t i, uint32_t rank, const uint32_t *dim,
                                                    const uint64_t *step)
{
    uint64_t at = 0;
    for (int k = (int)rank - 1; k > 0; k--) {
        at += i % dim[k] * step[k];
        i /= dim[k];
    }
    return rank ? at + i * step[0] : 0;
}

static __global__ void __launch_bounds__(COLUMNS *MOST_ROWS)
    sum(const __grid_constant__ struct kernel_reduction r, struct kernel_tensor x,
        struct kernel_tensor y)
{
    __shared__ double part[MOST_ROWS][COLUMNS];
    for (uint64_t first = blockIdx.x * (uint64_t)COLUMNS; first < r.outputs;
         first += gridDim.x * (uint64_t)COLUMNS) {
        const uint64_t output = first + threadIdx.x;
        double total = 0;
        if (output < r.outputs) {
            const uint64_t base = place_of(output, r.kept, r.kept_dim, r.kept_step);
#pragma unroll 4
            for (uint64_t term = threadIdx.y; term < r.terms; term += blockDim.y)
                total += (double)load_one(
                    x, base + place_of(term, r.summed, r.summed_dim, r.summed_step));
        }
        part[threadIdx.y][threadIdx.x] = total;
        __syncthreads();
        if (threadIdx.y == 0 && output < r.outputs) {
            for (unsigned row = 1; row < blockDim.y; row++)
                total += part[row][threadIdx.x];
            store_one(y, output, (float)total);
        }
        __syncthreads();
    }
}

cudaError_t kernel_sum(const struct kernel_reduction *reduction, struct kernel_tensor x,
                       struct kernel_tensor y, cudaStream_t stream)
{
    unsigned rows = 1;
    while (rows < MOST_ROWS && rows < reduction->terms)
        rows *= 2;
    return kernel_launch(sum, blocks_for(reduction->outputs, COLUMNS), dim3(COLUMNS, rows), stream,
                         *reduction, x, y);
}
