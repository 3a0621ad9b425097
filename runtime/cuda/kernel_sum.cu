/* kernel_sum.cu - sums of x over some of its dims.
 *
 *     x (outer, terms, inner) -> y (outer, inner)      dims that are summed lie beside each other
 *
 *     inner > 1   a thread takes eight neighbours of y, and so many rows of x
 *     inner = 1   a warp takes an element of y, and so much of its row of x
 *
 * Both read 16 bytes at a time and add eight numbers in fp32, then those sums in double: a bias's
 * gradient has one term a token. Where there are several parts they go to scratch memory, and a
 * second kernel adds them in order. Dims that are summed with kept ones between them, and other
 * layouts, are kernel_reduce.cu's. */
#include "runtime/cuda/kernel_tensor.cuh"

enum {
    THREADS = 256,
    TERMS = 64,                         /* of a part, that a thread adds */
    ROW_TERMS = TERMS * LANES * VECTOR, /* of a part, that a warp adds */
    MOST_PARTS = 32768                  /* of a grid's y */
};

struct part_of_sum {
    uint64_t terms, inner, part_terms; /* the last part has the rest */
    uint64_t first_outer;              /* of this launch */
    uint32_t count;                    /* of this launch: threads' or warps' pieces of y */
    double *parts;                     /* (gridDim.y, outer · inner); NULL: y is written */
    uint64_t outputs;                  /* outer · inner */
};

/* The compiler sees that there is no pitch to divide by. */
static __device__ __forceinline__ struct kernel_tensor contiguous(const struct kernel_tensor &x)
{
    struct kernel_tensor same = x;
    same.pitch = 0;
    return same;
}

/* ---- inner > 1 ---- */

/* Adds eight rows' columns from `column` on; rows from `end` on are not there. */
static __device__ __forceinline__ void add_eight(const struct part_of_sum &sum,
                                                 const struct kernel_tensor &x, uint64_t outer,
                                                 uint64_t term, uint64_t end, uint64_t column,
                                                 double total[VECTOR])
{
    float some[VECTOR] = {0};
#pragma unroll
    for (int k = 0; k < VECTOR; k++) {
        const uint64_t row = (outer * sum.terms + term + k) * sum.inner;
        float value[VECTOR];
        load_some(x, row + column, term + k < end ? row + sum.inner : 0, value);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            some[j] += value[j];
    }
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        total[j] += (double)some[j];
}

static __global__ void __launch_bounds__(THREADS)
    sum_columns(const __grid_constant__ struct part_of_sum sum,
                const __grid_constant__ struct kernel_tensor from,
                const __grid_constant__ struct kernel_tensor to)
{
    const struct kernel_tensor x = contiguous(from), y = contiguous(to);
    const uint32_t groups = (uint32_t)((sum.inner + VECTOR - 1) / VECTOR);
    const uint64_t first = blockIdx.y * sum.part_terms;
    const uint64_t end = first + sum.part_terms < sum.terms ? first + sum.part_terms : sum.terms;
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < sum.count; i += gridDim.x * THREADS) {
        const uint64_t outer = sum.first_outer + i / groups;
        const uint64_t column = (uint64_t)(i % groups) * VECTOR, row = outer * sum.inner;
        double total[VECTOR] = {0};
        for (uint64_t term = first; term < end; term += VECTOR)
            add_eight(sum, x, outer, term, end, column, total);
        if (sum.parts) {
#pragma unroll
            for (int j = 0; j < VECTOR; j++)
                if (column + j < sum.inner)
                    sum.parts[blockIdx.y * sum.outputs + row + column + j] = total[j];
            continue;
        }
        float result[VECTOR];
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            result[j] = (float)total[j];
        store_some(y, row + column, row + sum.inner, result);
    }
}

/* ---- inner = 1 ---- */

