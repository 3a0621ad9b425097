/* start_up_parts.c - see start_up_parts.h. */
#include "job/start_up_parts.h"

#include <stdlib.h>

/* ---- births, deaths, moves ---- */

uint32_t start_up_buffer(struct program *p, uint8_t pool, enum category category, enum dtype dtype,
                         uint64_t elements)
{
    const struct buffer buffer = {
        .bytes = elements * dtype_bytes(dtype),
        .dtype = (uint8_t)dtype,
        .category = (uint8_t)category,
        .pool = pool,
        .shape = flat(elements),
    };
    return plan_add_buffer(p->plan, &buffer);
}

void start_up_emit(struct program *p, enum plan_op op, uint32_t arg, uint8_t group)
{
    plan_add_instruction(p->plan,
                         &(struct plan_instruction){.op = (uint8_t)op, .arg = arg, .group = group});
}

uint32_t start_up_born(struct program *p, uint8_t pool, enum category category, enum dtype dtype,
                       uint64_t elements)
{
    const uint32_t buffer = start_up_buffer(p, pool, category, dtype, elements);
    start_up_emit(p, PLAN_ALLOC, buffer, PLAN_NO_GROUP);
    ARRAY_GROW(p->alive, p->alive_count, p->alive_cap);
    p->alive[p->alive_count++] = buffer;
    return buffer;
}

void start_up_dies(struct program *p, uint32_t buffer)
{
    start_up_emit(p, PLAN_FREE, buffer, PLAN_NO_GROUP);
    for (uint32_t i = p->alive_count; i-- > 0;)
        if (p->alive[i] == buffer) {
            p->alive[i] = NONE;
            while (p->alive_count && p->alive[p->alive_count - 1] == NONE)
                p->alive_count--;
            return;
        }
}

void start_up_move(struct program *p, enum plan_op op, enum work_kind work, uint32_t from,
                   uint32_t to, uint8_t group)
{
    const struct operand in = plan_whole_buffer(p->plan, from);
    const struct operand out = plan_whole_buffer(p->plan, to);
    start_up_emit(p, op, plan_add_kernel(p->plan, work, ATEN_COPY_, 1, &in, 1, &out), group);
}

void start_up_copy(struct program *p, enum plan_op op, uint32_t from, uint32_t to)
{
    start_up_move(p, op, WORK_COPY, from, to, PLAN_NO_GROUP);
}

void start_up_let_go(struct program *p, uint32_t buffer)
{
    if (p->kept[buffer] == NONE || p->gone[buffer])
        return;
    start_up_emit(p, PLAN_FREE, p->kept[buffer], PLAN_NO_GROUP);
    p->gone[buffer] = true;
}

void start_up_stage(struct program *p, enum dtype dtype, uint64_t elements)
{
    if (elements == 0)
        return;
    const uint32_t from = start_up_buffer(p, LANE_COMPUTE, CATEGORY_PARAM, dtype, elements);
    const uint32_t to = start_up_born(p, LANE_HOST, CATEGORY_PARAM, dtype, elements);
    start_up_copy(p, PLAN_DEVICE_TO_HOST, from, to);
    start_up_dies(p, to);
}

/* ---- parameters ---- */

const struct plan_piece *start_up_store(const struct program *p, uint32_t param)
{
    return plan_piece(p->of, param, PIECE_STORE);
}

enum dtype start_up_dtype(const struct plan *plan, const struct plan_piece *piece)
{
    return (enum dtype)plan->buffers[piece->buffer].dtype;
}

uint64_t start_up_elements(const struct plan *plan, uint32_t param)
{
    return shape_elements(&plan->params[param].shape);
}

uint64_t start_up_own(const struct plan *plan, const struct plan_piece *piece, uint32_t rank)
{
    const struct part part = plan_part(plan, piece, rank);
    return part_elements(&part);
}

/* What every rank sets aside: fully_shard pads shards, so that all gather alike. */
uint64_t start_up_padded(const struct plan *plan, const struct plan_piece *piece)
{
    return placement_padded(piece->placement, &plan->params[piece->param].shape,
                            plan_group_ranks(plan, piece->group));
}

static enum dtype made_in(const struct program *p, uint32_t param)
{
    const enum system_kind system = p->job->strategy->system;
    const bool zero = system == SYSTEM_ZERO1 || system == SYSTEM_ZERO2 || system == SYSTEM_ZERO3;
    return zero ? p->job->strategy->store : start_up_dtype(p->of, start_up_store(p, param));
}

void start_up_whole_param(struct program *p, uint32_t param, uint8_t pool)
{
    p->full[param] =
        start_up_born(p, pool, CATEGORY_PARAM, made_in(p, param), start_up_elements(p->of, param));
}

/* The token embedding is the first parameter of its shape; the head has the same and is dropped for
 * it. */
