/* kernel_index.cu - kernels that follow indices. An index that is out of range is a fault, and is
 * not followed. Every result has one writer, which adds in the order of the indices. */
#include "runtime/cuda/kernel_walk.cuh"

enum { THREADS = 256, COLUMNS = THREADS * VECTOR };

struct bounds {
    uint64_t step, bound;
    struct kernel_fault *fault;
    struct kernel_site site;
};

static __device__ __forceinline__ bool is_index(int64_t id, const struct bounds &bounds)
{
    if (id >= 0 && (uint64_t)id < bounds.bound)
        return true;
    raise_fault(bounds.fault, bounds.site, id, bounds.bound);
    return false;
}

/* ---- y = x at an index ---- */

/* Eight elements of a group have one index where it does not change along the innermost dim. */
static __global__ void __launch_bounds__(THREADS, 4)
    take(const __grid_constant__ struct kernel_walk walk,
         const __grid_constant__ struct bounds bounds)
{
    const struct kernel_side &x = walk.side[1], &ids = walk.side[2];
    const bool together = walk.whole && ids.form == KERNEL_ONE;
    FOR_GROUPS(i, walk.count)
    {
        const uint32_t count = group_size(walk, i);
        float value[VECTOR] = {0};
        if (together) {
            const walk_places<3> at = find_in_walk<3>(walk, i);
            const int64_t id = load_id(ids, at.of[2]);
            if (!is_index(id, bounds))
                continue;
            load_eight(x.data, x.dtype, x.form, x.step[KERNEL_DIMS - 1],
                       at.of[1] + (uint64_t)id * bounds.step, count, value);
            store_group<0>(walk, i, at, value);
            continue;
        }
#pragma unroll 1
        for (uint32_t j = 0; j < count; j++) {
            const walk_places<3> at = find_in_walk<3>(walk, i + j);
            const int64_t id = load_id(ids, at.of[2]);
            if (is_index(id, bounds))
                store_number(walk.side[0].data, walk.side[0].dtype, at.of[0],
                             load_number(x.data, x.dtype, at.of[1] + (uint64_t)id * bounds.step));
        }
    }
}

/* ---- x at an index = y ---- */

/* A thread a row: of two equal indices the last one counts. */
static __global__ void __launch_bounds__(THREADS, 4)
    put(const __grid_constant__ struct kernel_rows rows,
        const __grid_constant__ struct bounds bounds, float number)
{
    const struct kernel_side &z = rows.begin.side[0], &ids = rows.begin.side[1],
                             &y = rows.begin.side[2];
    const uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t row = blockIdx.x * (uint64_t)THREADS + threadIdx.x; row < rows.begin.count;
         row += step) {
        const walk_places<3> at = find_in_walk<3>(rows.begin, row);
        for (uint64_t i = 0; i < rows.length; i++) {
            const int64_t id = load_id(ids, at.of[1] + i * rows.step[1]);
            if (!is_index(id, bounds))
                continue;
            const float value =
                y.data ? load_number(y.data, y.dtype, at.of[2] + i * rows.step[2]) : number;
            store_number(z.data, z.dtype, at.of[0] + (uint64_t)id * bounds.step, value);
        }
    }
}

static __global__ void __launch_bounds__(THREADS, 4)
    invert(const __grid_constant__ struct kernel_walk ids,
           const __grid_constant__ struct kernel_side y,
           const __grid_constant__ struct bounds bounds)
{
    const uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < ids.count; i += step) {
        const int64_t id = load_id(ids.side[0], find_in_walk<1>(ids, i).of[0]);
        if (is_index(id, bounds))
            store_id(y, (uint64_t)id * bounds.step, (int64_t)i);
    }
}

/* ---- sums of rows ---- */

/* The indices [from, from + THREADS) that are `row`, in order; returns how many. The first block
 * looks at all of them: whether they are in range. */
static __device__ __forceinline__ unsigned find_equal(const struct kernel_walk &ids,
                                                      const struct bounds &bounds, uint64_t from,
                                                      uint64_t row, uint64_t *position,
                                                      unsigned *warp_count)
{
    const uint64_t j = from + threadIdx.x;
    const bool there = j < ids.count;
    const int64_t id = there ? load_id(ids.side[0], find_in_walk<1>(ids, j).of[0]) : (int64_t)-1;
    const bool equal = there && id == (int64_t)row;
    if (there && blockIdx.x == 0)
        is_index(id, bounds);
    const unsigned mask = __ballot_sync(0xffffffffU, equal);
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    if (lane == 0)
        warp_count[warp] = __popc(mask);
    __syncthreads();
    unsigned before = 0, all = 0;
    for (unsigned w = 0; w < THREADS / LANES; w++) {
        before += w < warp ? warp_count[w] : 0;
        all += warp_count[w];
    }
    if (equal)
        position[before + __popc(mask & ((1U << lane) - 1U))] = j;
    __syncthreads();
    return all;
}

