/* execute_values.c - what memory holds that no kernel computes: batches, first values of parameters
 * and of modules' buffers, and the values that checkpoints read and write. */
#include "runtime/execution/execute_parts.h"
#include "runtime/execution/values.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 22 }; /* elements of a parameter that are filled at once */

/* ---- batches ---- */

static const struct buffer *input_buffer(const struct execution *e, uint32_t i)
{
    return &e->plan->buffers[e->plan->inputs[i].buffer];
}

/* All are as long as the tokens (plan_check_runnable). A rehearsal's are zeros, of whatever input:
 * one micro-batch stands for all. */
static uint64_t batches_bytes(const struct execution *e, uint32_t i)
{
    return (e->moved ? 1 : e->micro_batches) * input_buffer(e, i)->bytes;
}

enum { MASKED_OF = 7, NO_TARGET = -100 };

static bool has_input(const struct execution *e, enum input_kind kind)
{
    return plan_input_of(e->plan, kind) != NULL;
}

enum err_code execution_open_batches(struct execution *e, struct err *err)
{
    e->batches = xcalloc(e->plan->input_count + 1, sizeof *e->batches);
    for (uint32_t i = 0; i < e->plan->input_count; i++) {
        const uint64_t bytes = batches_bytes(e, i);
        e->batches[i] = bytes ? device_host_new(e->device, bytes) : NULL;
        if (bytes && !e->batches[i])
            return err_set(err, ERR_NOMEM, "no host memory for %llu bytes of batches",
                           (unsigned long long)bytes);
    }
    return ERR_OK;
}

void execution_close_batches(struct execution *e)
{
    for (uint32_t i = 0; e->batches && i < e->plan->input_count; i++)
        device_host_drop(e->device, e->batches[i], batches_bytes(e, i));
    free(e->batches);
}

/* Host memory of an input in this micro-batch: its own, and free again when the step has ended. */
static char *staged(const struct execution *e, uint32_t i)
{
    return e->batches[i] + (e->moved ? 0 : e->micro_batch * input_buffer(e, i)->bytes);
}

/* Copies one input in, in the compute stream's order: who still reads the last one's has passed by
 * then. */
static enum err_code send_input(struct execution *e, uint32_t i, uint32_t instruction,
                                struct err *err)
{
    const struct buffer *buffer = input_buffer(e, i);
    struct work_operand operand[2] = {
        {.data = staged(e, i), .shape = buffer->shape, .dtype = buffer->dtype},
        {.data = execution_address(e, e->plan->inputs[i].buffer),
         .shape = buffer->shape,
         .dtype = buffer->dtype},
    };
    const struct work work = {.kind = WORK_COPY,
                              .instruction = instruction,
                              .ins = 1,
                              .outs = 1,
                              .operand = operand,
                              .group = -1,
                              .label = "batch"};
    return operand[1].data && buffer->bytes > 0 ? device_launch(e->device, LANE_COMPUTE, &work, err)
                                                : ERR_OK;
}

/* Whether place i of a sequence is masked in this step: as many of each sequence. */
static bool is_masked(const struct execution *e, uint32_t i)
{
    return has_input(e, INPUT_MASKED_TARGETS) && (i + e->step) % MASKED_OF == 3;
}

/* One sequence, and the next step's in its place, into their places in an input. */
static void stage_row(struct execution *e, uint32_t input, uint32_t batch, uint32_t b, uint32_t seq,
                      const int64_t *row, const int64_t *next)
{
    const struct input_values *values = &e->plan->inputs[input].values;
    int64_t *out = (int64_t *)(void *)staged(e, input) + (size_t)b * seq;
    const uint32_t there = seq - padded_places(values->padded, batch, b); /* the rest is padding */
    for (uint32_t i = 0; i < seq; i++) {
        const bool masked = is_masked(e, i);
        const bool target = values->kind != INPUT_TOKENS && values->kind != INPUT_ATTENTION_MASK;
        if (target && (i >= there || i < values->prompt)) {
            out[i] = NO_TARGET;
            continue;
        }
        switch ((enum input_kind)values->kind) {
        case INPUT_ATTENTION_MASK:
            out[i] = i < there;
            break;
        case INPUT_TARGETS:
            out[i] = row[i + 1];
            break;
        case INPUT_MASKED_TARGETS:
            out[i] = masked ? row[i] : NO_TARGET;
            break;
        case INPUT_REPLIES:
            out[i] = next[i];
            break;
        case INPUT_TOKENS:
            out[i] = masked ? (int64_t)values->vocab - 1 : row[i];
            break;
        default: /* LABELS */
            out[i] = row[i];
            break;
        }
    }
}

