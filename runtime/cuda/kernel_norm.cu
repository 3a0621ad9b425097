/* kernel_norm.cu - RMSNorm and LayerNorm over the last dim, and their gradients.
 *
 *     n = (x - mean) · rstd, y = n · weight + bias          RMSNorm: mean 0, no bias
 *     g = dy · weight;  dx = rstd · (g - avg(g) - n · avg(g · n))   RMSNorm: without avg(g)
 *     dweight = Σ dy · n, dbias = Σ dy over all tokens
 *
 * A block takes a row; what fits of it stays in registers, so that it is read from memory once. The
 * parameters' gradients are sums over rows: a second kernel sums a part of the rows for each
 * column, a third the parts, always in the same order. */
#include "runtime/cuda/kernel_formula.cuh"

enum {
    THREADS = 256,
    ROUND = THREADS * VECTOR, /* elements of a row that a block handles at once */
    KEPT = 4,                 /* rounds kept in registers: rows up to 8,192 */
    COLUMN_LANES = 32,        /* of the column sums: 8 columns each */
    ROW_LANES = 8,
    MOST_PARTS = 256,
    ROWS_A_PART = 64
};

/* ---- rows ---- */

struct row {
    const struct kernel_tensor *x;
    uint64_t begin, h;
    float kept[KEPT][VECTOR];
};

static __device__ __forceinline__ void open_row(struct row *row, const struct kernel_tensor &x,
                                                uint64_t i, uint64_t h)
{
    row->x = &x;
    row->begin = i * h;
    row->h = h;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const uint64_t at = (uint64_t)k * ROUND + threadIdx.x * VECTOR;
        for (int j = 0; j < VECTOR; j++)
            row->kept[k][j] = 0.0F;
        if (at < h)
            load_some(x, row->begin + at, row->begin + h, row->kept[k]);
    }
}

/* The row becomes x + y as `sum` has it, which is written: what does not fit is read from there,
 * each element by the thread that wrote it. */
static __device__ __forceinline__ void add_to_row(struct row *row, const struct kernel_tensor &y,
                                                  const struct kernel_tensor &sum)
{
    const uint64_t end = row->begin + row->h;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const uint64_t at = row->begin + (uint64_t)k * ROUND + threadIdx.x * VECTOR;
        float more[VECTOR];
        if (at >= end)
            continue;
        load_some(y, at, end, more);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            row->kept[k][j] = round_to(sum.dtype, row->kept[k][j] + more[j]);
        store_some(sum, at, end, row->kept[k]);
    }
    for (uint64_t at = row->begin + (uint64_t)KEPT * ROUND + threadIdx.x * VECTOR; at < end;
         at += ROUND) {
        float value[VECTOR], more[VECTOR];
        load_some(*row->x, at, end, value);
        load_some(y, at, end, more);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            value[j] += more[j];
        store_some(sum, at, end, value);
    }
    row->x = &sum;
}

/* Calls `visit(at, n, values)` for this thread's elements of the row: from `at`, n of them. */
template <typename F>
static __device__ __forceinline__ void each_group(const struct row &row, F visit)
{
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const uint64_t at = (uint64_t)k * ROUND + threadIdx.x * VECTOR;
        if (at < row.h)
            visit(at, row.h - at < VECTOR ? (int)(row.h - at) : (int)VECTOR, row.kept[k]);
    }
    for (uint64_t at = (uint64_t)KEPT * ROUND + threadIdx.x * VECTOR; at < row.h; at += ROUND) {
        float value[VECTOR];
        load_some(*row.x, row.begin + at, row.begin + row.h, value);
        visit(at, row.h - at < VECTOR ? (int)(row.h - at) : (int)VECTOR, value);
    }
}

