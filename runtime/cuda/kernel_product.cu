/* kernel_product.cu - products of many matrices in one launch: batches, and groups of rows each
 * with a matrix of its own, whose ends only the device knows (a host that asked for them would
 * wait).
 *
 * A block takes a tile of z, (64, 64), and goes along k: 16-bit numbers by the tensor cores, whose
 * sums are fp32, fp32 by the others (TF32 is not used). Matrices may be turned: threads read along
 * the dim whose elements are neighbours. Each element has one writer and one order of terms. */
#include "runtime/cuda/kernel_tensor.cuh"

enum { THREADS = 128, M = 64, N = 64 };

/* d (16, 8) += a (16, 16) b (16, 8) by a warp. A lane holds of d rows g and g + 8, columns 2t and
 * 2t
 * + 1, for g = lane / 4 and t = lane % 4; of a the same rows, and k 2t, 2t + 1 and those 8 behind;
 * of b column g and the same k (PTX ISA, mma.m16n8k16). tests/emulate has its own. */
#ifndef MULTIPLY_FRAGMENTS
#define MULTIPLY_FRAGMENTS(type, d, a, b)                                                          \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                             \
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                    \
        : "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3])                                   \
        : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[0]), "r"((b)[1]))
#endif

/* ---- which tile ---- */

struct tile {
    uint64_t x, y, z; /* where the matrices begin, in elements */
    uint32_t m, n, k; /* of them */
    uint32_t row, column;
    bool there;
};

/* The end of group g, which comes before neither the one before it nor more than `most` rows. */
static __device__ __forceinline__ bool find_end(const struct kernel_product &p, uint32_t g,
                                                uint32_t begin, uint32_t most, uint32_t *end,
                                                struct kernel_fault *fault,
                                                const struct kernel_site &site)
{
    const int64_t found = load_index(p.ends, g);
    *end = (uint32_t)found;
    if (found >= (int64_t)begin && found <= (int64_t)most)
        return true;
    if (threadIdx.x == 0)
        raise_fault(fault, site, found, (uint64_t)most + 1);
    return false;
}

/* Tile `i` of rows, counted over the groups in turn: the rows behind them are a group without k. */
static __device__ __forceinline__ struct tile find_rows(const struct kernel_product &p, uint64_t i,
                                                        struct kernel_fault *fault,
                                                        const struct kernel_site &site)
{
    struct tile tile = {0, 0, 0, 0, p.n, p.k, 0, 0, false};
    uint32_t begin = 0, end = 0;
    for (uint32_t g = 0; g <= p.batches; g++, begin = end) {
        end = p.m;
        if (g < p.batches && !find_end(p, g, begin, p.m, &end, fault, site))
            return tile;
        const uint64_t tiles = (end - begin + M - 1) / M;
        if (i >= tiles) {
            i -= tiles;
            continue;
        }
        tile.x = begin * p.x.row;
        tile.y = g * p.y.batch;
        tile.z = begin * p.z.row;
        tile.m = end - begin;
        tile.k = g < p.batches ? p.k : 0;
        tile.row = (uint32_t)i * M;
        tile.there = true;
        return tile;
    }
    return tile;
}

/* Tile `i` of a batch, whose k rows are those of its group where these are cut. */
static __device__ __forceinline__ struct tile find_batch(const struct kernel_product &p, uint64_t i,
                                                         uint32_t row_tiles,
                                                         struct kernel_fault *fault,
                                                         const struct kernel_site &site)
{
    const uint32_t batch = (uint32_t)(i / row_tiles);
    struct tile tile = {batch * p.x.batch,
                        batch * p.y.batch,
                        batch * p.z.batch,
                        p.m,
                        p.n,
                        p.k,
                        (uint32_t)(i % row_tiles) * M,
                        0,
                        true};
    if (!p.cut_k)
        return tile;
    uint32_t begin = 0, end = 0;
    if (batch > 0)
        tile.there = find_end(p, batch - 1, 0, p.k, &begin, fault, site);
    tile.there = tile.there && find_end(p, batch, begin, p.k, &end, fault, site);
    tile.x = begin * p.x.column;
    tile.y = begin * p.y.row;
    tile.k = end - begin;
    return tile;
}

/* ---- tiles in shared memory ---- */

/* CHUNK neighbours at once, where they are neighbours and begin at a multiple of their bytes. */
template <typename T, int CHUNK>
static __device__ __forceinline__ void load_chunk(const T *from, uint64_t step, uint32_t count,
                                                  T out[CHUNK])
{
    static_assert(sizeof(T) * CHUNK == 16, "an access");
    if (step == 1 && count >= CHUNK && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
        union {
            uint4 all;
            T each[CHUNK];
        } bits;
        bits.all = *reinterpret_cast<const uint4 *>(from);
#pragma unroll
        for (int j = 0; j < CHUNK; j++)
            out[j] = bits.each[j];
        return;
    }
#pragma unroll
    for (int j = 0; j < CHUNK; j++)
        out[j] = j < (int)count ? from[j * step] : (T)0;
}

