/* kernel_attention_backward.cu - gradients of attention from q, k, v and the logsumexp.
 *
 *     p = exp(q kᵀ · scale - logsumexp)       dp = do vᵀ      D = rows' Σ do · o
 *     ds = p · (dp - D) · scale               dq = ds k, dk = dsᵀ q, dv = pᵀ do
 *
 * and where scores are capped, ds times how steep the cap is there.
 *
 * One kernel finds D, one dq (a warp a query), one dk and dv (a warp a key): sums have one writer
 * each, so their order is fixed. Without o, D is Σ p · dp, the same sum in another order. */
#include "runtime/cuda/kernel_attention.cuh"

enum { WARPS = 8 };

struct backward {
    struct kernel_attention_args at;
    struct kernel_heads dout, o, dq, dk, dv;
    struct kernel_scores dbias;
    struct head_slice heads;
    float *delta; /* (heads.count, s) */
};

/* p and dp of one query and one key, 0 where it is not seen; returns how steep the cap is there. */
static __device__ __forceinline__ float find_scores(const struct backward &all, uint32_t head,
                                                    uint32_t query, uint32_t key, float *p,
                                                    float *dp)
{
    const struct kernel_attention_args &at = all.at;
    *p = *dp = 0.0F;
    if (!sees(at, query, key))
        return 1.0F;
    const float score = score_of(at, head, query, key);
    *p = expf(score - at.logsumexp[(uint64_t)head * at.logsumexp_pitch + query]);
    *dp = dot(query_row(at, all.dout, head, query), key_row(at, at.v, head, key), at.d_v);
    const float share = at.softcap > 0.0F ? score / at.softcap : 0.0F; /* there is no bias then */
    return 1.0F - share * share;
}

#define FOR_WARPS(i, count)                                                                        \
    for (uint32_t i = blockIdx.x * WARPS + threadIdx.x / LANES; i < (count); i += gridDim.x * WARPS)

static __global__ void __launch_bounds__(WARPS *LANES)
    find_delta(const __grid_constant__ struct backward all)
{
    const struct kernel_attention_args &at = all.at;
    const uint32_t lane = threadIdx.x % LANES;
    FOR_WARPS(i, all.heads.count * at.s)
    {
        const uint32_t head = all.heads.first + i / at.s, query = i % at.s;
        float sum = 0.0F;
        if (all.o.data) {
            const struct head_row o = query_row(at, all.o, head, query);
            const struct head_row dout = query_row(at, all.dout, head, query);
            for (uint32_t j = lane; j < at.d_v; j += LANES)
                sum += load_raw(o.data, o.dtype, o.at + j) *
                       load_raw(dout.data, dout.dtype, dout.at + j);
        } else {
            for (uint32_t key = lane; key < at.s_k; key += LANES) {
                float p, dp;
                find_scores(all, head, query, key, &p, &dp);
                sum += p * dp;
            }
        }
        sum = warp_sum(sum);
        if (lane == 0)
            all.delta[i] = sum;
    }
}

static __global__ void __launch_bounds__(WARPS *LANES)
    find_dq(const __grid_constant__ struct backward all)
{
    const struct kernel_attention_args &at = all.at;
    const uint32_t lane = threadIdx.x % LANES;
    FOR_WARPS(i, all.heads.count * at.s)
    {
        const uint32_t head = all.heads.first + i / at.s, query = i % at.s;
        const bool cut = at.causal && !all.dbias.data && query + 1 < at.s_k;
        const uint32_t keys = cut ? query + 1 : at.s_k;
        const float delta = all.delta[i];
        float sum[COLUMNS] = {0};
        for (uint32_t first = 0; first < keys; first += LANES) {
            float p, dp;
            const float steep = find_scores(all, head, query, first + lane, &p, &dp);
            const float slope = p * (dp - delta) * steep, ds = slope * at.scale;
            if (all.dbias.data && first + lane < at.s_k) /* before q and k are scaled */
                store_raw(all.dbias.data, all.dbias.dtype,
                          score_at(at, all.dbias, head, query, first + lane), slope);
            for (uint32_t j = 0; j < LANES && first + j < keys; j++)
                add_row(sum, __shfl_sync(0xffffffffU, ds, j), key_row(at, at.k, head, first + j),
                        at.d);
        }
        store_row(query_row(at, all.dq, head, query), at.d, sum);
    }
}

/* A warp a key of the heads that have it. */
static __global__ void __launch_bounds__(WARPS *LANES)
    find_dk_and_dv(const __grid_constant__ struct backward all)
{
    const struct kernel_attention_args &at = all.at;
    const uint32_t lane = threadIdx.x % LANES;
    FOR_WARPS(i, all.heads.count / at.repeats * at.s_k)
    {
        const uint32_t slot = i / at.s_k * at.repeats, key = i % at.s_k;
        float dk[COLUMNS] = {0}, dv[COLUMNS] = {0};
        for (uint32_t same = slot; same < slot + at.repeats; same++) {
            const uint32_t head = all.heads.first + same;
            for (uint32_t first = at.causal ? key / LANES * LANES : 0; first < at.s;
                 first += LANES) {
                const uint32_t query = first + lane;
                float p, dp;
                const float steep = find_scores(all, head, query, key, &p, &dp);
                const float delta = query < at.s ? all.delta[(uint64_t)same * at.s + query] : 0.0F;
                const float ds = p * (dp - delta) * steep * at.scale;
                for (uint32_t j = 0; j < LANES && first + j < at.s; j++) {
                    add_row(dk, __shfl_sync(0xffffffffU, ds, j),
                            query_row(at, at.q, head, first + j), at.d);
                    add_row(dv, __shfl_sync(0xffffffffU, p, j),
                            query_row(at, all.dout, head, first + j), at.d_v);
                }
            }
        }
        const uint32_t head = all.heads.first + slot;
        store_row(key_row(at, all.dk, head, key), at.d, dk);
        store_row(key_row(at, all.dv, head, key), at.d_v, dv);
    }
}

cudaError_t kernel_attention_backward(const struct kernel_attention_args *at,
                                      struct kernel_heads dout, struct kernel_heads o,
                                      struct kernel_heads dq, struct kernel_heads dk,
                                      struct kernel_heads dv, struct kernel_scores dbias,
                                      struct kernel_scratch scratch, cudaStream_t stream)
{
    struct backward all = {
        *at, dout, o, dq, dk, dv, dbias, {0, 0}, static_cast<float *>(scratch.data)};
    const uint64_t room = scratch.bytes / sizeof(float), limit = MOST_HEAD_ROWS;
    for (uint32_t first = 0; first < at->b * at->a; first += all.heads.count) {
        all.heads = next_slice(*at, first, room < limit ? room : limit);
        if (all.heads.count == 0)
            return cudaErrorMemoryAllocation;
        const uint64_t queries = (uint64_t)all.heads.count * at->s;
        const uint64_t keys = (uint64_t)all.heads.count / at->repeats * at->s_k;
        cudaError_t rc =
            kernel_launch(find_delta, blocks_for(queries, WARPS), WARPS * LANES, stream, all);
        if (rc == cudaSuccess)
            rc = kernel_launch(find_dq, blocks_for(queries, WARPS), WARPS * LANES, stream, all);
        if (rc == cudaSuccess)
            rc = kernel_launch(find_dk_and_dv, blocks_for(keys, WARPS), WARPS * LANES, stream, all);
        if (rc != cudaSuccess)
            return rc;
    }
    return cudaSuccess;
}
