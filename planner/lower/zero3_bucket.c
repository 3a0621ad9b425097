/* zero3_bucket.c - the gradients of a bucket, put together and scattered, and what is kept of them;
 * see zero3.h. */
#include "lower/zero3.h"

#include "base/request.h"

#include <stdlib.h>

enum { PADS_EACH = 1024 }; /* of a parameter, at most, that are tensors of their own */

/* What pads a rank's piece of a gradient to a whole part, in elements. */
static uint64_t missing_of(const struct lowering *low, uint32_t p, uint32_t rank)
{
    const struct zero3 *z = zero3_of(low);
    const struct part part =
        placement_part(zero3_placement(low, p), &low->plan->params[p].shape, z->ranks, rank);
    return z->params[p].part - part_elements(&part);
}

static uint32_t new_pad(struct lowering *low, uint64_t elements)
{
    return alloc_buffer(low, CATEGORY_REDUCE_SCATTER, zero3_of(low)->reduce_lane, ATEN_EMPTY,
                        low->strategy->compute, flat(elements));
}

/* The pads of all ranks from `first` on, as one tensor that takes as much of the allocator's
 * blocks. Behind the first of them a rank has nothing but its pad. */
static uint32_t new_pads_at_once(struct lowering *low, uint32_t p, uint32_t first)
{
    const struct zero3 *z = zero3_of(low);
    const uint64_t size = dtype_bytes(low->strategy->compute);
    const uint64_t bytes = request_round(missing_of(low, p, first) * size) +
                           (z->ranks - first - 1) * request_round(z->params[p].part * size);
    return new_pad(low, bytes / size);
}

/* Pads the pieces of gradients that are shorter than a rank's part, from rank to rank: most
 * parameters have none, and of those that have, only the last ranks. Where it is more than
 * PADS_EACH of a parameter, which nobody has recorded, a step would be millions of tensors of a few
 * bytes: they are one. Returns how many there are, in a list of the lowering's. */
static uint32_t fill_up(struct lowering *low, uint32_t **out)
{
    const struct zero3 *z = zero3_of(low);
    uint32_t *first = none_array(low, z->in_count); /* rank whose part is not full */
    uint32_t rank = z->ranks, most = 0, count = 0;
    for (uint32_t i = 0; i < z->in_count; i++) {
        const uint64_t n = zero3_elements(low, z->in[i]), part = z->params[z->in[i]].part;
        first[i] = part ? (uint32_t)(n / part) : z->ranks;
        const uint32_t pads = z->ranks - first[i];
        most += pads > PADS_EACH ? 1 : pads;
        if (pads <= PADS_EACH && first[i] < rank)
            rank = first[i];
    }
    uint32_t *pads = *out = none_array(low, most);
    for (uint32_t i = 0; i < z->in_count; i++)
        if (z->ranks - first[i] > PADS_EACH) {
            pads[count++] = new_pads_at_once(low, z->in[i], first[i]);
            first[i] = z->ranks;
        }
    for (; rank < z->ranks; rank++)
        for (uint32_t i = 0; i < z->in_count; i++)
            if (rank >= first[i])
                pads[count++] = new_pad(low, missing_of(low, z->in[i], rank));
    return count;
}

/* reduce_scatter_coalesced: each gradient is cut as its parameter is; pieces of one rank follow
 * each other, padded. One alone that needs no padding is as it lies. */
static struct operand put_together(struct lowering *low, uint32_t *cat)
{
    const struct zero3 *z = zero3_of(low);
    const enum dtype dtype = low->strategy->compute;
    struct operand *grads = xmalloc(z->in_count * sizeof *grads);
    uint64_t elements = 0;
    for (uint32_t i = 0; i < z->in_count; i++) {
        grads[i] = zero_run(low->grad[z->in[i]], 0, zero3_elements(low, z->in[i]));
        elements += z->params[z->in[i]].part * z->ranks;
    }
    struct operand together = grads[0];
    *cat = NONE;
    if (z->in_count > 1 || shape_elements(&grads[0].shape) != elements) {
        uint32_t *pads, count = fill_up(low, &pads);
        *cat = alloc_buffer(low, CATEGORY_REDUCE_SCATTER, z->reduce_lane, ATEN_CAT, dtype,
                            flat(elements));
        together = plan_whole_buffer(low->plan, *cat);
        emit_work_on(low, PLAN_COPY_IN, z->reduce_lane, WORK_CHUNK_CAT, ATEN_CAT, z->shard_group,
                     z->in_count, grads, 1, &together);
        while (count-- > 0)
            emit_free(low, pads[count]);
    }
    free(grads);
    return together;
}

struct operand zero3_scatter(struct lowering *low, uint32_t *cat)
{
    const struct zero3 *z = zero3_of(low);
    const struct operand together = put_together(low, cat);
    const uint64_t n = shape_elements(&together.shape) / z->ranks;
    if (z->ranks == 1)
        return zero_run(together, 0, n);
    const struct operand own = zero_run(together, n * low->strategy->rank, n);
    emit_work_on(low, PLAN_REDUCE_SCATTER, z->reduce_lane, WORK_REDUCE_SCATTER_AVG,
                 ATEN_REDUCE_SCATTER_TENSOR, z->shard_group, 1, &together, 1, &own);
    return own;
}

void zero3_keep(struct lowering *low, const struct operand *pieces, bool held)
{
    const struct zero3 *z = zero3_of(low);
    if (low->strategy->zero.optimizer.on) {
        zero3_offload_pieces(low, pieces, held);
        return;
    }
    for (uint32_t i = 0; i < z->in_count; i++) {
        const uint64_t n = shape_elements(&pieces[i].shape);
        const struct operand to = zero_run(zero3_gradient(low, z->in[i]), 0, n);
        const bool real = zero3_own_elements(low, z->in[i]) > 0; /* not padding alone */
        if (real && low->micro_batch > 0)
            emit_work_on(low, PLAN_COMPUTE, z->reduce_lane, WORK_ADD_IN_PLACE, ATEN_ADD_,
                         PLAN_NO_GROUP, 1, &pieces[i], 1, &to);
        else if (real)
            zero_copy(low, z->reduce_lane, pieces[i], to);
        if (!held)
            zero3_forget(low, z->in[i]);
    }
}
