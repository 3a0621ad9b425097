/* kernel_sort.cu - a list in rising order, and where each of it was: a merge sort. A block sorts a
 * tile by counting, for each of its elements, those that come before it; then runs are merged two
 * by two, each element finding its place by bisection of the other run. Equal numbers keep their
 * order, so the permutation is one and the same every time. */
#include "runtime/cuda/kernel_walk.cuh"

enum { THREADS = 256, TILE = 256 };

struct item {
    float number;
    uint32_t at;
};

static_assert(2 * sizeof(struct item) == KERNEL_SORT_BYTES, "two lists");

/* A NaN is behind every number. */
static __device__ __forceinline__ bool goes_before(const struct item &x, const struct item &y)
{
    const bool no_x = x.number != x.number, no_y = y.number != y.number;
    if (no_x != no_y)
        return no_y;
    return no_x || x.number == y.number ? x.at < y.at : x.number < y.number;
}

static __global__ void __launch_bounds__(THREADS, 4)
    sort_tiles(const __grid_constant__ struct kernel_walk walk, struct item *to)
{
    __shared__ struct item tile[TILE];
    const struct kernel_side &x = walk.side[2];
    for (uint64_t first = blockIdx.x * (uint64_t)TILE; first < walk.count;
         first += gridDim.x * (uint64_t)TILE) {
        const uint64_t left = walk.count - first;
        const uint32_t n = left < TILE ? (uint32_t)left : (uint32_t)TILE;
        const uint64_t i = first + threadIdx.x;
        struct item own = {0.0F, (uint32_t)i};
        if (threadIdx.x < n)
            own.number = load_number(x.data, x.dtype, find_in_walk<3>(walk, i).of[2]);
        tile[threadIdx.x] = own;
        __syncthreads();
        uint32_t before = 0;
        for (uint32_t k = 0; k < n; k++)
            before += goes_before(tile[k], own) ? 1 : 0;
        if (threadIdx.x < n)
            to[first + before] = own;
        __syncthreads();
    }
}

/* How many of a run go before x. */
static __device__ __forceinline__ uint64_t count_before(const struct item *run, uint64_t n,
                                                        const struct item &x)
{
    uint64_t low = 0, high = n;
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        if (goes_before(run[middle], x))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Runs of `width`, a power of two, become runs of twice that. */
static __global__ void __launch_bounds__(THREADS, 4)
    merge_runs(const struct item *from, struct item *to, uint64_t count, uint64_t width)
{
    const uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < count; i += step) {
        const uint64_t place = i & (width - 1), own = i - place;
        const uint64_t other = own ^ width, pair = own < other ? own : other;
        const uint64_t left = other < count ? count - other : 0;
        to[pair + place + count_before(from + other, left < width ? left : width, from[i])] =
            from[i];
    }
}

static __global__ void __launch_bounds__(THREADS, 4)
    store_items(const __grid_constant__ struct kernel_walk walk, const struct item *items)
{
    const uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < walk.count; i += step) {
        const walk_places<2> at = find_in_walk<2>(walk, i);
        store_number(walk.side[0].data, walk.side[0].dtype, at.of[0], items[i].number);
        store_id(walk.side[1], at.of[1], items[i].at);
    }
}

cudaError_t kernel_sort(const struct kernel_walk *walk, struct kernel_scratch scratch,
                        cudaStream_t stream)
{
    if (scratch.bytes / KERNEL_SORT_BYTES < walk->count)
        return cudaErrorMemoryAllocation;
    struct item *from = static_cast<struct item *>(scratch.data), *to = from + walk->count;
    const unsigned blocks = blocks_for(walk->count, THREADS);
    cudaError_t rc = kernel_launch(sort_tiles, blocks, THREADS, stream, *walk, from);
    for (uint64_t width = TILE; width < walk->count && rc == cudaSuccess; width *= 2) {
        const struct item *sorted = from;
        rc = kernel_launch(merge_runs, blocks, THREADS, stream, sorted, to, walk->count, width);
        from = to;
        to = const_cast<struct item *>(sorted);
    }
    const struct item *all = from;
    return rc == cudaSuccess ? kernel_launch(store_items, blocks, THREADS, stream, *walk, all) : rc;
}
