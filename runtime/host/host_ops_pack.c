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

/* What takes part in a copy, and y, must be castable to each other. */
static enum err_code need_floats(const struct work *work, const struct work_operand *x,
                                 struct err *err)
{
    return host_need_count(work, "an operand", x, host_count(x), err);
}

static enum err_code need_total(const struct work *work, uint64_t total, uint64_t room,
                                struct err *err)
{
    if (total == room)
        return ERR_OK;
    return host_refuse(work, ERR_INVALID, err, "parts of %llu elements for %llu",
                       (unsigned long long)total, (unsigned long long)room);
}

static enum err_code need_ranks(const struct work *work, uint64_t elements, struct err *err)
{
    if (work->ranks && work->rank < work->ranks && elements % work->ranks == 0)
        return ERR_OK;
    return host_refuse(work, ERR_INVALID, err, "%llu elements, of rank %u of %u",
                       (unsigned long long)elements, work->rank, work->ranks);
}

/* All inputs one after the other, to y from `at`. */
static enum err_code pack_at(const struct work *work, uint64_t at, uint64_t room, struct err *err)
{
    const struct work_operand *y = host_out(work, 0);
    uint64_t total = 0;
    TRY(need_floats(work, y, err));
    for (uint32_t i = 0; i < work->ins; i++) {
        TRY(need_floats(work, host_in(work, i), err));
        total += host_count(host_in(work, i));
    }
    TRY(need_total(work, total, room, err));
    for (uint32_t i = 0; i < work->ins; i++) {
        const struct work_operand *part = host_in(work, i);
        host_copy(part, 0, y, at, host_count(part));
        at += host_count(part);
    }
    return ERR_OK;
}

enum err_code host_pack(const struct work *work, struct err *err)
{
    return pack_at(work, 0, host_count(host_out(work, 0)), err);
}

enum err_code host_copy_in(const struct work *work, struct err *err)
{
    const uint64_t elements = host_count(host_out(work, 0));
    TRY(need_ranks(work, elements, err));
    const uint64_t slice = elements / work->ranks;
    return pack_at(work, work->rank * slice, slice, err);
}

/* Elements of a chunk of x: whole rows of its first dim. */
static uint64_t chunk_elements(const struct work_operand *x, uint32_t ranks)
{
    const uint64_t rows = x->shape.rank ? x->shape.dim[0] : 1;
    return rows ? (rows + ranks - 1) / ranks * (host_count(x) / rows) : 0;
}

/* Those of the chunk of `rank` that x has; the rest is padding. */
static uint64_t filled_elements(const struct work_operand *x, uint64_t chunk, uint32_t rank)
{
    const uint64_t first = rank * chunk, count = host_count(x);
    return first < count ? host_least(chunk, count - first) : 0;
}

enum err_code host_copy_out(const struct work *work, struct err *err)
{
    const struct work_operand *x = host_in(work, 0);
    uint64_t total = 0;
    TRY(need_floats(work, x, err));
    TRY(need_ranks(work, host_count(x), err));
    const uint64_t slice = host_count(x) / work->ranks;
    for (uint32_t i = 0; i < work->outs; i++) {
        TRY(need_floats(work, host_out(work, i), err));
        total += chunk_elements(host_out(work, i), work->ranks);
    }
    TRY(need_total(work, slice, total, err));
    for (uint32_t rank = 0; rank < work->ranks; rank++) {
        uint64_t from = rank * slice;
        for (uint32_t i = 0; i < work->outs; i++) {
            const struct work_operand *part = host_out(work, i);
            const uint64_t chunk = chunk_elements(part, work->ranks);
            host_copy(x, from, part, rank * chunk, filled_elements(part, chunk, rank));
            from += chunk;
        }
    }
    return ERR_OK;
}

static void store_zeros(const struct work_operand *y, uint64_t at, uint64_t count)
{
    const float zeros[HOST_BLOCK] = {0};
    for (uint64_t i = 0, n; i < count; i += n) {
        n = host_block(i, count);
        host_store(y, at + i, n, zeros);
    }
}

enum err_code host_chunk_cat(const struct work *work, struct err *err)
{
    const struct work_operand *y = host_out(work, 0);
    uint64_t total = 0, at = 0;
    TRY(need_floats(work, y, err));
    TRY(need_ranks(work, host_count(y), err));
    for (uint32_t i = 0; i < work->ins; i++) {
        TRY(need_floats(work, host_in(work, i), err));
        total += chunk_elements(host_in(work, i), work->ranks);
    }
    TRY(need_total(work, total * work->ranks, host_count(y), err));
    for (uint32_t rank = 0; rank < work->ranks; rank++) {
        for (uint32_t i = 0; i < work->ins; i++) {
            const struct work_operand *part = host_in(work, i);
            const uint64_t chunk = chunk_elements(part, work->ranks);
            const uint64_t filled = filled_elements(part, chunk, rank);
            host_copy(part, filled ? rank * chunk : 0, y, at, filled);
            store_zeros(y, at + filled, chunk - filled);
            at += chunk;
        }
    }
    return ERR_OK;
}