static __global__ void __launch_bounds__(THREADS, 4)
    sum_rows(const __grid_constant__ struct part_of_sum sum,
             const __grid_constant__ struct kernel_tensor from,
             const __grid_constant__ struct kernel_tensor to)
{
    const struct kernel_tensor x = contiguous(from), y = contiguous(to);
    const uint32_t warps = THREADS / LANES, lane = threadIdx.x % LANES;
    const uint64_t first = blockIdx.y * sum.part_terms;
    const uint64_t end = first + sum.part_terms < sum.terms ? first + sum.part_terms : sum.terms;
    for (uint32_t i = blockIdx.x * warps + threadIdx.x / LANES; i < sum.count;
         i += gridDim.x * warps) {
        const uint64_t outer = sum.first_outer + i, row = outer * sum.terms;
        double total = 0;
#pragma unroll 4
        for (uint64_t at = first + lane * VECTOR; at < end; at += LANES * VECTOR) {
            float v[VECTOR];
            load_some(x, row + at, row + end, v);
            total += (double)(((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7])));
        }
        total = warp_sum(total);
        if (lane == 0 && sum.parts)
            sum.parts[blockIdx.y * sum.outputs + outer] = total;
        else if (lane == 0)
            store_one(y, outer, (float)total);
    }
}

/* ---- parts ---- */

static __global__ void __launch_bounds__(THREADS)
    add_parts(const double *parts, uint32_t count, const __grid_constant__ struct kernel_tensor to)
{
    const struct kernel_tensor y = contiguous(to);
    const uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < y.count; i += step) {
        double total = 0;
        for (uint32_t part = 0; part < count; part++)
            total += parts[part * y.count + i];
        store_one(y, i, (float)total);
    }
}

/* How many parts: as many as there are terms for, and room. */
static uint64_t count_parts(uint64_t terms, uint64_t inner, uint64_t outputs, uint64_t bytes)
{
    const uint64_t room = bytes / (outputs * sizeof(double)), most = MOST_PARTS;
    uint64_t parts = ceil_div(terms, inner > 1 ? TERMS : ROW_TERMS);
    parts = parts < room ? parts : room;
    parts = parts < most ? parts : most;
    return parts < 1 ? 1 : parts;
}

static cudaError_t launch_part(const struct part_of_sum *sum, unsigned parts,
                               const struct kernel_tensor &x, const struct kernel_tensor &y,
                               cudaStream_t stream)
{
    if (sum->inner > 1)
        return kernel_launch(sum_columns, dim3(blocks_for(sum->count, THREADS), parts), THREADS,
                             stream, *sum, x, y);
    return kernel_launch(sum_rows, dim3(blocks_for(sum->count, THREADS / LANES), parts), THREADS,
                         stream, *sum, x, y);
}

cudaError_t kernel_sum(uint64_t outer, uint64_t terms, uint64_t inner, struct kernel_tensor x,
                       struct kernel_tensor y, struct kernel_scratch scratch, cudaStream_t stream)
{
    const uint64_t outputs = outer * inner, groups = ceil_div(inner, VECTOR);
    if (outputs == 0)
        return cudaSuccess;
    const uint64_t parts = count_parts(terms, inner, outputs, scratch.bytes);
    struct part_of_sum sum = {};
    sum.terms = terms;
    sum.inner = inner;
    /* whole groups of a row, so that 16-byte accesses stay aligned */
    sum.part_terms = ceil_div(ceil_div(terms, parts), VECTOR) * VECTOR;
    sum.outputs = outputs;
    sum.parts = parts > 1 ? static_cast<double *>(scratch.data) : NULL;
    /* Pieces of a launch are counted in 32 bits, whose division is short. */
    const uint64_t limit = (uint64_t)1 << 30, most = groups < limit ? limit / groups : 1;
    for (uint64_t first = 0; first < outer; first += most) {
        sum.first_outer = first;
        sum.count = (uint32_t)((outer - first < most ? outer - first : most) * groups);
        const cudaError_t rc = launch_part(&sum, (unsigned)parts, x, y, stream);
        if (rc != cudaSuccess)
            return rc;
    }
    if (parts == 1)
        return cudaSuccess;
    return kernel_launch(add_parts, blocks_for(outputs, THREADS), THREADS, stream, sum.parts,
                         (uint32_t)parts, y);
}
