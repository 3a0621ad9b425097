/* tape_emit.c - see tape_emit.h and tape_state.h. */
#include "graph/tape_emit.h"

#include "graph/tape_state.h"

#include <assert.h>

/* ---- buffers and their holders ---- */

void tape_step(struct tape *tape, enum step_kind kind, uint32_t arg)
{
    struct stream *s = tape->stream;
    ARRAY_GROW(s->steps, s->step_count, s->step_cap);
    s->steps[s->step_count++] = (struct stream_step){.kind = kind & 0xfU, .arg = arg & 0xfffffffU};
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

bool tape_own_linear(const struct tape *tape)
{
    return tape->options->own_linear;
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

void tape_drop(struct tape *tape, uint32_t storage)
{
    if (tape->python[storage]) {
        assert(tape->where[storage] != NO_BUFFER);
        tape->python[storage] = 0;
        if (tape->keeping[storage])
            tape_release(tape, tape->where[tape->graph->storages[storage].keeps]);
        tape->keeping[storage] = 0;
        tape_release(tape, tape->where[storage]);
    }
}

/* ---- operands ---- */

bool tape_needs(const struct tape *tape, const struct graph_op *op, uint32_t i)
{
    return i < op->ins && op->in[i] != GRAPH_NONE && tape->graph->tensors[op->in[i]].requires_grad;
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
    return (struct operand){
        .place = kinds[s->kind] | index,
        .offset = t->offset,
        .pitch = t->pitch,
        .dtype = t->dtype,
        .shape = t->shape,
    };
}

struct operand tape_grad(const struct tape *tape, const struct graph_op *op, uint32_t i)
{
    const struct graph_tensor *t = &tape->graph->tensors[op->out[i]];
    const uint32_t root = tape->root[op->out[i]];
    return (struct operand){
        .place = tape->slot[root],
        .offset = tape->part[root].offset,
        .pitch = tape->part[root].pitch,
        .dtype = t->dtype,
        .shape = t->shape,
    };
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

void tape_kernel(struct tape *tape, enum work_kind work, enum aten aten, double flops, uint32_t ins,
                 const struct operand *in, uint32_t outs, const struct operand *out)
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
        kernel_table_operand(table, &in[i]);
        kernel.bytes += operand_bytes(&in[i]);
        kernel.ins++;
    }
    for (uint32_t i = 0; i < outs; i++) {
        assert(is_alive(tape, &out[i]));
        kernel_table_operand(table, &out[i]);
        kernel.bytes += operand_bytes(&out[i]);
        kernel.outs++;
        if (flops < 0 && i == 0)
            kernel.flops = (double)shape_elements(&out[i].shape);
    }
    tape_step(tape, STEP_KERNEL, kernel_table_add(table, &kernel));
}

void tape_number(struct tape *tape, float number)
{
    struct kernel_table *table = tape->stream->kernels;
    assert(table->kernel_count > 0);
    table->kernels[table->kernel_count - 1].attr.p = number;
}

struct operand tape_call(struct tape *tape, enum work_kind work, enum aten aten, enum dtype dtype,
                         struct shape shape, double flops, uint32_t ins, const struct operand *in)
{
    const struct operand out = tape_birth(tape, aten, dtype, shape);
    tape_kernel(tape, work, aten, flops, ins, in, 1, &out);
    return out;
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

void tape_give(struct tape *tape, const struct graph_op *op, uint32_t i, struct operand gradient)
{
    assert(tape->pending_count < GRAPH_OPERANDS);
    assert(tape_needs(tape, op, i) && is_alive(tape, &gradient));
    tape->pending[tape->pending_count++] =
        (struct pending){.tensor = op->in[i], .gradient = gradient};
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