/* A block a row of y: x's, and the parts of it. */
static __global__ void __launch_bounds__(THREADS, 4)
    add_rows(const __grid_constant__ struct kernel_scatter_sum sum,
             const __grid_constant__ struct bounds bounds)
{
    __shared__ uint64_t position[THREADS];
    __shared__ unsigned warp_count[THREADS / LANES];
    const struct kernel_walk &inner = sum.inner;
    for (uint64_t row = blockIdx.x; row < sum.rows; row += gridDim.x) {
        for (uint64_t base = 0; base < inner.count; base += COLUMNS) {
            const uint64_t i = base + threadIdx.x * VECTOR;
            const bool mine = i < inner.count;
            double total[VECTOR] = {0};
            walk_places<3> at = {};
            float value[VECTOR] = {0};
            if (mine && inner.whole)
                at = find_in_walk<3>(inner, i);
            if (mine && inner.side[1].data) {
                load_group<1>(inner, i, at, value, row * sum.step[1]);
#pragma unroll
                for (int j = 0; j < VECTOR; j++)
                    total[j] = (double)value[j];
            }
            for (uint64_t from = 0; from < sum.ids.count; from += THREADS) {
                const unsigned found = find_equal(sum.ids, bounds, from, row, position, warp_count);
                for (unsigned k = 0; k < found && row != sum.pads; k++) {
                    if (mine)
                        load_group<2>(inner, i, at, value, position[k] * sum.step[2]);
#pragma unroll
                    for (int j = 0; j < VECTOR; j++)
                        total[j] += mine ? (double)value[j] : 0.0;
                }
                __syncthreads(); /* `position` is written anew */
            }
#pragma unroll
            for (int j = 0; j < VECTOR; j++)
                value[j] = (float)total[j];
            if (mine)
                store_group<0>(inner, i, at, value, row * sum.step[0]);
        }
    }
}

/* A block a count. */
static __global__ void __launch_bounds__(THREADS, 4)
    count_each(const __grid_constant__ struct kernel_walk counts,
               const __grid_constant__ struct kernel_walk x)
{
    __shared__ double room[THREADS / LANES];
    for (uint64_t i = blockIdx.x; i < counts.count; i += gridDim.x) {
        const float low = (float)i, high = (float)(i + 1);
        double found = 0;
        for (uint64_t j = threadIdx.x; j < x.count; j += THREADS) {
            const float value =
                load_number(x.side[0].data, x.side[0].dtype, find_in_walk<1>(x, j).of[0]);
            found += value >= low && value < high ? 1.0 : 0.0;
        }
        found = block_sum(found, room);
        if (threadIdx.x == 0)
            store_number(counts.side[0].data, counts.side[0].dtype,
                         find_in_walk<1>(counts, i).of[0], (float)found);
    }
}

/* ---- launchers ---- */

cudaError_t kernel_take(const struct kernel_walk *walk, uint64_t step, uint64_t bound,
                        struct kernel_fault *fault, struct kernel_site site, cudaStream_t stream)
{
    const struct bounds bounds = {step, bound, fault, site};
    return kernel_launch(take, blocks_for(ceil_div(walk->count, VECTOR), THREADS), THREADS, stream,
                         *walk, bounds);
}

cudaError_t kernel_put(const struct kernel_rows *rows, uint64_t step, uint64_t bound, float number,
                       struct kernel_fault *fault, struct kernel_site site, cudaStream_t stream)
{
    const struct bounds bounds = {step, bound, fault, site};
    return kernel_launch(put, blocks_for(rows->begin.count, THREADS), THREADS, stream, *rows,
                         bounds, number);
}

cudaError_t kernel_invert_permutation(const struct kernel_walk *ids, struct kernel_side y,
                                      uint64_t bound, struct kernel_fault *fault,
                                      struct kernel_site site, cudaStream_t stream)
{
    const struct bounds bounds = {y.step[KERNEL_DIMS - 1], bound, fault, site};
    return kernel_launch(invert, blocks_for(ids->count, THREADS), THREADS, stream, *ids, y, bounds);
}

cudaError_t kernel_add_rows(const struct kernel_scatter_sum *sum, struct kernel_fault *fault,
                            struct kernel_site site, cudaStream_t stream)
{
    const struct bounds bounds = {0, sum->rows, fault, site};
    return kernel_launch(add_rows, blocks_for(sum->rows, 1), THREADS, stream, *sum, bounds);
}

cudaError_t kernel_histogram(const struct kernel_walk *counts, const struct kernel_walk *x,
                             cudaStream_t stream)
{
    return kernel_launch(count_each, blocks_for(counts->count, 1), THREADS, stream, *counts, *x);
}
