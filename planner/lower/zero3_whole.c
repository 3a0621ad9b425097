/* zero3_whole.c - ZeRO stage 3 without reduce_scatter (__avg_scatter_contiguous_grads of
 * stage3.py).
 *
 * The bucket is summed over all ranks where it is, in the order in which gradients came, and cast
 * as a whole if gradients are kept in fp32. Each rank takes its pieces of that; one that is shorter
 * than a rank's part is copied into zeros. What is larger than a bucket is reduced as ever. */
#include "lower/zero3.h"

#include <stdlib.h>

bool zero3_is_whole(const struct lowering *low)
{
    const struct zero3 *z = zero3_of(low);
    const struct zero_options *o = &low->strategy->zero;
    return z->bucket != NONE && !o->reduce_scatter && z->filled <= o->reduce_bucket_size;
}

static enum dtype kept_dtype(const struct lowering *low)
{
    return (enum dtype)low->plan->buffers[zero3_of(low)->gradients].dtype;
}

static struct operand new_copy(struct lowering *low, enum aten label, enum dtype dtype)
{
    const struct zero3 *z = zero3_of(low);
    return plan_whole_buffer(low->plan, alloc_buffer(low, CATEGORY_GRADIENT, z->reduce_lane, label,
                                                     dtype, flat(z->filled)));
}

/* The bucket's gradients, averaged, in the dtype in which they are kept; *made: a buffer of their
 * own, or NONE. */
static struct operand average(struct lowering *low, uint32_t *made)
{
    const struct zero3 *z = zero3_of(low);
    struct operand all = zero_run(plan_whole_buffer(low->plan, z->bucket), 0, z->filled);
    zero_scale(low, z->reduce_lane, 1.0 / z->ranks, all, all);
    *made = NONE;
    if (z->ranks > 1) {
        emit_work_on(low, PLAN_ALL_REDUCE, z->reduce_lane, WORK_ALL_REDUCE_SUM, ATEN_ALL_REDUCE,
                     z->shard_group, 1, &all, 1, &all);
        /* times gradient_predivide_factor, which is 1 */
        const struct operand scaled = new_copy(low, ATEN_MUL, (enum dtype)all.dtype);
        zero_scale(low, z->reduce_lane, 1, all, scaled);
        all = scaled;
        *made = scaled.place;
    }
    if (kept_dtype(low) == all.dtype)
        return all;
    const struct operand cast = new_copy(low, ATEN_TO_COPY, kept_dtype(low));
    emit_work_on(low, PLAN_COMPUTE, z->reduce_lane, WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1, &all,
                 1, &cast);
    if (*made != NONE)
        emit_free(low, *made);
    *made = cast.place;
    return cast;
}

/* Zeros of a rank's part, with the piece at their beginning. */
static uint32_t pad(struct lowering *low, uint32_t p, struct operand piece, uint64_t elements)
{
    const struct zero3 *z = zero3_of(low);
    const uint32_t zeros = alloc_buffer(low, CATEGORY_GRADIENT, z->reduce_lane, ATEN_ZEROS,
                                        kept_dtype(low), flat(z->params[p].part));
    const struct operand whole = plan_whole_buffer(low->plan, zeros);
    emit_work_on(low, PLAN_COMPUTE, z->reduce_lane, WORK_FILL, ATEN_ZEROS, PLAN_NO_GROUP, 0, NULL,
                 1, &whole);
    if (elements > 0)
        zero_copy(low, z->reduce_lane, piece, zero_run(whole, 0, elements));
    return zeros;
}

/* Pieces die last to first, and `made`, which some are views of, with the last of these. */
static void drop(struct lowering *low, const uint32_t *pads, uint32_t made)
{
    const struct zero3 *z = zero3_of(low);
    uint32_t viewed = NONE; /* the first that is a view */
    for (uint32_t i = z->in_count; i-- > 0;)
        viewed = pads[i] == NONE ? i : viewed;
    for (uint32_t i = z->in_count; i-- > 0;) {
        if (pads[i] != NONE)
            emit_free(low, pads[i]);
        else if (i == viewed && made != NONE)
            emit_free(low, made);
    }
}

void zero3_reduce_whole(struct lowering *low)
{
    struct zero3 *z = low->state;
    uint32_t made, *pads = none_array(low, z->in_count);
    struct operand *pieces = arena_alloc(&low->scratch, z->in_count * sizeof *pieces);
    const struct operand all = average(low, &made);
    uint64_t at = 0;
    bool views = false;
    for (uint32_t i = 0; i < z->in_count; i++) {
        const uint32_t p = z->in[i];
        const uint64_t n = zero3_own_elements(low, p), part = z->params[p].part;
        const uint64_t before = part * low->strategy->rank;
        pieces[i] = zero_run(all, n > 0 ? at + before : at, n);
        if (n < part) {
            pads[i] = pad(low, p, pieces[i], n);
            pieces[i] = plan_whole_buffer(low->plan, pads[i]);
        }
        views |= n == part;
        at += zero3_elements(low, p);
    }
    if (!views && made != NONE)
        emit_free(low, made);
    zero3_keep(low, pieces, false);
    drop(low, pads, views ? made : NONE);
}
