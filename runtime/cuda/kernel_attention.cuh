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
 * rows are counted in 32 bits, whose division is short, and all that have the same keys. */
enum { MOST_HEAD_ROWS = 1 << 30 };

struct head_slice {
    uint32_t first, count;
};

static inline struct head_slice next_slice(const struct kernel_attention_args &at, uint32_t first,
                                           uint64_t most_rows)
{
    const uint32_t length = at.s > at.s_k ? at.s : at.s_k, all = at.b * at.a;
    const uint64_t most = most_rows / length / at.repeats * at.repeats, rest = all - first;
    return {first, (uint32_t)(rest < most ? rest : most)};
}

/* The row of token `token` of head `place` of a sequence. */
static __device__ __forceinline__ struct head_row
row_at(const struct kernel_heads &x, uint32_t sequence, uint32_t token, uint32_t place)
{
    return {x.data, x.dtype, sequence * x.sequence + token * x.token + place * x.head};
}

/* Of head `head`: of queries, and of the keys that it has with others. */
static __device__ __forceinline__ struct head_row query_row(const struct kernel_attention_args &at,
                                                            const struct kernel_heads &x,
                                                            uint32_t head, uint32_t token)
{
    return row_at(x, head / at.a, token, head % at.a);
}

static __device__ __forceinline__ struct head_row key_row(const struct kernel_attention_args &at,
                                                          const struct kernel_heads &x,
                                                          uint32_t head, uint32_t token)
{
    return row_at(x, head / at.a, token, head % at.a / at.repeats);
}

/* Where the number of a query and a key is. */
static __device__ __forceinline__ uint64_t score_at(const struct kernel_attention_args &at,
                                                    const struct kernel_scores &x, uint32_t head,
                                                    uint32_t query, uint32_t key)
{
    return head / at.a * x.sequence + head % at.a * x.head + query * x.query + key * x.key;
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

static __device__ __forceinline__ void store_row(const struct head_row &row, uint32_t d,
                                                 const float sum[COLUMNS])
{
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        const uint32_t column = threadIdx.x % LANES + LANES * c;
        if (column < d)
            store_raw(const_cast<void *>(row.data), row.dtype, row.at + column, sum[c]);
    }
}

static __device__ __forceinline__ bool sees(const struct kernel_attention_args &at, uint32_t query,
                                            uint32_t key)
{
    if (query >= at.s || key >= at.s_k || (at.causal && key > query))
        return false;
    return !at.window || (key + at.window > query && query + at.window > key);
}

/* q kᵀ · scale, perhaps capped, + bias, of a key that is seen. */
static __device__ __forceinline__ float score_of(const struct kernel_attention_args &at,
                                                 uint32_t head, uint32_t query, uint32_t key)
{
    float score =
        at.scale * dot(query_row(at, at.q, head, query), key_row(at, at.k, head, key), at.d);
    if (at.softcap > 0.0F)
        score = at.softcap * tanhf(score / at.softcap);
    if (!at.bias.data)
        return score;
    return score + load_raw(at.bias.data, at.bias.dtype, score_at(at, at.bias, head, query, key));
}

#endif
