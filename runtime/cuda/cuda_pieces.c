/* cuda_pieces.c - the kinds of work that only move elements, as rectangles for kernel_pieces.
 *
 * A tensor (d0, ...) is cut along its first dim into `ranks` chunks of ceil(d0 / ranks) rows, the
 * last ones short or empty; a flat buffer holds, for each rank in turn, that rank's chunk of every
 * tensor (see host_ops_pack.c). The full chunks of one tensor are one rectangle, whatever the
 * number of ranks, and what is left is one short run:
 *
 *     tensor   | chunk 0 | chunk 1 | chunk 2 | rest |
 *     buffer   | chunk 0 | ...  slice  ... | chunk 1 | ... | chunk 2 | ... | rest 0 | ...
 */
#include "runtime/cuda/cuda_device.h"
#include "runtime/work/operand.h"

#include <stdlib.h>

struct list {
    struct kernel_piece *pieces;
    uint32_t count, cap;
};

static uint64_t gcd(uint64_t x, uint64_t y)
{
    while (y) {
        const uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return x;
}

void cuda_use_units(struct kernel_piece *piece, uint64_t size)
{
    uint64_t unit = gcd(16, (uint64_t)(uintptr_t)piece->to);
    unit = gcd(unit, (uint64_t)(uintptr_t)piece->from);
    unit = gcd(unit, piece->width * size);
    unit = gcd(unit, piece->from_pitch * size);
    unit = gcd(unit, piece->to_pitch * size);
    piece->unit = (uint8_t)unit;
    piece->width = piece->width * size / unit;
    piece->from_pitch = piece->from_pitch * size / unit;
    piece->to_pitch = piece->to_pitch * size / unit;
}

struct rectangle {
    const struct work_operand *from, *to; /* from NULL: zeros */
    uint64_t from_at, to_at;              /* in memory, elements from the operand's start */
    uint64_t rows, width, from_pitch, to_pitch;
    uint32_t times;
};

static void add(struct list *list, const struct rectangle *r)
{
    const uint64_t to_size = dtype_bytes((enum dtype)r->to->dtype);
    struct kernel_piece piece = {
        .to = (char *)r->to->data + r->to_at * to_size,
        .rows = r->rows,
        .width = r->width,
        .from_pitch = r->rows > 1 ? r->from_pitch : 0,
        .to_pitch = r->rows * r->times > 1 ? r->to_pitch : 0,
        .times = r->times,
    };
    if (r->rows == 0 || r->width == 0 || r->times == 0)
        return;
    if (r->from)
        piece.from =
            (const char *)r->from->data + r->from_at * dtype_bytes((enum dtype)r->from->dtype);
    if (!r->from || r->from->dtype == r->to->dtype) {
        cuda_use_units(&piece, to_size);
    } else {
        piece.from_dtype = (uint8_t)cuda_dtype(r->from);
        piece.to_dtype = (uint8_t)cuda_dtype(r->to);
    }
    ARRAY_GROW(list->pieces, list->count, list->cap);
    list->pieces[list->count++] = piece;
}

/* Elements [first, first + count) of x's list to `at` of y's, `times` 1. At most one of the two has
 * a pitch that the run crosses; when both have, the rows must be equally wide. */
static enum err_code add_run(struct list *list, const struct work *work,
                             const struct work_operand *x, uint64_t first,
                             const struct work_operand *y, uint64_t at, uint64_t count,
                             struct err *err)
{
    const uint64_t x_width = operand_row_width(x), y_width = operand_row_width(y);
    const uint64_t width = x->pitch ? x_width : y->pitch ? y_width : count;
    if (count == 0)
        return ERR_OK;
    if (!x->pitch && !y->pitch) {
        add(list, &(struct rectangle){x, y, first, at, 1, count, 0, 0, 1});
        return ERR_OK;
    }
    if (first % width || at % width || count % width ||
        (x->pitch && y->pitch && x_width != y_width))
        return work_refuse(work, ERR_UNSUPPORTED, err,
                           "a copy that begins or ends within a row of a chunk");
    const uint64_t x_pitch = x->pitch ? x->pitch : width, y_pitch = y->pitch ? y->pitch : width;
    add(list, &(struct rectangle){x, y, first / width * x_pitch, at / width * y_pitch,
                                  count / width, width, x_pitch, y_pitch, 1});
    return ERR_OK;
}

/* ---- the kinds ---- */

static enum err_code list_pack(struct list *list, const struct work *work, uint64_t at,
                               struct err *err)
{
    for (uint32_t i = 0; i < work->ins; i++) {
        const struct work_operand *part = work_in(work, i);
        TRY(add_run(list, work, part, 0, work_out(work, 0), at, operand_count(part), err));
        at += operand_count(part);
    }
    return ERR_OK;
}

/* A pitch is between rows of the last dim: others are joined by cuda_passes.c. */
static enum err_code list_cat(struct list *list, const struct work *work)
{
    const struct work_operand *y = work_out(work, 0);
    const uint64_t last = operand_last(y);
    uint64_t column = 0;
    for (uint32_t i = 0; i < work->ins; i++) {
        const struct work_operand *part = work_in(work, i);
        const uint64_t width = operand_last(part);
        add(list,
            &(struct rectangle){part, y, 0, column, operand_rows(part), width,
                                part->pitch ? part->pitch : width, y->pitch ? y->pitch : last, 1});
        column += width;
    }
    return ERR_OK;
}

/* Whole tensors must be contiguous: parameters and their gradients are. */
static enum err_code need_contiguous(const struct work *work, const struct work_operand *x,
                                     struct err *err)
{
    return x->pitch ? work_refuse(work, ERR_UNSUPPORTED, err, "a tensor with a pitch") : ERR_OK;
}

/* Between a whole tensor and its chunks in a flat buffer, from `at` of each slice on. */
static void list_chunks(struct list *list, const struct work *work, const struct work_operand *flat,
                        uint64_t at, const struct work_operand *part, bool to_part)
{
    const uint64_t slice = operand_count(flat) / work->ranks;
    const uint64_t chunk = operand_chunk(part, work->ranks), count = operand_count(part);
    const uint64_t full = chunk ? count / chunk : 0, rest = count - full * chunk;
    const uint64_t after = at + full * slice; /* the chunk that holds the rest */
    if (to_part) {
        add(list, &(struct rectangle){flat, part, at, 0, full, chunk, slice, chunk, 1});
        add(list, &(struct rectangle){flat, part, after, full * chunk, 1, rest, 0, 0, 1});
        return;
    }
    add(list, &(struct rectangle){part, flat, 0, at, full, chunk, chunk, slice, 1});
    add(list, &(struct rectangle){part, flat, full * chunk, after, 1, rest, 0, 0, 1});
    const uint64_t begun = full + (rest > 0); /* chunks that are not all padding */
    if (rest > 0)
        add(list, &(struct rectangle){NULL, flat, 0, after + rest, 1, chunk - rest, 0, 0, 1});
    add(list, &(struct rectangle){NULL, flat, 0, at + begun * slice, work->ranks - begun, chunk, 0,
                                  slice, 1});
}

static enum err_code list_all_chunks(struct list *list, const struct work *work, struct err *err)
{
    const bool to_parts = work->kind == WORK_COPY_OUT;
    const struct work_operand *flat = to_parts ? work_in(work, 0) : work_out(work, 0);
    const uint32_t parts = to_parts ? work->outs : work->ins;
    uint64_t at = 0;
    TRY(need_contiguous(work, flat, err));
    for (uint32_t i = 0; i < parts; i++) {
        const struct work_operand *part = to_parts ? work_out(work, i) : work_in(work, i);
        TRY(need_contiguous(work, part, err));
        list_chunks(list, work, flat, at, part, to_parts);
        at += operand_chunk(part, work->ranks);
    }
    return ERR_OK;
}

static enum err_code list_pieces(struct list *list, const struct work *work, struct err *err)
{
    const struct work_operand *y = work_out(work, 0);
    switch (work->kind) {
    case WORK_CAT:
        return list_cat(list, work);
    case WORK_COPY_IN:
        return list_pack(list, work, work->rank * (operand_count(y) / work->ranks), err);
    case WORK_COPY_OUT:
    case WORK_CHUNK_CAT:
        return list_all_chunks(list, work, err);
    case WORK_COPY:
        return add_run(list, work, work_in(work, 0), 0, y, 0, operand_count(y), err);
    default: /* PACK, STACK */
        return list_pack(list, work, 0, err);
    }
}

enum err_code cuda_copy_pieces(const struct work *work, cudaStream_t stream, struct err *err)
{
    struct list list = {0};
    const struct work_operand *y = work_out(work, 0);
    if (work->kind == WORK_COPY && !y->pitch && !work_in(work, 0)->pitch) {
        /* one run, perhaps to or from the host: the copy engine's */
        const uint64_t bytes = shape_bytes(&y->shape, (enum dtype)y->dtype);
        const cudaError_t rc = bytes ? cudaMemcpyAsync(y->data, work_in(work, 0)->data, bytes,
                                                       cudaMemcpyDefault, stream)
                                     : cudaSuccess;
        return cuda_launched(work, rc, err);
    }
    enum err_code rc = list_pieces(&list, work, err);
    if (rc == ERR_OK)
        rc = cuda_launched(work, kernel_pieces(list.pieces, list.count, stream), err);
    free(list.pieces);
    return rc;
}