/* `share`: 1 / h. Sums are double; what is made of them is fp32, as the result is. */
static __device__ __forceinline__ void statistics(const struct row &row, int centred, float eps,
                                                  double share, double *room, float *mean,
                                                  float *rstd)
{
    double average = 0, squares = 0;
    if (centred) {
        double sum = 0;
        each_group(row, [&](uint64_t, int n, const float *x) {
            for (int j = 0; j < VECTOR; j++)
                sum += j < n ? (double)x[j] : 0.0;
        });
        average = block_sum(sum, room) * share;
    }
    each_group(row, [&](uint64_t, int n, const float *x) {
        for (int j = 0; j < VECTOR; j++) {
            const double away = (double)x[j] - average;
            squares += j < n ? away * away : 0.0;
        }
    });
    *mean = (float)average;
    *rstd = rsqrtf((float)(block_sum(squares, room) * share) + eps);
}

/* Factors from `at` on: 1 where the norm has none. */
static __device__ __forceinline__ void load_weight(const struct kernel_norm_args &norm, uint64_t at,
                                                   float *weight)
{
    for (int j = 0; j < VECTOR; j++)
        weight[j] = 1.0F;
    if (norm.weight.data)
        load_some(norm.weight, at, norm.h, weight);
}

/* ADD: what is normed is x + addend, and goes to `sum`. */
template <bool ADD>
static __global__ void __launch_bounds__(THREADS)
    norm_rows(const __grid_constant__ struct kernel_norm_args norm,
              const __grid_constant__ struct kernel_tensor addend,
              const __grid_constant__ struct kernel_tensor sum,
              const __grid_constant__ struct kernel_tensor y, double share)
{
    __shared__ double room[THREADS / LANES];
    for (uint64_t i = blockIdx.x; i < norm.t; i += gridDim.x) {
        struct row row;
        float mean_x, rstd_x;
        open_row(&row, norm.x, i, norm.h);
        if (ADD)
            add_to_row(&row, addend, sum);
        statistics(row, norm.centred, norm.eps, share, room, &mean_x, &rstd_x);
        each_group(row, [&](uint64_t at, int, const float *x) {
            float weight[VECTOR], bias[VECTOR] = {0}, result[VECTOR];
            load_weight(norm, at, weight);
            if (norm.bias.data)
                load_some(norm.bias, at, norm.h, bias);
            for (int j = 0; j < VECTOR; j++)
                result[j] = (x[j] - mean_x) * rstd_x * weight[j] + bias[j];
            store_some(y, row.begin + at, row.begin + norm.h, result);
        });
        if (threadIdx.x == 0) {
            store_one(norm.rstd, i, rstd_x);
            if (norm.mean.data)
                store_one(norm.mean, i, mean_x);
        }
    }
}

/* Writes dx where asked for, and the row's mean and rstd to `saved` for the sums over columns. ADD:
 * what dx would be is added to z. */
template <bool ADD>
static __global__ void __launch_bounds__(THREADS)
    norm_rows_backward(const __grid_constant__ struct kernel_norm_args norm,
                       const __grid_constant__ struct kernel_tensor dy,
                       const __grid_constant__ struct kernel_tensor dx,
                       const __grid_constant__ struct kernel_tensor z, float2 *saved, double share)
{
    __shared__ double room[THREADS / LANES];
    for (uint64_t i = blockIdx.x; i < norm.t; i += gridDim.x) {
        struct row row;
        float mean_x = 0.0F, rstd_x = 0.0F;
        open_row(&row, norm.x, i, norm.h);
        if (norm.rstd.dtype == KERNEL_FP32) {
            rstd_x = load_one(norm.rstd, i);
            mean_x = norm.centred ? load_one(norm.mean, i) : 0.0F;
        } else { /* saved in 16 bits: too coarse to go back with */
            statistics(row, norm.centred, norm.eps, share, room, &mean_x, &rstd_x);
        }
        if (threadIdx.x == 0)
            saved[i] = make_float2(mean_x, rstd_x);
        if (!ADD && !dx.data)
            continue;
        double sum = 0, along = 0;
        each_group(row, [&](uint64_t at, int n, const float *x) {
            float weight[VECTOR], gradient[VECTOR];
            load_weight(norm, at, weight);
            load_some(dy, row.begin + at, row.begin + norm.h, gradient);
            for (int j = 0; j < VECTOR; j++) {
                const float g = gradient[j] * weight[j];
                sum += j < n ? (double)g : 0.0;
                along += j < n ? (double)(g * ((x[j] - mean_x) * rstd_x)) : 0.0;
            }
        });
        const float average = norm.centred ? (float)(block_sum(sum, room) * share) : 0.0F;
        const float slope = (float)(block_sum(along, room) * share);
        each_group(row, [&](uint64_t at, int, const float *x) {
            float weight[VECTOR], gradient[VECTOR];
            load_weight(norm, at, weight);
            load_some(dy, row.begin + at, row.begin + norm.h, gradient);
            for (int j = 0; j < VECTOR; j++) {
                const float g = gradient[j] * weight[j];
                gradient[j] = rstd_x * (g - average - (x[j] - mean_x) * rstd_x * slope);
            }
            if (!ADD || dx.data)
                store_some(dx, row.begin + at, row.begin + norm.h, gradient);
            if (!ADD)
                return;
            load_some(z, row.begin + at, row.begin + norm.h, weight);
            for (int j = 0; j < VECTOR; j++)
                weight[j] += round_to(dx.dtype, gradient[j]);
            store_some(z, row.begin + at, row.begin + norm.h, weight);
        });
    }
}

