/* tape_emit.c - see tape_emit.h and tape_state.h. */
#include "graph/tape_emit.h"

#include "base/layout.h"
#include "graph/tape_state.h"

#include <assert.h>
#include <string.h>

/* ---- buffers and their holders ---- */

void tape_step(struct tape *tape, enum step_kind kind, uint32_t arg)
{
    struct stream *s = tape->stream;
    ARRAY_GROW(s->steps, s->step_count, s->step_cap);
    s->steps[s->step_count++] = (struct stream_step){.kind = kind & 31U, .arg = arg & 0x7ffffffU};
}

uint32_t tape_new_buffer(struct tape *tape, enum aten aten, enum dtype dtype, struct shape shape,
                         uint64_t bytes)
{
    struct stream *s = tape->stream;
    ARRAY_GROW(s->buffers, s->buffer_count, s->buffer_cap);
    ARRAY_GROW(tape->holds, s->buffer_count, tape->holds_cap);
    const uint32_t buffer = s->buffer_count++;
    s->buffers[buffer] = (struct buffer){
        .bytes = bytes,
        .label = (uint16_t)aten,
        .dtype = (uint8_t)dtype,
        .category = tape->backward ? CATEGORY_BACKWARD : CATEGORY_ACTIVATION,
        .pool = LANE_COMPUTE,
        .shape = shape,
    };
    tape->holds[buffer] = 1;
    tape_step(tape, STEP_BIRTH, buffer);
    return buffer;
}

bool tape_own_linear(const struct tape *tape, const struct graph_op *op)
{
    return tape->options->own_linear && tape->graph->tensors[op->in[1]].base == op->in[1];
}

bool tape_replays_views(const struct tape *tape)
{
    return tape->options->replays_views && tape->graph->autograd == AUTOGRAD_RECORDED;
}

void tape_hold(struct tape *tape, uint32_t buffer)
{
    assert(buffer < tape->stream->buffer_count && tape->holds[buffer] > 0);
    assert(tape->holds[buffer] < UINT16_MAX);
    tape->holds[buffer]++;
}

void tape_release(struct tape *tape, uint32_t buffer)
{
    assert(buffer < tape->stream->buffer_count && tape->holds[buffer] > 0);
    if (--tape->holds[buffer] == 0)
        tape_step(tape, STEP_DEATH, buffer);
}

/* ---- operands ---- */

bool tape_needs(const struct tape *tape, const struct graph_op *op, uint32_t i)
{
    return i < op->ins && op->in[i] != GRAPH_NONE && tape->graph->tensors[op->in[i]].requires_grad;
}

/* Where the node that runs has a tensor that it unpacked, or a view of the same storage. */
static void see_unpacked(const struct tape *tape, uint32_t tensor, struct operand *operand)
{
    const struct graph_tensor *tensors = tape->graph->tensors;
    const struct seen *found = NULL;
    for (uint32_t i = 0; i < tape->seen_count && (!found || found->tensor != tensor); i++)
        if (tensors[tape->seen[i].tensor].storage == tensors[tensor].storage)
            found = &tape->seen[i];
    if (!found)
        return;
    operand->place = found->buffer;
    operand->pitch = 0;
    operand->layout = found->tensor == tensor ? found->layout : NULL;
    operand->offset = found->tensor == tensor ? found->offset : 0;
}

struct operand tape_tensor(const struct tape *tape, uint32_t tensor)
{
    const struct graph_tensor *t = &tape->graph->tensors[tensor];
    const struct graph_storage *s = &tape->graph->storages[t->storage];
    static const uint32_t kinds[] = {
        [STORAGE_ACTIVATION] = PLACE_BUFFER,
        [STORAGE_PARAM] = PLACE_PARAM,
        [STORAGE_INPUT] = PLACE_INPUT,
        [STORAGE_BUFFER] = PLACE_MODULE_BUFFER,
    };
    const uint32_t index = s->kind == STORAGE_ACTIVATION ? tape->where[t->storage] : s->index;
    struct operand operand = {
        .place = kinds[s->kind] | index,
        .offset = t->offset,
        .pitch = t->pitch,
        .dtype = t->dtype,
        .split = t->split,
        .shape = t->shape,
        .layout = t->layout,
    };
    see_unpacked(tape, tensor, &operand);
    return operand;
}

