/* kernel_rows.cu - kernels of whole rows of the last dim: softmax and its gradient, sums that go
 * on, triangles, and the largest of a row. A warp takes a row that is short, a block one that is
 * long; rows begin where a walk says, and their elements may lie apart. */
#include "runtime/cuda/kernel_walk.cuh"

enum { THREADS = 256, SHORT = 1024 /* elements of a row that is a warp's */ };

/* A row of one side, from its first element on. */
struct row {
    const struct kernel_side *side;
    uint64_t at, step;
    bool wide;
};

static __device__ __forceinline__ struct row row_of(const struct kernel_rows &rows, int side,
                                                    uint64_t at)
{
    /* eight from any multiple of eight on: where the row itself begins at one */
    const bool wide = rows.begin.side[side].form == KERNEL_WIDE && at % VECTOR == 0;
    return {&rows.begin.side[side], at, rows.step[side], wide};
}

static __device__ __forceinline__ uint32_t rest_of(uint64_t length, uint64_t i)
{
    return length - i < VECTOR ? (uint32_t)(length - i) : (uint32_t)VECTOR;
}

static __device__ __forceinline__ void load_part(const struct row &x, uint64_t i, uint64_t length,
                                                 float out[VECTOR])
{
    load_eight(x.side->data, x.side->dtype, x.wide ? KERNEL_WIDE : KERNEL_APART, x.step,
               x.at + i * x.step, rest_of(length, i), out);
}

static __device__ __forceinline__ void store_part(const struct row &y, uint64_t i, uint64_t length,
                                                  const float in[VECTOR])
{
    store_eight(y.side->data, y.side->dtype, y.wide ? KERNEL_WIDE : KERNEL_APART, y.step,
                y.at + i * y.step, rest_of(length, i), in);
}

/* Over the warp or the block that has the row. */
template <int PER, typename T> static __device__ __forceinline__ T row_sum(T x, T *room)
{
    return PER > LANES ? block_sum(x, room) : warp_sum(x);
}

template <int PER> static __device__ __forceinline__ float row_max(float x, float *room)
{
    return PER > LANES ? block_max(x, room) : warp_max(x);
}

/* A loop over the rows: a block takes THREADS / PER at a time. Threads of the last ones that have
 * no row take the last once more, as all come to the barriers; they do not store. */
#define FOR_ROWS(first, count)                                                                     \
    for (uint64_t first = blockIdx.x * (uint64_t)(THREADS / PER); first < (count);                 \
         first += gridDim.x * (uint64_t)(THREADS / PER))

static __device__ __forceinline__ uint64_t at_most(uint64_t x, uint64_t most)
{
    return x < most ? x : most;
}

/* exp(x - highest), where -inf - -inf is nothing at all. */
static __device__ __forceinline__ float exp_below(float x, float highest)
{
    return x == -INFINITY && highest == -INFINITY ? 0.0F : expf(x - highest);
}

/* ---- softmax ---- */

template <int PER>
static __global__ void __launch_bounds__(THREADS, 4)
    soften(const __grid_constant__ struct kernel_rows rows, int safe)
{
    __shared__ float float_room[THREADS / LANES];
    __shared__ double double_room[THREADS / LANES];
    const uint64_t n = rows.length, step = (uint64_t)PER * VECTOR;
    FOR_ROWS(first, rows.begin.count)
    {
        const uint64_t wanted = first + threadIdx.x / PER;
        const bool mine = wanted < rows.begin.count;
        const walk_places<4> at =
            find_in_walk<4>(rows.begin, at_most(wanted, rows.begin.count - 1));
        const struct row y = row_of(rows, 0, at.of[0]), x = row_of(rows, 1, at.of[1]);
        const struct row masked = row_of(rows, 2, at.of[2]);
        const uint64_t begin = threadIdx.x % PER * (uint64_t)VECTOR;
        float highest = -INFINITY, sum = 0.0F, value[VECTOR];
        for (uint64_t i = begin; i < n; i += step) {
            load_part(x, i, n, value);
            const uint32_t count = rest_of(n, i);
            float most = highest;
#pragma unroll
            for (int j = 0; j < VECTOR; j++)
                most = j < (int)count ? larger(value[j], most) : most;
            sum *= exp_below(highest, most);
#pragma unroll
            for (int j = 0; j < VECTOR; j++)
                sum += j < (int)count ? exp_below(value[j], most) : 0.0F;
            highest = most;
        }
        const float most = row_max<PER>(highest, float_room);
        const double part = (double)sum * (double)exp_below(highest, most);
        const double total = row_sum<PER>(part, double_room);
        const bool some = most != -INFINITY; /* without any, total is 0, and 0 / 0 no number */
        for (uint64_t i = begin; mine && i < n; i += step) {
            float truth[VECTOR];
            load_part(x, i, n, value);
#pragma unroll
            for (int j = 0; j < VECTOR; j++) {
                truth[j] = value[j] == -INFINITY ? 1.0F : 0.0F;
                value[j] =
                    safe && !some ? 0.0F : (float)((double)exp_below(value[j], most) / total);
            }
            store_part(y, i, n, value);
            if (masked.side->data)
                store_part(masked, i, n, truth);
        }
        if (mine && begin == 0 && rows.begin.side[3].data)
            store_number(rows.begin.side[3].data, rows.begin.side[3].dtype, at.of[3],
                         some ? 0.0F : 1.0F);
    }
}