/* The next sequences of the data. */
static enum err_code stage_rows(struct execution *e, struct err *err)
{
    const struct plan *plan = e->plan;
    const struct shape *tokens =
        &plan->buffers[plan_input_of(plan, INPUT_TOKENS)->buffer].shape; /* (b, s) */
    const uint32_t batch = tokens->dim[0], seq = tokens->dim[1];
    const uint32_t rows = plan->world * e->micro_batches * batch;
    const uint32_t first = (plan->rank * e->micro_batches + e->micro_batch) * batch;
    int64_t *row = xmalloc(2 * ((size_t)seq + 1) * sizeof *row), *next = row + seq + 1;
    enum err_code rc = ERR_OK;
    for (uint32_t b = 0; b < batch && rc == ERR_OK; b++) {
        rc = data_row(e->data, e->step, first + b, rows, seq, row, err);
        if (rc == ERR_OK && has_input(e, INPUT_REPLIES))
            rc = data_row(e->data, e->step + 1, first + b, rows, seq, next, err);
        for (uint32_t i = 0; i < plan->input_count && rc == ERR_OK; i++)
            stage_row(e, i, batch, b, seq, row, next);
    }
    free(row);
    return rc;
}

enum err_code execution_write_batch(struct execution *e, uint32_t instruction, struct err *err)
{
    if (!e->moved)
        TRY(stage_rows(e, err));
    for (uint32_t i = 0; i < e->plan->input_count; i++)
        TRY(send_input(e, i, instruction, err));
    return ERR_OK;
}

/* ---- values of parameters and states ---- */

/* New optimizer states are zero (torch.zeros_like), and so are shards before they are filled
 * (FSDPParam's new_zeros). */
enum err_code execution_zero(struct execution *e, uint32_t index, uint32_t instruction,
                             struct err *err)
{
    const struct buffer *buffer = &e->plan->buffers[index];
    struct work_operand operand = {
        .data = execution_address(e, index), .shape = buffer->shape, .dtype = buffer->dtype};
    const struct work work = {
        .kind = WORK_FILL, .instruction = instruction, .outs = 1, .operand = &operand, .group = -1};
    if (!operand.data || buffer->pool == LANE_HOST || e->moved)
        return ERR_OK;
    return device_launch(e->device, buffer->pool, &work, err);
}