/* ---- where their elements are ---- */

void tape_lay_out(struct tape *tape, struct operand *operand, const struct strides *strides)
{
    struct kernel_table *table = tape->stream->kernels;
    const struct strides rows = layout_of_rows(&operand->shape, operand->pitch);
    operand->layout = NULL;
    if (layout_is_unknown(strides))
        operand->layout = &layout_unknown;
    if (operand->layout || layout_same(&operand->shape, strides, &rows))
        return;
    for (uint32_t i = 0; i < tape->layout_count && !operand->layout; i++)
        if (memcmp(tape->layouts[i], strides, sizeof *strides) == 0)
            operand->layout = tape->layouts[i];
    if (operand->layout)
        return;
    struct strides *kept = arena_alloc(&table->arena, sizeof *kept);
    *kept = *strides;
    // NOLINTNEXTLINE(bugprone-sizeof-expression): pointers
    ARRAY_GROW(tape->layouts, tape->layout_count, tape->layout_cap);
    tape->layouts[tape->layout_count++] = kept;
    operand->layout = kept;
}

/* A tensor as its real numbers: of complex ones the parts are a dim of their own, the last. */
static bool as_real(enum dtype dtype, struct shape *shape, struct strides *strides)
{
    if (dtype != DTYPE_COMPLEX64)
        return dtype == DTYPE_FP32;
    if (shape->rank == SHAPE_DIMS)
        return false;
    for (uint32_t i = 0; i < shape->rank; i++)
        strides->of[i] *= 2;
    shape->dim[shape->rank] = 2;
    strides->of[shape->rank++] = 1;
    return true;
}

/* And back: the parts have to be neighbours. */
static bool as_complex(struct shape *shape, struct strides *strides)
{
    const uint32_t last = --shape->rank;
    bool fits = strides->of[last] == 1;
    strides->of[last] = 0;
    for (uint32_t i = 0; i < last; i++) {
        fits = fits && (strides->of[i] % 2 == 0 || shape->dim[i] == 1);
        strides->of[i] /= 2;
    }
    return fits;
}

/* Whether the gradient `moved` of one tensor is that of another, and how. */
static bool follow(const struct graph_tensor *from, struct strides moved,
                   const struct graph_tensor *to, struct strides *seen)
{
    struct shape of_from = from->shape, of_moved = from->shape, of_to = to->shape;
    struct strides before = layout_of(&of_from, from->pitch, from->layout);
    struct strides now = layout_of(&of_to, to->pitch, to->layout);
    const enum dtype dtype = (enum dtype)from->dtype;
    if (layout_is_unknown(&moved) || layout_is_unknown(&before) || layout_is_unknown(&now))
        return false;
    if (from->dtype == to->dtype)
        return layout_follow(&of_from, &before, &moved, &of_to, &now, seen);
    if (!as_real(dtype, &of_from, &before) || !as_real(dtype, &of_moved, &moved) ||
        !as_real((enum dtype)to->dtype, &of_to, &now) ||
        !layout_follow(&of_from, &before, &moved, &of_to, &now, seen))
        return false;
    return to->dtype != DTYPE_COMPLEX64 || as_complex(&of_to, seen);
}