template <int PER>
static __global__ void __launch_bounds__(THREADS, 4)
    soften_backward(const __grid_constant__ struct kernel_rows rows)
{
    __shared__ double room[THREADS / LANES];
    const uint64_t n = rows.length, step = (uint64_t)PER * VECTOR;
    FOR_ROWS(first, rows.begin.count)
    {
        const uint64_t wanted = first + threadIdx.x / PER;
        const bool mine = wanted < rows.begin.count;
        const walk_places<3> at =
            find_in_walk<3>(rows.begin, at_most(wanted, rows.begin.count - 1));
        const struct row dx = row_of(rows, 0, at.of[0]), dy = row_of(rows, 1, at.of[1]),
                         y = row_of(rows, 2, at.of[2]);
        const uint64_t begin = threadIdx.x % PER * (uint64_t)VECTOR;
        float gradient[VECTOR], value[VECTOR];
        double sum = 0;
        for (uint64_t i = begin; i < n; i += step) {
            load_part(dy, i, n, gradient);
            load_part(y, i, n, value);
#pragma unroll
            for (int j = 0; j < VECTOR; j++)
                sum += (double)gradient[j] * (double)value[j];
        }
        const float total = (float)row_sum<PER>(sum, room);
        for (uint64_t i = begin; mine && i < n; i += step) {
            load_part(dy, i, n, gradient);
            load_part(y, i, n, value);
#pragma unroll
            for (int j = 0; j < VECTOR; j++)
                value[j] *= gradient[j] - total;
            store_part(dx, i, n, value);
        }
    }
}

/* ---- a warp a row ---- */

#define FOR_WARP_ROWS(row, count)                                                                  \
    for (uint64_t row = blockIdx.x * (uint64_t)(THREADS / LANES) + threadIdx.x / LANES;            \
         row < (count); row += gridDim.x * (uint64_t)(THREADS / LANES))

/* Lane by lane: each has the sum of those before it, and its own. */
static __global__ void __launch_bounds__(THREADS, 4)
    sum_on(const __grid_constant__ struct kernel_rows rows)
{
    const uint32_t lane = threadIdx.x % LANES;
    FOR_WARP_ROWS(row, rows.begin.count)
    {
        const walk_places<2> at = find_in_walk<2>(rows.begin, row);
        const struct kernel_side &y = rows.begin.side[0], &x = rows.begin.side[1];
        double before = 0;
        for (uint64_t first = 0; first < rows.length; first += LANES) {
            const uint64_t i = first + lane;
            double sum = i < rows.length
                             ? (double)load_number(x.data, x.dtype, at.of[1] + i * rows.step[1])
                             : 0.0;
#pragma unroll
            for (int step = 1; step < LANES; step *= 2) {
                const double below = __shfl_up_sync(0xffffffffU, sum, step);
                sum += (int)lane >= step ? below : 0.0;
            }
            sum += before;
            before = __shfl_sync(0xffffffffU, sum, LANES - 1);
            if (i < rows.length)
                store_number(y.data, y.dtype, at.of[0] + i * rows.step[0], (float)sum);
        }
    }
}

/* The larger number, of equal ones the first; a NaN is larger than any. */
static __device__ __forceinline__ bool goes_before(float x, uint32_t at_x, float y, uint32_t at_y)
{
    const bool no_x = x != x, no_y = y != y;
    if (no_x != no_y)
        return no_x;
    return no_x || x == y ? at_x < at_y : x > y;
}

