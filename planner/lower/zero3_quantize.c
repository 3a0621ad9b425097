/* zero3_quantize.c - gathers of ZeRO stage 3 in 8 bits (zero_quantized_weights; ZeRO++'s qwZ): for
 * zero3_fetch.c (deepspeed 0.19.8, partition_parameters.py, csrc/quantization/pt_binding.cpp).
 *
 *     gather    this rank's pieces, put together, in fp16, become int8 and a scale (fp32) a group;
 *               both are gathered, into buffers that stay until all parameters have been waited for
 *     wait      int8 becomes fp16 again; each parameter is a copy of its slices of that, and one of
 *               bf16 a cast of the copy
 *
 * Kernels read their operands once and write once: they cost their bytes. */
#include "lower/zero3.h"

enum { GROUP_TARGET = 8000, GROUP_LANES = 8 }; /* CUDAQuantizer.target_group_size; int8 of a load */

bool zero3_quantizes(const struct lowering *low)
{
    return low->strategy->zero.quantized_weights && zero3_of(low)->ranks > 1;
}

/* CUDAQuantizer.quantize: groups of less than 16,000 elements, a multiple of 8 each. */
static uint64_t groups_of(uint64_t elements)
{
    uint64_t groups = elements <= GROUP_TARGET ? 1 : (elements + GROUP_TARGET - 1) / GROUP_TARGET;
    while (groups < elements && elements % (GROUP_LANES * groups) != 0)
        groups++;
    while (elements % (GROUP_LANES * groups * 2) == 0 && elements > groups * GROUP_TARGET)
        groups *= 2;
    return groups;
}

static uint32_t new_bytes(struct lowering *low, enum dtype dtype, uint64_t elements)
{
    return alloc_buffer(low, CATEGORY_ALL_GATHER, zero3_of(low)->gather_lane, ATEN_EMPTY, dtype,
                        flat(elements));
}

/* What a rank of the handle's group has of a parameter. */
static uint64_t piece_of(const struct lowering *low, const struct zero3_handle *handle, uint32_t p)
{
    const struct zero3 *z = zero3_of(low);
    return z->params[p].part * z->ranks / plan_group_ranks(low->plan, handle->group);
}

static void free_on_nccl(struct lowering *low, uint32_t buffer)
{
    zero3_let_go(low, buffer, zero3_of(low)->nccl_lane);
}

static void gather(struct lowering *low, uint8_t group, uint32_t from, uint32_t to)
{
    const struct operand x = plan_whole_buffer(low->plan, from);
    const struct operand y = plan_whole_buffer(low->plan, to);
    emit_work_on(low, PLAN_ALL_GATHER, zero3_of(low)->nccl_lane, WORK_ALL_GATHER,
                 ATEN_ALL_GATHER_INTO_TENSOR, group, 1, &x, 1, &y);
}

/* The pieces in fp16: put together where they are several, cast where they are bf16. *made: what
 * was born for it, NONE: nothing. */
static struct operand in_fp16(struct lowering *low, const struct zero3_handle *handle,
                              const struct operand *shards, uint64_t elements, uint32_t *made)
{
    const uint8_t lane = zero3_of(low)->gather_lane;
    struct operand x = shards[0];
    *made = NONE;
    if (handle->count > 1) {
        *made = alloc_buffer(low, CATEGORY_ALL_GATHER, lane, ATEN_CAT, low->strategy->compute,
                             flat(elements));
        x = plan_whole_buffer(low->plan, *made);
        emit_work_on(low, PLAN_COPY_IN, lane, WORK_PACK, ATEN_CAT, handle->group, handle->count,
                     shards, 1, &x);
    }
    if (low->strategy->compute == DTYPE_FP16)
        return x;
    const uint32_t cast =
        alloc_buffer(low, CATEGORY_ALL_GATHER, lane, ATEN_TO_COPY, DTYPE_FP16, flat(elements));
    const struct operand y = plan_whole_buffer(low->plan, cast);
    emit_work_on(low, PLAN_COMPUTE, lane, WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1, &x, 1, &y);
    if (*made != NONE)
        emit_free(low, *made);
    *made = cast;
    return y;
}

