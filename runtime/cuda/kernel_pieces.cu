/* kernel_pieces.cu - many copies in one launch: what pack, cat, repeat, copy-in, copy-out and
 * chunk_cat come down to. A piece is a rectangle of runs; see kernels.h. */
#include "runtime/cuda/kernel_table.cuh"

enum {
    THREADS = 256,
    CHUNK = 4 * THREADS /* accesses of a block: 16 bytes each where alignment allows */
};

/* Eight elements, or as many as are left, at a place of any alignment. */
static __device__ __forceinline__ void load_run(const void *data, unsigned dtype, uint64_t at,
                                                uint64_t left, float out[VECTOR])
{
    const uintptr_t size = dtype == KERNEL_FP32 ? 4 : 2;
    const uintptr_t address = reinterpret_cast<uintptr_t>(data) + at * size;
    if (left >= VECTOR && address % 16 == 0) {
        load_wide(data, dtype, at, out);
        return;
    }
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        out[j] = (uint64_t)j < left ? load_raw(data, dtype, at + j) : 0.0F;
}

static __device__ __forceinline__ void store_run(void *data, unsigned dtype, uint64_t at,
                                                 uint64_t left, const float in[VECTOR])
{
    const uintptr_t size = dtype == KERNEL_FP32 ? 4 : 2;
    const uintptr_t address = reinterpret_cast<uintptr_t>(data) + at * size;
    if (left >= VECTOR && address % 16 == 0) {
        store_wide(data, dtype, at, in);
        return;
    }
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        if ((uint64_t)j < left)
            store_raw(data, dtype, at + j, in[j]);
}

static __device__ __forceinline__ void copy_unit(const void *from, uint64_t from_at, void *to,
                                                 uint64_t to_at, unsigned unit)
{
    switch (unit) {
    case 16: {
        const uint4 zero = {0, 0, 0, 0};
        static_cast<uint4 *>(to)[to_at] = from ? static_cast<const uint4 *>(from)[from_at] : zero;
        break;
    }
    case 8: {
        const uint2 zero = {0, 0};
        static_cast<uint2 *>(to)[to_at] = from ? static_cast<const uint2 *>(from)[from_at] : zero;
        break;
    }
    case 4:
        static_cast<uint32_t *>(to)[to_at] =
            from ? static_cast<const uint32_t *>(from)[from_at] : 0U;
        break;
    case 2:
        static_cast<uint16_t *>(to)[to_at] =
            from ? static_cast<const uint16_t *>(from)[from_at] : (uint16_t)0;
        break;
    default:
        static_cast<uint8_t *>(to)[to_at] =
            from ? static_cast<const uint8_t *>(from)[from_at] : (uint8_t)0;
    }
}

/* Accesses of one row of the destination. */
static __host__ __device__ __forceinline__ uint64_t row_accesses(const struct kernel_piece &p)
{
    return p.unit ? p.width : (p.width + VECTOR - 1) / VECTOR;
}

static __host__ __device__ __forceinline__ uint64_t all_accesses(const struct kernel_piece &p)
{
    return row_accesses(p) * p.rows * p.times;
}

static __global__ void copy_pieces(const __grid_constant__ struct table<struct kernel_piece> pieces)
{
    const uint32_t which = table_find(pieces);
    const struct kernel_piece &p = pieces.entry[which];
    const uint64_t row_length = row_accesses(p), count = all_accesses(p);
    const uint64_t begin = (uint64_t)(blockIdx.x - pieces.first[which]) * CHUNK;
    const uint64_t end = begin + CHUNK < count ? begin + CHUNK : count;
    for (uint64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        const bool fits = count <= UINT32_MAX; /* 32-bit division is much the faster */
        const uint64_t to_row = fits ? (uint32_t)i / (uint32_t)row_length : i / row_length;
        const uint64_t from_row = p.times == 1 ? to_row
                                  : fits       ? (uint32_t)to_row / p.times
                                               : to_row / p.times;
        const uint64_t column = i - to_row * row_length;
        if (p.unit) {
            copy_unit(p.from, from_row * p.from_pitch + column, p.to, to_row * p.to_pitch + column,
                      p.unit);
            continue;
        }
        float value[VECTOR] = {0};
        const uint64_t at = column * VECTOR;
        if (p.from)
            load_run(p.from, p.from_dtype, from_row * p.from_pitch + at, p.width - at, value);
        store_run(p.to, p.to_dtype, to_row * p.to_pitch + at, p.width - at, value);
    }
}

static cudaError_t launch(struct table<struct kernel_piece> *pieces, cudaStream_t stream)
{
    if (pieces->count == 0)
        return cudaSuccess;
    const cudaError_t rc =
        kernel_launch(copy_pieces, pieces->first[pieces->count], THREADS, stream, *pieces);
    pieces->count = 0;
    return rc;
}

cudaError_t kernel_pieces(const struct kernel_piece *pieces, uint32_t count, cudaStream_t stream)
{
    struct table<struct kernel_piece> batch;
    batch.count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t accesses = all_accesses(pieces[i]);
        if (accesses == 0)
            continue;
        table_add(&batch, pieces[i], ceil_div(accesses, CHUNK));
        if (!table_is_full(&batch))
            continue;
        const cudaError_t rc = launch(&batch, stream);
        if (rc != cudaSuccess)
            return rc;
    }
    return launch(&batch, stream);
}