/* Each round finds the first of those behind the last one that was found. */
static __global__ void __launch_bounds__(THREADS, 4)
    choose_largest(const __grid_constant__ struct kernel_rows rows, uint32_t most)
{
    const uint32_t lane = threadIdx.x % LANES, n = (uint32_t)rows.length;
    const struct kernel_side &y = rows.begin.side[0], &places = rows.begin.side[1],
                             &x = rows.begin.side[2];
    FOR_WARP_ROWS(row, rows.begin.count)
    {
        const walk_places<3> at = find_in_walk<3>(rows.begin, row);
        float last = 0.0F;
        uint32_t last_at = 0;
        for (uint32_t k = 0; k < most; k++) {
            float best = 0.0F;
            uint32_t best_at = n; /* none */
            for (uint32_t i = lane; i < n; i += LANES) {
                const float value = load_number(x.data, x.dtype, at.of[2] + i * rows.step[2]);
                if (k > 0 && !goes_before(last, last_at, value, i))
                    continue;
                if (best_at == n || goes_before(value, i, best, best_at)) {
                    best = value;
                    best_at = i;
                }
            }
#pragma unroll
            for (int step = LANES / 2; step > 0; step /= 2) {
                const float other = __shfl_xor_sync(0xffffffffU, best, step);
                const uint32_t other_at = __shfl_xor_sync(0xffffffffU, best_at, step);
                if (other_at < n && (best_at == n || goes_before(other, other_at, best, best_at))) {
                    best = other;
                    best_at = other_at;
                }
            }
            if (lane == 0) {
                store_number(y.data, y.dtype, at.of[0] + k * rows.step[0], best);
                store_id(places, at.of[1] + k * rows.step[1], best_at);
            }
            last = best;
            last_at = best_at;
        }
    }
}

/* Rows of matrices (length, length). */
static __global__ void __launch_bounds__(THREADS, 2)
    keep_triangle(const __grid_constant__ struct kernel_rows rows)
{
    const uint32_t lane = threadIdx.x % LANES;
    const struct kernel_side &y = rows.begin.side[0], &x = rows.begin.side[1];
    FOR_WARP_ROWS(row, rows.begin.count)
    {
        const walk_places<2> at = find_in_walk<2>(rows.begin, row);
        const uint32_t kept = (uint32_t)row % (uint32_t)rows.length; /* 64 bits divide in a call */
#pragma unroll 1
        for (uint64_t i = lane; i < rows.length; i += LANES)
            store_number(y.data, y.dtype, at.of[0] + i * rows.step[0],
                         i <= kept ? load_number(x.data, x.dtype, at.of[1] + i * rows.step[1])
                                   : 0.0F);
    }
}

/* ---- launchers ---- */

static unsigned warps_for(const struct kernel_rows *rows)
{
    return blocks_for(rows->begin.count, THREADS / LANES);
}

cudaError_t kernel_softmax(const struct kernel_rows *rows, int safe, cudaStream_t stream)
{
    if (rows->length <= SHORT)
        return kernel_launch(soften<LANES>, warps_for(rows), THREADS, stream, *rows, safe);
    return kernel_launch(soften<THREADS>, blocks_for(rows->begin.count, 1), THREADS, stream, *rows,
                         safe);
}

cudaError_t kernel_softmax_backward(const struct kernel_rows *rows, cudaStream_t stream)
{
    if (rows->length <= SHORT)
        return kernel_launch(soften_backward<LANES>, warps_for(rows), THREADS, stream, *rows);
    return kernel_launch(soften_backward<THREADS>, blocks_for(rows->begin.count, 1), THREADS,
                         stream, *rows);
}

cudaError_t kernel_cumulative_sum(const struct kernel_rows *rows, cudaStream_t stream)
{
    return kernel_launch(sum_on, warps_for(rows), THREADS, stream, *rows);
}

cudaError_t kernel_lower_triangle(const struct kernel_rows *rows, cudaStream_t stream)
{
    return kernel_launch(keep_triangle, warps_for(rows), THREADS, stream, *rows);
}

cudaError_t kernel_topk(const struct kernel_rows *rows, uint32_t most, cudaStream_t stream)
{
    return kernel_launch(choose_largest, warps_for(rows), THREADS, stream, *rows, most);
}