/* Rows [row, row + 64) and k [k, k + K) of a matrix of (rows, depth), zeros where there are none.
 * to[row · ROW + k · ONE]. */
template <typename T, int CHUNK, int K, int ROW, int ONE>
static __device__ __forceinline__ void load_tile(const T *from, uint64_t row_step, uint64_t k_step,
                                                 uint32_t row, uint32_t rows, uint32_t k,
                                                 uint32_t depth, T *to)
{
    const bool along_k = k_step == 1;
    const uint32_t chunks = (along_k ? K : M) / CHUNK;
#pragma unroll
    for (uint32_t c = threadIdx.x; c < M * K / CHUNK; c += THREADS) {
        const uint32_t inner = c % chunks * CHUNK, outer = c / chunks;
        const uint32_t r = along_k ? outer : inner, d = along_k ? inner : outer;
        const uint32_t left_r = row + r < rows ? rows - row - r : 0;
        const uint32_t left_d = k + d < depth ? depth - k - d : 0;
        const uint32_t count = left_r == 0 || left_d == 0 ? 0 : along_k ? left_d : left_r;
        T value[CHUNK];
        load_chunk<T, CHUNK>(from + (row + r) * row_step + (k + d) * k_step,
                             along_k ? k_step : row_step, count, value);
#pragma unroll
        for (int j = 0; j < CHUNK; j++)
            to[(along_k ? r : r + j) * ROW + (along_k ? d + j : d) * ONE] = value[j];
    }
}

/* ---- 16-bit numbers ---- */

enum {
    HALF_K = 32,
    HALF_PITCH = HALF_K + 8, /* so that the lanes of a fragment read different banks */
    WARP_M = 2,              /* fragments of a warp, (32, 32) of z */
    WARP_N = 4
};

static __device__ __forceinline__ uint32_t pair_at(const uint16_t *tile, uint32_t row, uint32_t k)
{
    return *reinterpret_cast<const uint32_t *>(tile + row * HALF_PITCH + k);
}

template <int BF16>
static __device__ __forceinline__ void multiply_halves(const uint16_t *x, const uint16_t *y,
                                                       float sum[WARP_M][WARP_N][4])
{
    const uint32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const uint32_t g = lane / 4, t = lane % 4 * 2, row = warp / 2 * 32, column = warp % 2 * 32;
#pragma unroll
    for (int k = 0; k < HALF_K; k += 16) {
        uint32_t b[WARP_N][2];
#pragma unroll
        for (int j = 0; j < WARP_N; j++) {
            b[j][0] = pair_at(y, column + 8 * j + g, k + t);
            b[j][1] = pair_at(y, column + 8 * j + g, k + t + 8);
        }
#pragma unroll
        for (int i = 0; i < WARP_M; i++) {
            uint32_t a[4];
            a[0] = pair_at(x, row + 16 * i + g, k + t);
            a[1] = pair_at(x, row + 16 * i + g + 8, k + t);
            a[2] = pair_at(x, row + 16 * i + g, k + t + 8);
            a[3] = pair_at(x, row + 16 * i + g + 8, k + t + 8);
#pragma unroll
            for (int j = 0; j < WARP_N; j++) {
                if (BF16)
                    MULTIPLY_FRAGMENTS("bf16", sum[i][j], a, b[j]);
                else
                    MULTIPLY_FRAGMENTS("f16", sum[i][j], a, b[j]);
            }
        }
    }
}

static __device__ __forceinline__ void store_z(const struct kernel_product &p,
                                               const struct tile &tile, uint32_t row,
                                               uint32_t column, float value)
{
    if (row < tile.m && column < tile.n)
        store_raw(const_cast<void *>(p.z.data), p.out_dtype,
                  tile.z + row * p.z.row + column * p.z.column, value);
}

template <int BF16>
static __device__ __forceinline__ void
product_of_halves(const struct kernel_product &p, const struct tile &tile, uint16_t *x, uint16_t *y)
{
    const uint16_t *from_x = static_cast<const uint16_t *>(p.x.data) + tile.x;
    const uint16_t *from_y = static_cast<const uint16_t *>(p.y.data) + tile.y;
    float sum[WARP_M][WARP_N][4] = {};
    for (uint32_t k = 0; k < tile.k; k += HALF_K) {
        __syncthreads(); /* the tiles are no longer read */
        load_tile<uint16_t, 8, HALF_K, HALF_PITCH, 1>(from_x, p.x.row, p.x.column, tile.row, tile.m,
                                                      k, tile.k, x);
        load_tile<uint16_t, 8, HALF_K, HALF_PITCH, 1>(from_y, p.y.column, p.y.row, tile.column,
                                                      tile.n, k, tile.k, y);
        __syncthreads();
        multiply_halves<BF16>(x, y, sum);
    }
    const uint32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const uint32_t row = tile.row + warp / 2 * 32 + lane / 4;
    const uint32_t column = tile.column + warp % 2 * 32 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < WARP_M; i++)