uint32_t start_up_tied(const struct plan *plan, bool tied)
{
    for (uint32_t i = 0; tied && i < plan->param_count; i++)
        if (plan->params[i].shape.rank == 2)
            return i;
    return NONE;
}

/* Buffers of modules, which are what they are in a step. */
void start_up_module_buffers(struct program *p, uint8_t pool, uint32_t *made)
{
    for (uint32_t i = 0; i < p->of->module_buffer_count; i++) {
        const struct buffer *b = &p->of->buffers[p->of->module_buffers[i].buffer];
        const uint32_t buffer = start_up_born(p, pool, CATEGORY_BUFFER, (enum dtype)b->dtype,
                                              b->bytes / dtype_bytes((enum dtype)b->dtype));
        if (made)
            made[i] = buffer;
    }
}

/* The whole model as its constructor leaves it. A head that is tied is made before it is: last. */
void start_up_construct(struct program *p, uint8_t pool, uint32_t *buffers)
{
    const uint32_t twice = start_up_tied(p->of, p->tied);
    for (uint32_t i = 0; i < p->of->param_count; i++)
        start_up_whole_param(p, i, pool);
    start_up_module_buffers(p, pool, buffers);
    if (twice != NONE)
        start_up_dies(p, start_up_born(p, pool, CATEGORY_PARAM, made_in(p, twice),
                                       start_up_elements(p->of, twice)));
}

void start_up_move_param(struct program *p, uint32_t param)
{
    const uint32_t from = p->full[param];
    const struct buffer of = p->plan->buffers[from];
    if (of.pool != LANE_HOST)
        return;
    const enum dtype dtype = (enum dtype)of.dtype;
    p->full[param] =
        start_up_born(p, LANE_COMPUTE, CATEGORY_PARAM, dtype, of.bytes / dtype_bytes(dtype));
    start_up_copy(p, PLAN_HOST_TO_DEVICE, from, p->full[param]);
    start_up_dies(p, from);
}

void start_up_move_buffers(struct program *p, const uint32_t *from)
{
    uint32_t *to = xcalloc(p->of->module_buffer_count + 1, sizeof *to);
    start_up_module_buffers(p, LANE_COMPUTE, to);
    for (uint32_t i = 0; i < p->of->module_buffer_count; i++) {
        start_up_copy(p, PLAN_HOST_TO_DEVICE, from[i], to[i]);
        start_up_dies(p, from[i]);
    }
    free(to);
}

/* ---- broadcasts ---- */

/* compute_bucket_assignment_by_size: a bucket is one dtype's, and closes with the tensor that fills
 * it. */
struct bucket {
    enum dtype dtype;
    uint32_t first, tensors; /* `first`: of its tensors */
    uint64_t elements;
    bool closed;
};
static const uint64_t bucket_bytes = 250U << 20;

static uint32_t fill_buckets(uint32_t count, const enum dtype *dtypes, const uint64_t *elements,
                             struct bucket *buckets)
{
    uint32_t filled = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t b = 0;
        while (b < filled && (buckets[b].closed || buckets[b].dtype != dtypes[i]))
            b++;
        if (b == filled)
            buckets[filled++] = (struct bucket){.dtype = dtypes[i], .first = i};
        buckets[b].tensors++;
        buckets[b].elements += elements[i];
        buckets[b].closed = buckets[b].elements * dtype_bytes(dtypes[i]) >= bucket_bytes;
    }
    return filled; /* in the order of their first tensors */
}

void start_up_broadcast(struct program *p, uint8_t group, uint32_t count, const enum dtype *dtypes,
                        const uint64_t *elements)
{
    enum { AT_ONCE = 2 };
    struct bucket *buckets = xcalloc(count + 1, sizeof *buckets);
    uint32_t under_way[AT_ONCE] = {NONE, NONE};
    const uint32_t filled = fill_buckets(count, dtypes, elements, buckets);
    for (uint32_t b = 0; b < filled; b++) {
        uint32_t *slot = &under_way[b % AT_ONCE];
        if (*slot != NONE)
            start_up_dies(p, *slot);
        *slot = NONE;
        uint32_t flat; /* one tensor is as it lies */
        if (buckets[b].tensors == 1)
            flat = start_up_buffer(p, LANE_COMPUTE, CATEGORY_BUCKET, buckets[b].dtype,
                                   buckets[b].elements);
        else
            flat = *slot = start_up_born(p, LANE_COMPUTE, CATEGORY_BUCKET, buckets[b].dtype,
                                         buckets[b].elements);
        start_up_move(p, PLAN_BROADCAST, WORK_BROADCAST, flat, flat, group);
    }
    for (uint32_t b = filled; b < filled + AT_ONCE; b++)
        if (under_way[b % AT_ONCE] != NONE)
            start_up_dies(p, under_way[b % AT_ONCE]);
    free(buckets);
}
