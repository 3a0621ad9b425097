/* host_ops_pack.c - between tensors and the flat buffers that collectives move.
 *
 * A tensor (d0, ...) is cut along its first dim into `ranks` chunks of ceil(d0 / ranks) rows, the
 * last ones short or empty; a flat buffer holds, for each rank in turn, that rank's chunk of every
 * tensor. Two tensors and two ranks:
 *
 *     tensors   A: a0 a1 a2      B: b0 b1          (rows)
 *     buffer    a0 a1 | b0 ‖ a2 0 | b1             (‖ between ranks, 0 padding)
 *
 *     COPY_IN    fills one rank's slice from its shards, which are chunks already
 *     COPY_OUT   puts all slices' chunks back into whole tensors
 *     CHUNK_CAT  fills all slices from whole gradients, with the padding set to 0 */
#include "runtime/host/host_ops_internal.h"

/* All inputs one after the other, to y from `at`. */
static void pack_at(const struct work *work, uint64_t at)
{
    const struct work_operand *y = work_out(work, 0);
    for (uint32_t i = 0; i < work->ins; i++) {
        const struct work_operand *part = work_in(work, i);
        host_copy(part, 0, y, at, operand_count(part));
        at += operand_count(part);
    }
}

void host_pack(const struct work *work)
{
    pack_at(work, 0);
}

void host_copy_in(const struct work *work)
{
    const uint64_t elements = operand_count(work_out(work, 0));
    const uint64_t slice = elements / work->ranks;
    pack_at(work, work->rank * slice);
}

/* Those of the chunk of `rank` that x has; the rest is padding. */
static uint64_t filled_elements(const struct work_operand *x, uint64_t chunk, uint32_t rank)
{
    const uint64_t first = rank * chunk, count = operand_count(x);
    return first < count ? host_least(chunk, count - first) : 0;
}

void host_copy_out(const struct work *work)
{
    const struct work_operand *x = work_in(work, 0);
    const uint64_t slice = operand_count(x) / work->ranks;
    for (uint32_t rank = 0; rank < work->ranks; rank++) {
        uint64_t from = rank * slice;
        for (uint32_t i = 0; i < work->outs; i++) {
            const struct work_operand *part = work_out(work, i);
            const uint64_t chunk = operand_chunk(part, work->ranks);
            host_copy(x, from, part, rank * chunk, filled_elements(part, chunk, rank));
            from += chunk;
        }
    }
}

static void store_zeros(const struct work_operand *y, uint64_t at, uint64_t count)
{
    const float zeros[HOST_BLOCK] = {0};
    for (uint64_t i = 0, n; i < count; i += n) {
        n = host_block(i, count);
        host_store(y, at + i, n, zeros);
    }
}

void host_chunk_cat(const struct work *work)
{
    const struct work_operand *y = work_out(work, 0);
    uint64_t at = 0;
    for (uint32_t rank = 0; rank < work->ranks; rank++) {
        for (uint32_t i = 0; i < work->ins; i++) {
            const struct work_operand *part = work_in(work, i);
            const uint64_t chunk = operand_chunk(part, work->ranks);
            const uint64_t filled = filled_elements(part, chunk, rank);
            host_copy(part, filled ? rank * chunk : 0, y, at, filled);
            store_zeros(y, at + filled, chunk - filled);
            at += chunk;
        }
    }
}
