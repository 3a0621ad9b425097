/* kernel_attention.cuh - what attention's forward and backward share: where a head's row lies, dots
 * of rows, and sums of rows weighted by one number a lane. */
#ifndef SHARDPLAN_KERNEL_ATTENTION_CUH
#define SHARDPLAN_KERNEL_ATTENTION_CUH

#include "runtime/cuda/kernel_tensor.cuh"

enum { COLUMNS = KERNEL_HEAD_SIZE / LANES }; /* of a row that one lane holds */

struct head_row { /* d numbers beside each other */
    const void *data;
    unsigned dtype;
    uint64_t at;
};

/* Heads are counted over all sequences: b · a in all. A launch takes some of them, so many that its
 * rows are counted in 32 bits, whose division is short. */
enum { MOST_HEAD_ROWS = 1 << 30 };

struct head_slice {
    uint32_t first, count;
};

static inline struct head_slice next_slice(const struct kernel_attention_args &at, uint32_t first,
                                           uint64_t most_rows)
{
    const uint32_t length = at.s > at.s_k ? at.s : at.s_k, all = at.b * at.a;
    const uint64_t most = most_rows / length, rest = all - first;
    return {first, (uint32_t)(rest < most ? rest : most)};
}

/* The row of token `token` of `length`, of head `head`. */
static __device__ __forceinline__ struct head_row row_of(const struct kernel_attention_args &at,
                                                         const struct kernel_tensor &x,
                                                         uint32_t length, uint32_t head,
                                                         uint32_t token)
{
    const uint32_t sequence = head / at.a, place = head % at.a;
    const uint64_t first = (((uint64_t)sequence * length + token) * at.a + place) * at.d;
    return {x.data, x.dtype, tensor_at(x, first)};
}

static __device__ __forceinline__ float dot(const struct head_row &x, const struct head_row &y,
                                            uint32_t d)
{
    float sum = 0.0F;
    for (uint32_t j = 0; j < d; j++)
        sum += load_raw(x.data, x.dtype, x.at + j) * load_raw(y.data, y.dtype, y.at + j);
    return sum;
}

/* sum += weight · x, each lane its columns. */
static __device__ __forceinline__ void add_row(float sum[COLUMNS], float weight,
                                               const struct head_row &x, uint32_t d)
{
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        const uint32_t column = threadIdx.x % LANES + LANES * c;
        if (column < d)
            sum[c] += weight * load_raw(x.data, x.dtype, x.at + column);
    }
}

static __device__ __forceinline__ void store_row(const struct kernel_attention_args &at,
                                                 const struct kernel_tensor &y, uint32_t length,
                                                 uint32_t head, uint32_t token,
                                                 const float sum[COLUMNS])
{
    const struct head_row row = row_of(at, y, length, head, token);
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        const uint32_t column = threadIdx.x % LANES + LANES * c;
        if (column < at.d)
            store_raw(y.data, y.dtype, row.at + column, sum[c]);
    }
}

static __device__ __forceinline__ bool sees(const struct kernel_attention_args &at, uint32_t query,
                                            uint32_t key)
{
    return query < at.s && key < at.s_k && (!at.causal || key <= query);
}

#endif
