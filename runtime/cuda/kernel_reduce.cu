/* kernel_reduce.cu - sums, means, the largest, and whether all or any are true: over any dims of an
 * operand of any layout.
 *
 *     neighbours are terms of one result        threads go through its terms, and add up what each
 *                                               has found
 *     neighbours are terms of different ones    a thread takes a result; threads above each other
 *                                               share its terms
 *
 * So neighbouring threads read neighbouring memory in both. Terms are combined in double, in an
 * order that only the sizes decide. */
#include "runtime/cuda/kernel_walk.cuh"

enum {
    THREADS = 256,
    COLUMNS = 32, /* results of a block that takes several */
    ROWS = 8,     /* threads for each of them */
    FEW = 2048    /* terms that are a warp's */
};

template <enum kernel_reduction R>
static __device__ __forceinline__ double combine(double x, double y)
{
    if (R == KERNEL_LARGEST)
        return x > y || x != x ? x : y;
    if (R == KERNEL_SMALLEST)
        return x < y || x != x ? x : y;
    if (R == KERNEL_ALL)
        return x < y ? x : y;
    if (R == KERNEL_ANY)
        return x > y ? x : y;
    return x + y;
}

template <enum kernel_reduction R> static __device__ __forceinline__ double nothing()
{
    return R == KERNEL_LARGEST    ? -INFINITY
           : R == KERNEL_SMALLEST ? INFINITY
           : R == KERNEL_ALL      ? 1.0
                                  : 0.0;
}

template <enum kernel_reduction R> static __device__ __forceinline__ double seen_as(float x)
{
    return R == KERNEL_ALL || R == KERNEL_ANY ? (x != 0.0F ? 1.0 : 0.0) : (double)x;
}

template <enum kernel_reduction R>
static __device__ __forceinline__ float result_of(double total, uint64_t terms)
{
    return (float)(R == KERNEL_MEAN ? total / (double)terms : total);
}

/* Terms [i, i + 8) of the result whose first is at `base`, into one. */
template <enum kernel_reduction R>
static __device__ __forceinline__ double
eight_terms(const struct kernel_walk &terms, const struct kernel_side &x, uint64_t base, uint64_t i)
{
    const uint32_t count = group_size(terms, i);
    double total = nothing<R>();
    if (terms.whole) {
        float value[VECTOR];
        load_eight(x.data, x.dtype, terms.side[0].form, terms.side[0].step[KERNEL_DIMS - 1],
                   base + find_in_walk<1>(terms, i).of[0], count, value);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            if (j < (int)count)
                total = combine<R>(total, seen_as<R>(value[j]));
        return total;
    }
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        if (j < (int)count)
            total = combine<R>(total,
                               seen_as<R>(load_number(x.data, x.dtype,
                                                      base + find_in_walk<1>(terms, i + j).of[0])));
    return total;
}

/* PER threads a result: a warp, or the block. */
template <enum kernel_reduction R, int PER>
static __global__ void __launch_bounds__(THREADS, 4)
    reduce_rows(const __grid_constant__ struct kernel_walk kept,
                const __grid_constant__ struct kernel_walk terms)
{
    __shared__ double room[THREADS / LANES];
    const uint32_t thread = threadIdx.x % PER;
    for (uint64_t first = blockIdx.x * (uint64_t)(THREADS / PER); first < kept.count;
         first += gridDim.x * (uint64_t)(THREADS / PER)) {
        const uint64_t i = first + threadIdx.x / PER;
        double total = nothing<R>();
        walk_places<2> at = {};
        if (i < kept.count) {
            at = find_in_walk<2>(kept, i);
            for (uint64_t term = thread * (uint64_t)VECTOR; term < terms.count;
                 term += (uint64_t)PER * VECTOR)
                total = combine<R>(total, eight_terms<R>(terms, kept.side[1], at.of[1], term));
        }
        for (int step = LANES / 2; step > 0; step /= 2)
            total = combine<R>(total, __shfl_xor_sync(0xffffffffU, total, step));
        if (PER > LANES) {
            if (threadIdx.x % LANES == 0)
                room[threadIdx.x / LANES] = total;
            __syncthreads();
            total = room[0];
            for (int warp = 1; warp < PER / LANES; warp++)
                total = combine<R>(total, room[warp]);
            __syncthreads();
        }
        if (thread == 0 && i < kept.count)
            store_number(kept.side[0].data, kept.side[0].dtype, at.of[0],
                         result_of<R>(total, terms.count));
    }
}

template <enum kernel_reduction R>
static __global__ void __launch_bounds__(THREADS, 4)
    reduce_columns(const __grid_constant__ struct kernel_walk kept,
                   const __grid_constant__ struct kernel_walk terms)
{
    __shared__ double part[ROWS][COLUMNS];
    const uint32_t column = threadIdx.x % COLUMNS, row = threadIdx.x / COLUMNS;
    const struct kernel_side &x = kept.side[1];
    for (uint64_t first = blockIdx.x * (uint64_t)COLUMNS; first < kept.count;
         first += gridDim.x * (uint64_t)COLUMNS) {
        const uint64_t i = first + column;
        double total = nothing<R>();
        walk_places<2> at = {};
        if (i < kept.count) {
            at = find_in_walk<2>(kept, i);
            for (uint64_t term = row; term < terms.count; term += ROWS)
                total = combine<R>(
                    total, seen_as<R>(load_number(x.data, x.dtype,
                                                  at.of[1] + find_in_walk<1>(terms, term).of[0])));
        }
        part[row][column] = total;
        __syncthreads();
        if (row == 0 && i < kept.count) {
            for (int k = 1; k < ROWS; k++)
                total = combine<R>(total, part[k][column]);
            store_number(kept.side[0].data, kept.side[0].dtype, at.of[0],
                         result_of<R>(total, terms.count));
        }
        __syncthreads();
    }
}

template <enum kernel_reduction R>
static cudaError_t launch(const struct kernel_walk *kept, const struct kernel_walk *terms,
                          cudaStream_t stream)
{
    const int last = KERNEL_DIMS - 1;
    const bool columns = kept->side[1].step[last] == 1 && kept->dim[last] > 1;
    if (columns)
        return kernel_launch(reduce_columns<R>, blocks_for(kept->count, COLUMNS), THREADS, stream,
                             *kept, *terms);
    if (terms->count <= FEW)
        return kernel_launch(reduce_rows<R, LANES>, blocks_for(kept->count, THREADS / LANES),
                             THREADS, stream, *kept, *terms);
    return kernel_launch(reduce_rows<R, THREADS>, blocks_for(kept->count, 1), THREADS, stream,
                         *kept, *terms);
}

cudaError_t kernel_reduce(enum kernel_reduction what, const struct kernel_walk *kept,
                          const struct kernel_walk *terms, cudaStream_t stream)
{
    switch (what) {
    case KERNEL_SUM:
        return launch<KERNEL_SUM>(kept, terms, stream);
    case KERNEL_MEAN:
        return launch<KERNEL_MEAN>(kept, terms, stream);
    case KERNEL_LARGEST:
        return launch<KERNEL_LARGEST>(kept, terms, stream);
    case KERNEL_SMALLEST:
        return launch<KERNEL_SMALLEST>(kept, terms, stream);
    case KERNEL_ALL:
        return launch<KERNEL_ALL>(kept, terms, stream);
    default:
        return launch<KERNEL_ANY>(kept, terms, stream);
    }
}
