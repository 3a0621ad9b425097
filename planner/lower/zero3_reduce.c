/* zero3_reduce.c - gradients of ZeRO stage 3 as they come: into the bucket, and a full one to where
 * its pieces are kept; see zero3.h. */
#include "lower/zero3.h"

#include <stdlib.h>

/* The reduced pieces without what pads them, in the dtype in which they are kept; those that are
 * cast are new. */
static uint32_t *cast_pieces(struct lowering *low, struct operand own, struct operand *pieces)
{
    const struct zero3 *z = zero3_of(low);
    const enum dtype dtype = (enum dtype)low->plan->buffers[z->gradients].dtype;
    uint32_t *casts = none_array(low, z->in_count);
    uint64_t at = 0;
    for (uint32_t i = 0; i < z->in_count; i++) {
        const uint64_t n = zero3_own_elements(low, z->in[i]);
        pieces[i] = zero_run(own, at, n);
        at += z->params[z->in[i]].part;
        if (dtype == own.dtype || n == 0)
            continue;
        casts[i] =
            alloc_buffer(low, CATEGORY_GRADIENT, z->reduce_lane, ATEN_TO_COPY, dtype, flat(n));
        const struct operand to = plan_whole_buffer(low->plan, casts[i]);
        emit_work_on(low, PLAN_COMPUTE, z->reduce_lane, WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1,
                     &pieces[i], 1, &to);
        pieces[i] = to;
    }
    return casts;
}

/* Copies of pieces die last to first, and what they are copies of before them. A gradient whose
 * own memory the pieces are is held by them. */
static void keep(struct lowering *low, struct operand own, uint32_t cat)
{
    struct zero3 *z = low->state;
    struct operand *pieces = xmalloc((z->in_count + 1) * sizeof *pieces);
    const uint32_t *casts = cast_pieces(low, own, pieces);
    const bool cast = own.dtype != low->plan->buffers[z->gradients].dtype;
    const bool held = !cast && cat == NONE;
    if (cast && cat != NONE)
        emit_free(low, cat);
    zero3_keep(low, pieces, held);
    for (uint32_t i = 0; held && i < z->in_count; i++)
        zero3_forget(low, z->in[i]);
    for (uint32_t i = z->in_count; i-- > 0;)
        if (casts[i] != NONE)
            emit_free(low, casts[i]);
    if (!cast && cat != NONE)
        emit_free(low, cat);
    free(pieces);
}

void zero3_flush(struct lowering *low)
{
    struct zero3 *z = low->state;
    const uint32_t before = enter_scope(low, "ds_reduce", PLAN_NO_UNIT, false);
    if (z->in_count && zero3_is_whole(low)) {
        zero3_hold_host(low, &z->reductions);
        zero3_reduce_whole(low);
        zero3_add_event(low, &z->reductions, z->reduce_lane);
    } else if (z->in_count) {
        uint32_t cat = NONE;
        zero3_hold_host(low, &z->reductions);
        qsort(z->in, z->in_count, sizeof *z->in, zero3_by_index);
        if (zero3_has_qgz(low->strategy)) {
            zero3_reduce_qgz(low);
        } else {
            const struct operand own = zero3_scatter(low, &cat);
            keep(low, own, cat);
        }
        zero3_add_event(low, &z->reductions, z->reduce_lane);
    }
    z->in_count = 0;
    z->filled = 0;
    leave_scope(low, before);
}

void zero3_reduce(struct lowering *low, uint32_t p)
{
    struct zero3 *z = low->state;
    const uint64_t n = zero3_elements(low, p), most = low->strategy->zero.reduce_bucket_size;
    const uint32_t before = enter_named_scope(low, "ds_grad", zero_name(low, p));
    if (z->filled > 0 && z->filled + n > most)
        zero3_flush(low);
    if (z->reduce_lane != LANE_COMPUTE)
        emit_sync(low, z->reduce_lane, LANE_COMPUTE);
    if (z->bucket != NONE && z->filled + n <= most) {
        struct operand view = plan_whole_buffer(low->plan, z->bucket);
        view.offset = z->filled;
        view.shape = low->plan->params[p].shape;
        zero_copy(low, z->reduce_lane, low->grad[p], view);
        exchange_gradient(low, p, view, z->reduce_lane);
        z->copied[p] = true;
    }
    z->filled += n;
    z->in[z->in_count++] = p;
    leave_scope(low, before);
}