void zero3_gather_quantized(struct lowering *low, struct zero3_handle *handle,
                            const struct operand *shards)
{
    const struct zero3 *z = zero3_of(low);
    const uint32_t ranks = plan_group_ranks(low->plan, handle->group);
    uint64_t elements = 0;
    for (uint32_t i = 0; i < handle->count; i++)
        elements += piece_of(low, handle, handle->params[i]);
    const uint64_t groups = groups_of(elements);
    handle->quantized = new_bytes(low, DTYPE_INT8, elements * ranks);
    uint32_t made;
    const struct operand x = in_fp16(low, handle, shards, elements, &made);
    const uint32_t scales = alloc_buffer(low, CATEGORY_ALL_GATHER, z->gather_lane, ATEN_EMPTY,
                                         DTYPE_FP32, SHAPE((uint32_t)groups, 1));
    const uint32_t own = new_bytes(low, DTYPE_INT8, elements);
    const struct operand out[] = {plan_whole_buffer(low->plan, own),
                                  plan_whole_buffer(low->plan, scales)};
    emit_work_on(low, PLAN_COMPUTE, z->gather_lane, WORK_QUANTIZE, ATEN_EMPTY, PLAN_NO_GROUP, 1, &x,
                 2, out);
    if (made != NONE)
        emit_free(low, made);
    handle->scales = new_bytes(low, DTYPE_FP32, groups * ranks);
    emit_sync(low, z->nccl_lane, z->gather_lane);
    gather(low, handle->group, own, handle->quantized);
    gather(low, handle->group, scales, handle->scales);
    handle->event = emit_record(low, z->nccl_lane);
    /* Python's locals: in the order in which they were bound */
    free_on_nccl(low, handle->count > 1 ? own : scales);
    free_on_nccl(low, handle->count > 1 ? scales : own);
}

/* A parameter's place in its dtype; `half`, which dies where it is not that already, is in fp16. */
static uint32_t settle(struct lowering *low, uint32_t p, uint32_t half)
{
    if (low->strategy->compute == DTYPE_FP16)
        return half;
    const uint8_t lane = zero3_of(low)->gather_lane;
    const uint32_t own = alloc_buffer(low, CATEGORY_UNSHARDED_PARAM, lane, ATEN_TO_COPY,
                                      low->strategy->compute, low->plan->params[p].shape);
    const struct operand x = plan_whole_buffer(low->plan, half);
    const struct operand y = plan_whole_buffer(low->plan, own);
    emit_work_on(low, PLAN_COMPUTE, lane, WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1, &x, 1, &y);
    emit_free(low, half);
    return own;
}

/* The slices of a parameter, a rank's behind the other's, as rows of the whole. */
static uint32_t copy_apart(struct lowering *low, const struct zero3_handle *handle, uint32_t p,
                           uint64_t at)
{
    const uint8_t lane = zero3_of(low)->gather_lane;
    const uint32_t ranks = plan_group_ranks(low->plan, handle->group);
    struct operand slices = plan_whole_buffer(low->plan, handle->flats[0].buffer);
    const uint64_t pitch = shape_elements(&slices.shape) / ranks;
    const uint32_t half = alloc_buffer(low, CATEGORY_UNSHARDED_PARAM, lane, ATEN_CAT, DTYPE_FP16,
                                       flat(zero3_elements(low, p)));
    const struct operand y = plan_whole_buffer(low->plan, half);
    slices.offset = at;
    slices.pitch = (uint32_t)pitch;
    slices.shape = SHAPE(ranks, (uint32_t)piece_of(low, handle, p));
    emit_work_on(low, PLAN_COPY_OUT, lane, WORK_PACK, ATEN_CAT, handle->group, 1, &slices, 1, &y);
    return half;
}

void zero3_dequantize(struct lowering *low, struct zero3_handle *handle)
{
    struct zero3 *z = low->state;
    const struct operand in[] = {plan_whole_buffer(low->plan, handle->quantized),
                                 plan_whole_buffer(low->plan, handle->scales)};
    const bool alone = handle->count == 1;
    const struct shape shape = alone ? low->plan->params[handle->params[0]].shape : in[0].shape;
    const uint32_t half = alloc_buffer(low, alone ? CATEGORY_UNSHARDED_PARAM : CATEGORY_ALL_GATHER,
                                       z->gather_lane, ATEN_EMPTY, DTYPE_FP16, shape);
    const struct operand out = plan_whole_buffer(low->plan, half);
    emit_work_on(low, PLAN_COMPUTE, z->gather_lane, WORK_DEQUANTIZE, ATEN_EMPTY, PLAN_NO_GROUP, 2,
                 in, 1, &out);
    if (!alone)
        zero3_add_flat(low, handle, DTYPE_FP16)->buffer = half;
    uint64_t at = 0;
    for (uint32_t i = 0; i < handle->count; i++) {
        const uint32_t p = handle->params[i];
        z->params[p].buffer = settle(low, p, alone ? half : copy_apart(low, handle, p, at));
        at += piece_of(low, handle, p);
    }
}

void zero3_drop_quantized(struct lowering *low, const struct zero3_handle *handle)
{
    zero3_drop_flats(low, handle);
    emit_free(low, handle->quantized);
    emit_free(low, handle->scales);
}