/* The gradient of a root as that of `tensor`, the root or a view of it. */
static void see_as(struct tape *tape, uint32_t tensor, const struct slice *part,
                   struct operand *gradient)
{
    const struct graph_tensor *to = &tape->graph->tensors[tensor];
    const struct graph_tensor *from = &tape->graph->tensors[part->seen_as];
    struct strides seen = layout_unknown;
    gradient->layout = NULL;
    if (part->seen_as == tensor) {
        gradient->layout = part->layout;
        return;
    }
    if (!part->layout && !to->layout && !from->layout)
        return; /* one row after the other, in whatever shape */
    const struct strides moved = layout_of(&from->shape, part->pitch, part->layout);
    if (!follow(from, moved, to, &seen))
        seen = layout_unknown;
    tape_lay_out(tape, gradient, &seen);
}

struct operand tape_grad_as(struct tape *tape, uint32_t tensor)
{
    const struct graph_tensor *t = &tape->graph->tensors[tensor];
    const struct slice *part = &tape->part[tape->root[tensor]];
    struct operand gradient = {
        .place = tape->slot[tape->root[tensor]],
        .offset = part->offset,
        .pitch = part->pitch,
        .dtype = t->dtype,
        .shape = t->shape,
    };
    if (gradient.place != NO_BUFFER)
        see_as(tape, tensor, part, &gradient);
    return gradient;
}

struct operand tape_grad(struct tape *tape, const struct graph_op *op, uint32_t i)
{
    return tape_grad_as(tape, op->out[i]);
}

/* Whether the gradient of an op's output cannot be seen as rows: *there is how it can be seen. */
static bool lies_apart(struct tape *tape, const struct graph_op *op, struct operand *there)
{
    const struct operand rows = tape_grad(tape, op, 0);
    const struct slice *part = &tape->part[tape->root[op->out[0]]];
    if (rows.place == NO_BUFFER || !layout_is_unknown(rows.layout) ||
        layout_is_unknown(part->layout))
        return false;
    *there = tape_grad_as(tape, part->seen_as);
    return true;
}

void tape_grad_in_rows(struct tape *tape, const struct graph_op *op)
{
    struct operand there;
    const uint32_t root = tape->root[op->out[0]];
    struct slice *part = &tape->part[root];
    if (!lies_apart(tape, op, &there))
        return;
    const struct operand copy = tape_call(tape, WORK_REORDER, ATEN_CLONE, (enum dtype)there.dtype,
                                          there.shape, -1.0, 1, &there);
    tape_release(tape, tape->slot[root]);
    tape->slot[root] = copy.place;
    *part = (struct slice){.seen_as = part->seen_as, .tensor = part->tensor, .mixed = part->mixed};
}

bool tape_rows_of_grad(struct tape *tape, const struct graph_op *op, struct operand *grad)
{
    struct operand there;
    *grad = tape_grad(tape, op, 0);
    if (!lies_apart(tape, op, &there))
        return false;
    const struct shape shape = grad->shape;
    *grad = tape_call(tape, WORK_REORDER, ATEN_CLONE, (enum dtype)there.dtype, there.shape, -1.0, 1,
                      &there);
    grad->shape = shape;
    return true;
}

struct operand tape_grad_where_it_lies(struct tape *tape, const struct graph_op *op)
{
    struct operand there;
    return lies_apart(tape, op, &there) ? there : tape_grad(tape, op, 0);
}

void tape_view(struct tape *tape, struct operand *operand, struct shape shape)
{
    const struct strides before = layout_of(&operand->shape, operand->pitch, operand->layout);
    const bool plain = !operand->layout;
    struct strides seen;
    if (!plain &&
        (layout_is_unknown(&before) || !layout_view(&operand->shape, &before, &shape, &seen)))
        seen = layout_unknown;
    operand->shape = shape;
    if (!plain)
        tape_lay_out(tape, operand, &seen);
}

