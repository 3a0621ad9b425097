/* kernel_attention.cu - softmax(q kᵀ · scale) v with an online softmax: the reference that cuDNN's
 * is tested against, and what runs where cuDNN has no engine (fp32, odd sizes).
 *
 * A warp takes a query and 32 keys at a time, one a lane; m, the highest score yet, l, the sum of
 * exp(score - m), and o, the sum of exp(score - m) · v, are kept as in FlashAttention-2 (Dao 2023,
 * algorithm 1). Made to be read and to be right; it has no tensor cores. */
#include "runtime/cuda/kernel_attention.cuh"

enum { WARPS = 8 };

static __global__ void __launch_bounds__(WARPS *LANES)
    attend(const __grid_constant__ struct kernel_attention_args at, struct head_slice heads,
           const __grid_constant__ struct kernel_heads o)
{
    const uint32_t queries = heads.count * at.s, step = gridDim.x * WARPS;
    const uint32_t lane = threadIdx.x % LANES;
    for (uint32_t i = blockIdx.x * WARPS + threadIdx.x / LANES; i < queries; i += step) {
        const uint32_t head = heads.first + i / at.s, query = i % at.s;
        const uint32_t keys = at.causal && query + 1 < at.s_k ? query + 1 : at.s_k;
        float sum[COLUMNS] = {0}, highest = -INFINITY, weight = 0.0F;
        for (uint32_t first = 0; first < keys; first += LANES) {
            const bool seen = sees(at, query, first + lane);
            const float score = seen ? score_of(at, head, query, first + lane) : -INFINITY;
            const float most = larger(warp_max(score), highest);
            const float p =
                score == -INFINITY ? 0.0F : expf(score - most); /* masked, perhaps all */
            const float shrink = highest == -INFINITY ? 0.0F : expf(highest - most);
            weight = weight * shrink + warp_sum(p);
            highest = most;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                sum[c] *= shrink;
            for (uint32_t j = 0; j < LANES && first + j < keys; j++)
                add_row(sum, __shfl_sync(0xffffffffU, p, j), key_row(at, at.v, head, first + j),
                        at.d_v);
        }
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            sum[c] = weight > 0.0F ? sum[c] / weight : 0.0F; /* a bias hides all keys: zeros */
        store_row(query_row(at, o, head, query), at.d_v, sum);
        if (lane == 0)
            at.logsumexp[(uint64_t)head * at.logsumexp_pitch + query] =
                weight > 0.0F ? highest + logf(weight) : 0.0F;
    }
}

cudaError_t kernel_attention(const struct kernel_attention_args *at, struct kernel_heads o,
                             cudaStream_t stream)
{
    for (uint32_t first = 0; first < at->b * at->a;) {
        const struct head_slice heads = next_slice(*at, first, MOST_HEAD_ROWS);
        if (heads.count == 0)
            return cudaErrorMemoryAllocation;
        const cudaError_t rc =
            kernel_launch(attend, blocks_for((uint64_t)heads.count * at->s, WARPS), WARPS * LANES,
                          stream, *at, heads, o);
        if (rc != cudaSuccess)
            return rc;
        first += heads.count;
    }
    return cudaSuccess;
}
