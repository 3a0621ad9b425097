/* lowering.c - see lowering.h. */
#include "lower/lowering.h"

#include <stdlib.h>

static void tally_peaks(struct tally *tally, uint64_t live, uint64_t rounded)
{
    struct tally_result *out = tally->out;
    if (live > out->requested_bytes)
        out->requested_bytes = live;
    if (rounded > out->rounded_bytes)
        out->rounded_bytes = rounded;
    if (live > out->segment_bytes[tally->segment])
        out->segment_bytes[tally->segment] = live;
}

static void tally_change(struct tally *tally, const struct buffer *buffer, bool born)
{
    const uint64_t rounded = (buffer->bytes + 511) & ~511ULL;
    tally->live += born ? buffer->bytes : -buffer->bytes;
    tally->rounded += born ? rounded : -rounded;
    tally_peaks(tally, tally->live, tally->rounded);
}

void tally_span(struct tally *tally, const struct stream_span *span)
{
    if (span->events == 0)
        return;
    tally_peaks(tally, tally->live + (uint64_t)span->highest,
                tally->rounded + (uint64_t)span->highest_rounded);
    tally->live += (uint64_t)span->net;
    tally->rounded += (uint64_t)span->net_rounded;
}

static void emit(struct lowering *low, enum plan_op op, enum stream_id stream, uint32_t arg,
                 uint8_t group)
{
    struct plan_instruction instruction = low->here;
    instruction.op = (uint8_t)op;
    instruction.stream = (uint8_t)stream;
    instruction.arg = arg;
    instruction.group = group;
    plan_add_instruction(low->plan, &instruction);
}

void emit_alloc(struct lowering *low, uint32_t buffer)
{
    if (low->tally) {
        if (!(low->here.flags & PLAN_FIRST_STEP))
            tally_change(low->tally, &low->plan->buffers[buffer], true);
        return;
    }
    emit(low, PLAN_ALLOC, (enum stream_id)low->plan->buffers[buffer].pool, buffer, PLAN_NO_GROUP);
}

void emit_free(struct lowering *low, uint32_t buffer)
{
    if (low->tally) {
        tally_change(low->tally, &low->plan->buffers[buffer], false);
        return;
    }
    emit(low, PLAN_FREE, (enum stream_id)low->plan->buffers[buffer].pool, buffer, PLAN_NO_GROUP);
}

uint32_t emit_record(struct lowering *low, enum stream_id stream)
{
    const uint32_t event = low->plan->event_count++;
    if (low->tally)
        return event;
    emit(low, PLAN_RECORD, stream, event, PLAN_NO_GROUP);
    return event;
}

void emit_wait(struct lowering *low, enum stream_id stream, uint32_t event)
{
    if (low->tally)
        return;
    emit(low, PLAN_WAIT, stream, event, PLAN_NO_GROUP);
}

void emit_mark(struct lowering *low, enum plan_mark mark)
{
    if (low->tally) {
        if (mark != PLAN_MARK_START && mark != PLAN_MARK_AFTER_BACKWARD &&
            mark != PLAN_MARK_AFTER_STEP && mark != PLAN_MARK_END)
            low->tally->segment = mark;
        return;
    }
    emit(low, PLAN_MARK, STREAM_HOST, mark, PLAN_NO_GROUP);
}

uint32_t emit_work_on(struct lowering *low, enum plan_op op, enum stream_id stream,
                      enum work_kind work, enum aten label, uint8_t group, uint32_t ins,
                      const struct operand *in, uint32_t outs, const struct operand *out)
{
    if (low->tally)
        return 0;
    const uint32_t kernel = plan_add_kernel(low->plan, work, label, ins, in, outs, out);
    emit(low, op, stream, kernel, group);
    return kernel;
}

uint32_t emit_work(struct lowering *low, enum plan_op op, enum stream_id stream,
                   enum work_kind work, enum aten label, uint8_t group, uint32_t ins,
                   const uint32_t *in, uint32_t outs, const uint32_t *out)
{
    if (low->tally)
        return 0;
    struct operand *operands = xmalloc((ins + outs) * sizeof *operands);
    for (uint32_t i = 0; i < ins + outs; i++)
        operands[i] = plan_whole_buffer(low->plan, i < ins ? in[i] : out[i - ins]);
    const uint32_t kernel =
        emit_work_on(low, op, stream, work, label, group, ins, operands, outs, operands + ins);
    free(operands);
    return kernel;
}

uint32_t new_buffer(struct lowering *low, enum category category, enum stream_id pool,
                    enum aten label, enum dtype dtype, struct shape shape)
{
    const struct buffer buffer = {
        .bytes = shape_bytes(&shape, dtype),
        .label = (uint16_t)label,
        .dtype = (uint8_t)dtype,
        .category = (uint8_t)category,
        .pool = (uint8_t)pool,
        .shape = shape,
    };
    return plan_add_buffer(low->plan, &buffer);
}

uint32_t alloc_buffer(struct lowering *low, enum category category, enum stream_id pool,
                      enum aten label, enum dtype dtype, struct shape shape)
{
    const uint32_t buffer = new_buffer(low, category, pool, label, dtype, shape);
    emit_alloc(low, buffer);
    return buffer;
}