void tape_lay_out_like(struct tape *tape, enum work_kind work, uint32_t ins,
                       const struct operand *in, struct operand *out)
{
    struct strides others[GRAPH_OPERANDS + 1];
    uint32_t count = 0;
    bool plain = true;
    for (uint32_t i = 0; i < ins; i++)
        plain = plain && (in[i].place == PLACE_NONE || !in[i].layout);
    if (plain || !work_keeps_order(work))
        return;
    for (uint32_t i = 0; i < ins && count < GRAPH_OPERANDS + 1; i++) {
        if (in[i].place == PLACE_NONE)
            continue;
        const struct strides own = layout_of(&in[i].shape, in[i].pitch, in[i].layout);
        others[count++] = layout_align(&in[i].shape, &own, &out->shape);
    }
    const struct strides strides = layout_like(&out->shape, count, others);
    tape_lay_out(tape, out, &strides);
}

struct operand tape_birth(struct tape *tape, enum aten aten, enum dtype dtype, struct shape shape)
{
    return (struct operand){
        .place = tape_new_buffer(tape, aten, dtype, shape, shape_bytes(&shape, dtype)),
        .dtype = (uint8_t)dtype,
        .shape = shape,
    };
}

struct operand tape_birth_pitched(struct tape *tape, enum aten aten, enum dtype dtype,
                                  struct shape shape, uint32_t pitch)
{
    const uint64_t last = shape.dim[shape.rank - 1], rows = shape_elements(&shape) / last;
    return (struct operand){
        .place = tape_new_buffer(tape, aten, dtype, shape,
                                 ((rows - 1) * pitch + last) * dtype_bytes(dtype)),
        .pitch = pitch == last ? 0 : pitch,
        .dtype = (uint8_t)dtype,
        .shape = shape,
    };
}

/* ---- kernels ---- */

/* What is not this pass's own (parameters, inputs) is there for as long as it runs. */
static bool is_alive(const struct tape *tape, const struct operand *operand)
{
    const uint32_t index = operand->place & ~PLACE_MASK;
    return (operand->place & PLACE_MASK) != PLACE_BUFFER ||
           (index < tape->stream->buffer_count && tape->holds[index] > 0);
}

static double operand_bytes(const struct operand *operand)
{
    return (double)shape_bytes(&operand->shape, (enum dtype)operand->dtype);
}

void tape_operand(struct tape *tape, struct operand operand)
{
    if (operand.layout) {
        const struct strides strides = *operand.layout;
        tape_lay_out(tape, &operand, &strides);
    }
    kernel_table_operand(tape->stream->kernels, &operand);
}

static uint32_t add_kernel(struct tape *tape, enum work_kind work, enum aten aten, double flops,
                           uint32_t ins, const struct operand *in, uint32_t outs,
                           const struct operand *out)
{
    struct kernel_table *table = tape->stream->kernels;
    assert(work != WORK_NONE);
    struct kernel kernel = {
        .label = (uint16_t)aten,
        .backward = tape->backward,
        .recomputed = tape->recomputing,
        .work = (uint8_t)work,
        .flops = flops,
    };
    if (tape->current_op != GRAPH_NONE) {
        const struct graph_op *op = &tape->graph->ops[tape->current_op];
        kernel.op = op->kind;
        kernel.attr = tape->in_op ? op->attr : (struct kernel_attr){0};
    }
    for (uint32_t i = 0; i < ins; i++) {
        if (in[i].place == GRAPH_NONE)
            continue;
        assert(is_alive(tape, &in[i]));
        tape_operand(tape, in[i]);
        kernel.bytes += operand_bytes(&in[i]);
        kernel.ins++;
    }
    for (uint32_t i = 0; i < outs; i++) {
        assert(is_alive(tape, &out[i]));
        tape_operand(tape, out[i]);
        kernel.bytes += operand_bytes(&out[i]);
        kernel.outs++;
        if (flops < 0 && i == 0)
            kernel.flops = (double)shape_elements(&out[i].shape);
    }
    return kernel_table_add(table, &kernel);
}

void tape_kernel(struct tape *tape, enum work_kind work, enum aten aten, double flops, uint32_t ins,
                 const struct operand *in, uint32_t outs, const struct operand *out)
{
    tape_step(tape, STEP_KERNEL, add_kernel(tape, work, aten, flops, ins, in, outs, out));
}