/* ---- columns ---- */

/* parts (gridDim.y, 2, h): sums of dy · n and of dy over this part's rows. */
static __global__ void __launch_bounds__(COLUMN_LANES *ROW_LANES)
    sum_parts(const __grid_constant__ struct kernel_tensor x,
              const __grid_constant__ struct kernel_tensor dy, const float2 *saved, uint64_t t,
              uint64_t h, uint64_t part_rows, float *parts)
{
    __shared__ float room[2][ROW_LANES][COLUMN_LANES * VECTOR];
    const uint64_t column = (blockIdx.x * (uint64_t)COLUMN_LANES + threadIdx.x) * VECTOR;
    const uint64_t first = blockIdx.y * part_rows;
    const uint64_t end = first + part_rows < t ? first + part_rows : t;
    float dweight[VECTOR] = {0}, dbias[VECTOR] = {0};
    for (uint64_t i = first + threadIdx.y; i < end && column < h; i += ROW_LANES) {
        float value[VECTOR], gradient[VECTOR];
        const float2 statistic = saved[i];
        load_some(x, i * h + column, (i + 1) * h, value);
        load_some(dy, i * h + column, (i + 1) * h, gradient);
#pragma unroll
        for (int j = 0; j < VECTOR; j++) {
            dweight[j] += gradient[j] * ((value[j] - statistic.x) * statistic.y);
            dbias[j] += gradient[j];
        }
    }
    for (int j = 0; j < VECTOR; j++) {
        room[0][threadIdx.y][threadIdx.x * VECTOR + j] = dweight[j];
        room[1][threadIdx.y][threadIdx.x * VECTOR + j] = dbias[j];
    }
    __syncthreads();
    if (threadIdx.y > 1) /* row 0 of threads adds dweight, row 1 dbias */
        return;
    for (int j = 0; j < VECTOR && column + j < h; j++) {
        float total = 0.0F;
        for (int row = 0; row < ROW_LANES; row++)
            total += room[threadIdx.y][row][threadIdx.x * VECTOR + j];
        parts[((uint64_t)blockIdx.y * 2 + threadIdx.y) * h + column + j] = total;
    }
}

static __global__ void add_parts(const float *parts, uint32_t count, uint64_t h,
                                 struct kernel_tensor dweight, struct kernel_tensor dbias)
{
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < h; i += step) {
        double weight = 0, bias = 0;
        for (uint32_t part = 0; part < count; part++) {
            weight += (double)parts[((uint64_t)part * 2 + 0) * h + i];
            bias += (double)parts[((uint64_t)part * 2 + 1) * h + i];
        }
        if (dweight.data)
            store_one(dweight, i, (float)weight);
        if (dbias.data)
            store_one(dbias, i, (float)bias);
    }
}

