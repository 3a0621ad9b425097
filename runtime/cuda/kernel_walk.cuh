/* kernel_walk.cuh - how kernels go through operands of any layout (kernels.h: walks).
 *
 * A thread takes eight elements of the innermost dim at a time: one search for their place in each
 * operand, which divides by every dim but the outermost, and 16-byte accesses where they lie beside
 * each other. What lies without gaps is one dim, and needs no search. */
#ifndef SHARDPLAN_KERNEL_WALK_CUH
#define SHARDPLAN_KERNEL_WALK_CUH

#include "runtime/cuda/kernel_tensor.cuh"

/* ---- one element of any dtype ---- */

static __device__ __forceinline__ float load_number(const void *data, unsigned dtype, uint64_t at)
{
    switch (dtype) {
    case KERNEL_FP32:
        return static_cast<const float *>(data)[at];
    case KERNEL_BF16:
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(data)[at]);
    case KERNEL_FP16:
        return __half2float(static_cast<const __half *>(data)[at]);
    case KERNEL_INT64:
        return (float)static_cast<const int64_t *>(data)[at];
    case KERNEL_INT32:
        return (float)static_cast<const int32_t *>(data)[at];
    default:
        return (float)static_cast<const uint8_t *>(data)[at];
    }
}

/* To integers towards zero, what is beyond them or no number as the lowest; to truths unless 0. */
static __device__ __forceinline__ void store_number(void *data, unsigned dtype, uint64_t at,
                                                    float value)
{
    const float whole = fabsf(value) < 2147483648.0F ? value : -2147483648.0F;
    switch (dtype) {
    case KERNEL_FP32:
        static_cast<float *>(data)[at] = value;
        break;
    case KERNEL_BF16:
        static_cast<__nv_bfloat16 *>(data)[at] = __float2bfloat16_rn(value);
        break;
    case KERNEL_FP16:
        static_cast<__half *>(data)[at] = __float2half_rn(value);
        break;
    case KERNEL_INT64:
        static_cast<int64_t *>(data)[at] = (int64_t)whole;
        break;
    case KERNEL_INT32:
        static_cast<int32_t *>(data)[at] = (int32_t)whole;
        break;
    default:
        static_cast<uint8_t *>(data)[at] = value != 0.0F;
    }
}

static __device__ __forceinline__ int64_t load_id(const struct kernel_side &ids, uint64_t at)
{
    return ids.dtype == KERNEL_INT64 ? static_cast<const int64_t *>(ids.data)[at]
                                     : static_cast<const int32_t *>(ids.data)[at];
}

static __device__ __forceinline__ void store_id(const struct kernel_side &ids, uint64_t at,
                                                int64_t value)
{
    if (ids.dtype == KERNEL_INT64)
        static_cast<int64_t *>(ids.data)[at] = value;
    else
        static_cast<int32_t *>(ids.data)[at] = (int32_t)value;
}

/* ---- places ---- */

template <int SIDES> struct walk_places {
    uint64_t of[SIDES];
};

/* Where element i is in the first SIDES operands. Both loops are unrolled: an index that is only
 * known when the kernel runs would move the places to local memory. */
template <int SIDES>
static __device__ __forceinline__ walk_places<SIDES> find_in_walk(const struct kernel_walk &walk,
                                                                  uint64_t i)
{
    walk_places<SIDES> at = {};
#pragma unroll
    for (int dim = KERNEL_DIMS - 1; dim > 0; dim--) {
        if (dim > (int)walk.outermost) {
            const uint64_t next = divide(i, walk.inverse[dim]), place = i - next * walk.dim[dim];
#pragma unroll
            for (int side = 0; side < SIDES; side++)
                at.of[side] += place * walk.side[side].step[dim];
            i = next;
        }
    }
#pragma unroll
    for (int dim = 0; dim < KERNEL_DIMS; dim++)
        if (dim == (int)walk.outermost)
#pragma unroll
            for (int side = 0; side < SIDES; side++)
                at.of[side] += i * walk.side[side].step[dim];
    return at;
}

/* ---- eight elements from `at` on, `step` apart, `count` of them there ---- */

static __device__ __forceinline__ void load_eight(const void *data, unsigned dtype, unsigned form,
                                                  uint64_t step, uint64_t at, uint32_t count,
                                                  float out[VECTOR])
{
    if (form == KERNEL_WIDE && count == VECTOR) {
        load_wide(data, dtype, at, out);
        return;
    }
    if (form == KERNEL_ONE) {
        const float value = load_number(data, dtype, at);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            out[j] = value;
        return;
    }
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        out[j] = j < (int)count ? load_number(data, dtype, at + j * step) : 0.0F;
}

static __device__ __forceinline__ void store_eight(void *data, unsigned dtype, unsigned form,
                                                   uint64_t step, uint64_t at, uint32_t count,
                                                   const float in[VECTOR])
{
    if (form == KERNEL_WIDE && count == VECTOR) {
        store_wide(data, dtype, at, in);
        return;
    }
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        if (j < (int)count)
            store_number(data, dtype, at + j * step, in[j]);
}

/* ---- groups of eight elements of a walk ---- */

static __device__ __forceinline__ uint32_t group_size(const struct kernel_walk &walk, uint64_t i)
{
    return walk.count - i < VECTOR ? (uint32_t)(walk.count - i) : (uint32_t)VECTOR;
}

/* Elements [i, i + 8) of side SIDE, or as many as there are; `at` is the place of the first, where
 * groups are whole. All `more` elements behind where the walk says. */
template <int SIDE, int SIDES>
static __device__ __forceinline__ void load_group(const struct kernel_walk &walk, uint64_t i,
                                                  const walk_places<SIDES> &at, float out[VECTOR],
                                                  uint64_t more = 0)
{
    const struct kernel_side &side = walk.side[SIDE];
    const uint32_t count = group_size(walk, i);
    if (walk.whole) {
        load_eight(side.data, side.dtype, side.form, side.step[KERNEL_DIMS - 1], at.of[SIDE] + more,
                   count, out);
        return;
    }
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        out[j] = j < (int)count ? load_number(side.data, side.dtype,
                                              find_in_walk<SIDE + 1>(walk, i + j).of[SIDE] + more)
                                : 0.0F;
}

template <int SIDE, int SIDES>
static __device__ __forceinline__ void store_group(const struct kernel_walk &walk, uint64_t i,
                                                   const walk_places<SIDES> &at,
                                                   const float in[VECTOR], uint64_t more = 0)
{
    const struct kernel_side &side = walk.side[SIDE];
    const uint32_t count = group_size(walk, i);
    if (walk.whole) {
        store_eight(side.data, side.dtype, side.form, side.step[KERNEL_DIMS - 1],
                    at.of[SIDE] + more, count, in);
        return;
    }
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        if (j < (int)count)
            store_number(side.data, side.dtype, find_in_walk<SIDE + 1>(walk, i + j).of[SIDE] + more,
                         in[j]);
}

#endif