uint32_t tape_copy(struct tape *tape, enum step_kind kind, struct operand from, struct operand to)
{
    const uint32_t kernel = add_kernel(tape, WORK_COPY, ATEN_COPY_, -1.0, 1, &from, 1, &to);
    tape_step(tape, kind, kernel);
    return kernel;
}

void tape_number(struct tape *tape, float number)
{
    struct kernel_table *table = tape->stream->kernels;
    assert(table->kernel_count > 0);
    table->kernels[table->kernel_count - 1].attr.p = number;
}

void tape_again(struct tape *tape)
{
    struct kernel_table *table = tape->stream->kernels;
    assert(table->kernel_count > 0);
    table->kernels[table->kernel_count - 1].recomputed = true;
}

void tape_dim(struct tape *tape, uint32_t dim)
{
    struct kernel_table *table = tape->stream->kernels;
    assert(table->kernel_count > 0);
    table->kernels[table->kernel_count - 1].attr.dim = dim;
    table->kernels[table->kernel_count - 1].attr.first = 0;
}

struct operand tape_call(struct tape *tape, enum work_kind work, enum aten aten, enum dtype dtype,
                         struct shape shape, double flops, uint32_t ins, const struct operand *in)
{
    struct operand out = tape_birth(tape, aten, dtype, shape);
    tape_lay_out_like(tape, work, ins, in, &out);
    tape_kernel(tape, work, aten, flops, ins, in, 1, &out);
    return out;
}

void tape_host_reads(struct tape *tape)
{
    tape_step(tape, STEP_READ, 0);
}

void tape_death(struct tape *tape, struct operand transient)
{
    tape_release(tape, transient.place);
}

struct operand tape_scratch(struct tape *tape, uint64_t bytes)
{
    const struct shape shape = SHAPE((uint32_t)(bytes / 1024), 256); /* whole rows of them */
    const uint32_t buffer = tape_new_buffer(tape, ATEN_WORKSPACE, DTYPE_FP32, shape, bytes);
    tape->stream->buffers[buffer].scratch = true;
    tape->stream->buffers[buffer].category = CATEGORY_WORKSPACE;
    return (struct operand){.place = buffer, .dtype = DTYPE_FP32, .shape = shape};
}

/* ---- gradients ---- */

void tape_give_unasked(struct tape *tape, struct operand gradient)
{
    assert(tape->unasked_count < GRAPH_OPERANDS);
    tape->unasked[tape->unasked_count++] = gradient.place;
}

void tape_pass_unasked(struct tape *tape, struct operand gradient)
{
    tape_hold(tape, gradient.place);
    tape_give_unasked(tape, gradient);
}

void tape_give(struct tape *tape, const struct graph_op *op, uint32_t i, struct operand gradient)
{
    assert(tape->pending_count < GRAPH_OPERANDS);
    assert(tape_needs(tape, op, i) && is_alive(tape, &gradient));
    tape->pending[tape->pending_count++] =
        (struct pending){.tensor = op->in[i], .gradient = gradient, .given = GRAPH_NONE};
}

void tape_give_view(struct tape *tape, const struct graph_op *op, uint32_t i,
                    struct operand gradient)
{
    tape_give(tape, op, i, gradient);
    tape->pending[tape->pending_count - 1].viewed = true;
}

void tape_give_saved(struct tape *tape, const struct graph_op *op, uint32_t i, uint32_t tensor)
{
    const struct operand gradient = tape_tensor(tape, tensor);
    tape_hold(tape, gradient.place);
    tape_give_view(tape, op, i, gradient);
}

void tape_give_summed(struct tape *tape, const struct graph_op *op, uint32_t i,
                      struct operand gradient)
{
    tape_give(tape, op, i, gradient);
    tape->pending[tape->pending_count - 1].broadcast = true;
}