/* By way of a cast on the device. */
static enum err_code cast_values(struct execution *e, uint64_t address, enum dtype dtype,
                                 uint64_t count, float *values, bool to_device, struct err *err)
{
    const uint64_t bytes = count * sizeof *values;
    const uint64_t segment = (bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES * SEGMENT_BYTES;
    const uint64_t staging = device_segment_new(e->device, segment);
    if (!staging)
        return err_set(err, ERR_NOMEM, "no memory to cast %llu bytes", (unsigned long long)bytes);
    const struct shape shape = SHAPE((uint32_t)count);
    struct work_operand operand[2] = {
        {.data = (void *)(uintptr_t)staging, .shape = shape, .dtype = DTYPE_FP32},
        {.data = (void *)(uintptr_t)address, .shape = shape, .dtype = (uint8_t)dtype},
    };
    if (!to_device) {
        const struct work_operand first = operand[0];
        operand[0] = operand[1];
        operand[1] = first;
    }
    const struct work cast = {
        .kind = WORK_CAST, .ins = 1, .outs = 1, .operand = operand, .group = -1};
    enum err_code rc = to_device ? device_write(e->device, staging, values, bytes, err) : ERR_OK;
    if (rc == ERR_OK)
        rc = device_launch(e->device, LANE_COMPUTE, &cast, err);
    if (rc == ERR_OK)
        rc = device_sync(e->device, err);
    if (rc == ERR_OK && !to_device)
        rc = device_read(e->device, values, staging, bytes, err);
    device_segment_drop(e->device, staging, segment);
    return rc;
}

/* Copies values between fp32 host memory and elements first ... first + count - 1 of an operand
 * without a pitch; count is below 2^32. */
static enum err_code move_run(struct execution *e, const struct operand *at, uint64_t first,
                              uint64_t count, float *values, bool to_device, struct err *err)
{
    const enum dtype dtype = (enum dtype)at->dtype;
    const uint64_t base = (uint64_t)(uintptr_t)execution_address(e, at->place);
    const uint64_t address = base + (at->offset + first) * dtype_bytes(dtype);
    const uint64_t bytes = count * sizeof *values;
    if (!base)
        return err_set(err, ERR_INVALID, "this state does not exist yet");
    if (dtype != DTYPE_FP32)
        return cast_values(e, address, dtype, count, values, to_device, err);
    return to_device ? device_write(e->device, address, values, bytes, err)
                     : device_read(e->device, values, address, bytes, err);
}

/* All of an operand, a chunk at a time. */
static enum err_code move_values(struct execution *e, const struct operand *at, float *values,
                                 bool to_device, struct err *err)
{
    const uint64_t count = shape_elements(&at->shape);
    for (uint64_t first = 0; first < count; first += CHUNK) {
        const uint64_t n = count - first < CHUNK ? count - first : CHUNK;
        TRY(move_run(e, at, first, n, values + first, to_device, err));
    }
    return ERR_OK;
}

const struct plan_piece *execution_piece(const struct plan *plan, uint32_t p, int state)
{
    switch (state) {
    case EXECUTION_GATHERED: {
        const struct plan_piece *piece = plan_piece(plan, p, PIECE_GATHERED);
        return piece && plan->buffers[piece->buffer].resident ? piece : NULL;
    }
    case EXECUTION_STORE:
        return plan_piece(plan, p, PIECE_STORE);
    case EXECUTION_PARAM:
        return plan_updated_piece(plan, p);
    case EXECUTION_EXP_AVG:
        return plan_piece(plan, p, PIECE_EXP_AVG);
    default:
        return plan_piece(plan, p, PIECE_EXP_AVG_SQ);
    }
}

/* Where a parameter's values, or those of a state, are; *at has no elements when this rank has none
 * of it. */
static enum err_code find_values(const struct execution *e, uint32_t p, int state,
                                 struct operand *at, struct err *err)
{
    const struct plan_piece *piece = execution_piece(e->plan, p, state);
    const struct part part = plan_part(e->plan, plan_updated_piece(e->plan, p), e->plan->rank);
    *at = (struct operand){.shape = SHAPE(0)};
    if (piece)
        *at = plan_piece_operand(e->plan, piece);
    else if (part_elements(&part))
        return err_set(err, ERR_INVALID, "%s has no such state", e->plan->params[p].name);
    return ERR_OK;
}

enum err_code execution_read(struct execution *e, uint32_t p, int state, float *values,
                             struct err *err)
{
    struct operand at;
    TRY(find_values(e, p, state, &at, err));
    return move_values(e, &at, values, false, err);
}

enum err_code execution_write(struct execution *e, uint32_t p, int state, const float *values,
                              struct err *err)
{
    struct operand at;
    TRY(find_values(e, p, state, &at, err));
    if (shape_elements(&at.shape) == 0)
        return ERR_OK;
    if (state >= 0 && !execution_address(e, at.place)) /* the first step would make it */
        TRY(execution_alloc(e, at.place, e->optimizer, err));
    return move_values(e, &at, (float *)(uintptr_t)values, true, err);
}

/* ---- first values ---- */

/* This rank's part of a piece, run by run, in chunks that are sent when they are full. */
static enum err_code fill_piece(struct execution *e, const struct plan_piece *piece, float *chunk,
                                struct err *err)
{
    const struct param_init *init = &e->plan->params[piece->param].init;
    const struct part part = plan_part(e->plan, piece, e->plan->rank);
    const struct operand at = plan_piece_operand(e->plan, piece);
    uint64_t sent = 0, used = 0;
    for (uint64_t run = 0; run < part.runs; run++)
        for (uint64_t i = 0, n; i < part.width; i += n) {
            n = part.width - i < CHUNK - used ? part.width - i : CHUNK - used;
            values_of_param(init, piece->param, part.first + run * part.pitch + i, n, chunk + used);
            used += n;
            if (used < CHUNK)
                continue;
            TRY(move_run(e, &at, sent, used, chunk, true, err));
            sent += used;
            used = 0;
        }
    return used ? move_run(e, &at, sent, used, chunk, true, err) : ERR_OK;
}

static bool holds_values(const struct plan *plan, const struct plan_piece *piece)
{
    return piece->role == PIECE_STORE || piece->role == PIECE_MASTER ||
           ((piece->role == PIECE_GATHERED || piece->role == PIECE_SECONDARY) &&
            plan->buffers[piece->buffer].resident);
}

/* All of what is stored, padding included, is zero before values are put there. */
static enum err_code fill_params(struct execution *e, float *chunk, struct err *err)
{
    const struct plan *plan = e->plan;
    for (uint32_t i = 0; i < plan->piece_count; i++)
        if (holds_values(plan, &plan->pieces[i]))
            TRY(execution_zero(e, plan->pieces[i].buffer, 0, err));
    for (uint32_t i = 0; i < plan->piece_count; i++)
        if (holds_values(plan, &plan->pieces[i]))
            TRY(fill_piece(e, &plan->pieces[i], chunk, err));
    return ERR_OK;
}

/* Numbers in 16 bits, by way of fp32. */
static enum err_code fill_number_of_16_bits(struct execution *e,
                                            const struct plan_module_buffer *row, struct err *err)
{
    const struct operand at = plan_whole_buffer(e->plan, row->buffer);
    float *values = xmalloc((shape_elements(&at.shape) + 1) * sizeof *values);
    values_of_buffer(&row->values, &at.shape, DTYPE_FP32, values);
    const enum err_code rc = move_values(e, &at, values, true, err);
    free(values);
    return rc;
}

static enum err_code fill_module_buffers(struct execution *e, struct err *err)
{
    const struct plan *plan = e->plan;
    for (uint32_t i = 0; i < plan->module_buffer_count; i++) {
        const struct plan_module_buffer *row = &plan->module_buffers[i];
        const struct buffer *buffer = &plan->buffers[row->buffer];
        if (buffer->bytes == 0)
            continue;
        if ((row->values.kind == VALUES_NUMBER || row->values.kind == VALUES_PARTS) &&
            (buffer->dtype == DTYPE_BF16 || buffer->dtype == DTYPE_FP16)) {
            TRY(fill_number_of_16_bits(e, row, err));
            continue;
        }
        void *bytes = xcalloc(buffer->bytes, 1); /* behind the shape there may be more */
        values_of_buffer(&row->values, &buffer->shape, (enum dtype)buffer->dtype, bytes);
        const enum err_code rc =
            device_write(e->device, (uint64_t)(uintptr_t)execution_address(e, row->buffer), bytes,
                         buffer->bytes, err);
        free(bytes);
        TRY(rc);
    }
    return ERR_OK;
}

enum err_code execution_fill(struct execution *e, struct err *err)
{
    float *chunk = xmalloc(CHUNK * sizeof *chunk);
    const enum err_code rc = fill_params(e, chunk, err);
    free(chunk);
    return rc == ERR_OK ? fill_module_buffers(e, err) : rc;
}