/* ---- launchers ---- */

cudaError_t kernel_norm(const struct kernel_norm_args *norm, struct kernel_tensor y,
                        cudaStream_t stream)
{
    const struct kernel_tensor none = {};
    if (norm->t == 0 || norm->h == 0)
        return cudaSuccess;
    return kernel_launch(norm_rows<false>, blocks_for(norm->t, 1), THREADS, stream, *norm, none,
                         none, y, 1.0 / (double)norm->h);
}

cudaError_t kernel_add_norm(const struct kernel_norm_args *norm, struct kernel_tensor addend,
                            struct kernel_tensor sum, struct kernel_tensor y, cudaStream_t stream)
{
    if (norm->t == 0 || norm->h == 0)
        return cudaSuccess;
    return kernel_launch(norm_rows<true>, blocks_for(norm->t, 1), THREADS, stream, *norm, addend,
                         sum, y, 1.0 / (double)norm->h);
}

/* z: what dx is added to; data NULL: nothing. */
static cudaError_t backward(const struct kernel_norm_args *norm, struct kernel_tensor dy,
                            struct kernel_tensor dx, struct kernel_tensor z,
                            struct kernel_tensor dweight, struct kernel_tensor dbias,
                            struct kernel_scratch scratch, cudaStream_t stream)
{
    const uint64_t saved_bytes = ceil_div(norm->t * sizeof(float2), 256) * 256;
    const uint64_t part_bytes = 2 * norm->h * sizeof(float);
    if (norm->h == 0)
        return cudaSuccess;
    if (saved_bytes + part_bytes > scratch.bytes)
        return cudaErrorMemoryAllocation;
    float2 *saved = static_cast<float2 *>(scratch.data);
    float *parts = reinterpret_cast<float *>(static_cast<char *>(scratch.data) + saved_bytes);
    cudaError_t rc = cudaSuccess;
    if (norm->t > 0)
        rc = kernel_launch(z.data ? norm_rows_backward<true> : norm_rows_backward<false>,
                           blocks_for(norm->t, 1), THREADS, stream, *norm, dy, dx, z, saved,
                           1.0 / (double)norm->h);
    if (rc != cudaSuccess || (!dweight.data && !dbias.data))
        return rc;
    uint64_t count = ceil_div(norm->t, ROWS_A_PART);
    const uint64_t room = (scratch.bytes - saved_bytes) / part_bytes;
    count = count < 1 ? 1 : count < MOST_PARTS ? count : (uint64_t)MOST_PARTS;
    count = count < room ? count : room;
    const dim3 blocks((unsigned)ceil_div(norm->h, COLUMN_LANES * VECTOR), (unsigned)count);
    rc = kernel_launch(sum_parts, blocks, dim3(COLUMN_LANES, ROW_LANES), stream, norm->x, dy, saved,
                       norm->t, norm->h, ceil_div(norm->t, count), parts);
    if (rc != cudaSuccess)
        return rc;
    return kernel_launch(add_parts, blocks_for(norm->h, THREADS), THREADS, stream, parts,
                         (uint32_t)count, norm->h, dweight, dbias);
}

cudaError_t kernel_norm_backward(const struct kernel_norm_args *norm, struct kernel_tensor dy,
                                 struct kernel_tensor dx, struct kernel_tensor dweight,
                                 struct kernel_tensor dbias, struct kernel_scratch scratch,
                                 cudaStream_t stream)
{
    const struct kernel_tensor none = {};
    return backward(norm, dy, dx, none, dweight, dbias, scratch, stream);
}

cudaError_t kernel_norm_backward_add(const struct kernel_norm_args *norm, struct kernel_tensor dy,
                                     struct kernel_tensor dx, struct kernel_tensor z,
                                     struct kernel_tensor dweight, struct kernel_scratch scratch,
                                     cudaStream_t stream)
{
    const struct kernel_tensor none = {};
    return backward(norm, dy, dx, z, dweight, none, scratch, stream);
}