#pragma unroll
        for (int j = 0; j < WARP_N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                store_z(p, tile, row + 16 * i + e / 2 * 8, column + 8 * j + e % 2, sum[i][j][e]);
}

/* ---- fp32 ---- */

enum { FLOAT_K = 16, FLOAT_PITCH = M + 4, ROWS = 8, COLUMNS = 4 /* of z, a thread's */ };

static __device__ __forceinline__ void
product_of_floats(const struct kernel_product &p, const struct tile &tile, float *x, float *y)
{
    const float *from_x = static_cast<const float *>(p.x.data) + tile.x;
    const float *from_y = static_cast<const float *>(p.y.data) + tile.y;
    const uint32_t row = threadIdx.x / (N / COLUMNS) * ROWS;
    const uint32_t column = threadIdx.x % (N / COLUMNS) * COLUMNS;
    float sum[ROWS][COLUMNS] = {};
    for (uint32_t k = 0; k < tile.k; k += FLOAT_K) {
        __syncthreads();
        load_tile<float, 4, FLOAT_K, 1, FLOAT_PITCH>(from_x, p.x.row, p.x.column, tile.row, tile.m,
                                                     k, tile.k, x);
        load_tile<float, 4, FLOAT_K, 1, FLOAT_PITCH>(from_y, p.y.column, p.y.row, tile.column,
                                                     tile.n, k, tile.k, y);
        __syncthreads();
#pragma unroll
        for (int d = 0; d < FLOAT_K; d++) {
            float left[ROWS], right[COLUMNS];
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                left[i] = x[d * FLOAT_PITCH + row + i];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                right[j] = y[d * FLOAT_PITCH + column + j];
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
                    sum[i][j] += left[i] * right[j];
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
            store_z(p, tile, tile.row + row + i, tile.column + column + j, sum[i][j]);
}

/* ---- the kernel ---- */

template <int DTYPE>
static __global__ void __launch_bounds__(THREADS, 3)
    multiply(const __grid_constant__ struct kernel_product p, uint64_t tiles, uint32_t row_tiles,
             uint32_t column_tiles, struct kernel_fault *fault,
             const __grid_constant__ struct kernel_site site)
{
    __shared__ __align__(16) char room[2 * M * HALF_PITCH * sizeof(uint16_t)];
    static_assert(sizeof room >= 2 * FLOAT_K * FLOAT_PITCH * sizeof(float), "tiles of floats");
    for (uint64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
        const uint64_t rows = i / column_tiles;
        struct tile tile = p.ends.data && !p.cut_k ? find_rows(p, rows, fault, site)
                                                   : find_batch(p, rows, row_tiles, fault, site);
        tile.column = (uint32_t)(i % column_tiles) * N;
        if (!tile.there)
            continue;
        if (DTYPE == KERNEL_FP32) {
            float *x = reinterpret_cast<float *>(room);
            product_of_floats(p, tile, x, x + FLOAT_K * FLOAT_PITCH);
        } else {
            uint16_t *x = reinterpret_cast<uint16_t *>(room);
            product_of_halves<DTYPE == KERNEL_BF16>(p, tile, x, x + M * HALF_PITCH);
        }
    }
}

cudaError_t kernel_multiply(const struct kernel_product *product, struct kernel_fault *fault,
                            struct kernel_site site, cudaStream_t stream)
{
    const uint32_t column_tiles = (uint32_t)ceil_div(product->n, N);
    const uint32_t row_tiles = (uint32_t)ceil_div(product->m, M);
    const bool by_rows = product->ends.data && !product->cut_k;
    /* each group has at most one tile that is not full, and so have the rows behind them */
    const uint64_t rows =
        by_rows ? (uint64_t)row_tiles + product->batches : (uint64_t)row_tiles * product->batches;
    const uint64_t tiles = rows * column_tiles;
    const unsigned blocks = blocks_for(tiles, 1);
    if (tiles == 0 || product->m == 0)
        return cudaSuccess;
    switch (product->dtype) {
    case KERNEL_FP32:
        return kernel_launch(multiply<KERNEL_FP32>, blocks, THREADS, stream, *product, tiles,
                             row_tiles, column_tiles, fault, site);
    case KERNEL_BF16:
        return kernel_launch(multiply<KERNEL_BF16>, blocks, THREADS, stream, *product, tiles,
                             row_tiles, column_tiles, fault, site);
    default:
        return kernel_launch(multiply<KERNEL_FP16>, blocks, THREADS, stream, *product, tiles,
                             row_tiles, column_tiles, fault, site);
    }
}
